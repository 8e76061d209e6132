"""Tests an event loop in a thread: callers get results and errors, and ``close`` ends calls that wait."""

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kafka_quota_proxy.proxy.kafka_client.loop_thread import LoopThread
from tests.support.stub_broker import deaf_broker


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


def test_a_silent_address_of_a_broker_is_passed_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proxy's own Kafka clients dial on this loop, by ``create_connection``."""
    resolve = socket.getaddrinfo

    def both(host: str, port: int, *more: int, **options: int) -> list[Any]:
        hosts = ("127.0.0.2", "127.0.0.3") if host == "kafka.example" else (host,)
        return [found for each in hosts for found in resolve(each, port, *more, **options)]

    async def dial(port: int) -> str:
        transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, "kafka.example", port)
        transport.close()
        return str(transport.get_extra_info("peername")[0])

    monkeypatch.setattr(socket, "getaddrinfo", both)
    with deaf_broker("127.0.0.2") as deaf, socket.create_server(("127.0.0.3", deaf.port)):
        thread = LoopThread("test", on_close=Work().on_close)
        try:
            assert thread.run(asyncio.wait_for(dial(deaf.port), 5)) == "127.0.0.3"
        finally:
            thread.close()
