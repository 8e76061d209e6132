"""Tests blocking calls in threads: their results, their errors, and a caller that is cancelled."""

import asyncio
import threading

import pytest

from kafka_quota_proxy.proxy.runtime.in_thread import in_thread
from tests.support.stub_broker import eventually


async def test_the_result_or_the_error_comes_from_a_thread_of_that_name() -> None:
    def work() -> None:
        raise OSError("away")

    assert await in_thread(lambda: threading.current_thread().name, name="asked") == "asked"
    with pytest.raises(OSError, match="away"):
        await in_thread(work)


async def test_a_cancelled_waiter_returns_at_once_and_the_thread_does_not_block_exit() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def work() -> bool:
        begun.set()
        assert threading.current_thread().daemon
        return go_on.wait(10)

    task = asyncio.ensure_future(in_thread(work))
    await eventually(begun.is_set)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    go_on.set()
