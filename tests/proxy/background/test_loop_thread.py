"""Tests an event loop in a thread: callers get results and errors, and ``close`` ends calls that wait."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kafka_quota_proxy.proxy.background.isolation import internal_errors
from kafka_quota_proxy.proxy.background.loop_thread import LoopThread


class Work:
    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self.is_closed_on = ""

    async def name(self) -> str:
        return threading.current_thread().name

    async def fail(self) -> None:
        raise LookupError("no such thing")

    async def hang(self) -> None:
        self.has_begun.set()
        await asyncio.sleep(60)

    async def on_close(self) -> None:
        self.is_closed_on = threading.current_thread().name


def test_work_runs_in_the_named_thread_and_its_result_or_error_is_returned() -> None:
    work = Work()
    thread = LoopThread("admin", on_close=work.on_close)

    assert thread.run(work.name()) == "admin"
    with pytest.raises(LookupError, match="no such thing"):
        thread.run(work.fail())
    thread.close()

    assert work.is_closed_on == "admin"


def test_close_fails_the_call_that_waits_and_later_calls() -> None:
    work = Work()
    before = threading.active_count()
    thread = LoopThread("admin", on_close=work.on_close)
    with ThreadPoolExecutor(1) as other:
        hanging = other.submit(lambda: thread.run(work.hang()))
        assert work.has_begun.wait(5)

        thread.close()

        with pytest.raises(ConnectionAbortedError, match="closed meanwhile"):
            hanging.result(5)
    with pytest.raises(ConnectionAbortedError, match="was closed"):
        thread.run(work.name())
    thread.close()  # may be called again
    assert threading.active_count() == before


def test_a_fault_in_on_close_is_reported_and_the_thread_ends() -> None:
    work = Work()
    before = threading.active_count()
    thread = LoopThread("admin", on_close=work.fail)

    thread.close()

    assert internal_errors.pop("background.loop_thread") == 1
    assert threading.active_count() == before
