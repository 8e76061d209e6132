"""Tests how memory is bounded, and that unlimited clients are logged. ``test_server`` tests the other sweeps."""

import asyncio
import socket
from contextlib import AsyncExitStack
from dataclasses import replace
from mmap import mmap
from pathlib import Path

import pytest

from kafka_quota_proxy.config.model import QuotaRule
from kafka_quota_proxy.proxy.server import sweeps
from kafka_quota_proxy.proxy.server.brokers import dialer as dialer_module
from kafka_quota_proxy.proxy.server.server import Server
from kafka_quota_proxy.proxy.server.sweeps import resident_bytes
from tests.proxy.server.clients.test_connection import answers, config_to, disconnects
from tests.support.frames import fetch_request, fetch_response, other_request, produce_request
from tests.support.stub_broker import client_of, correlation_id, eventually, on_uvloop, running, stub_broker

pytestmark = pytest.mark.usefixtures("relay")

MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def probes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialer_module, "_PROBE_EVERY_S", 3_600.0)


@pytest.fixture
def is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the process look as if it used more memory than any limit."""
    monkeypatch.setattr(sweeps, "resident_bytes", lambda: 1 << 40)


def bound(server: Server, max_buffered_bytes: int) -> None:
    """Apply ``max_buffered`` as the sweep does."""
    server.rules.config = replace(server.config, max_buffered_bytes=max_buffered_bytes)
    server._sweeps._bound_buffers()


def test_resident_bytes_grow_with_allocations() -> None:
    before = resident_bytes()

    # Not from the heap, which may still have as much room from an earlier test.
    with mmap(-1, 64 * MIB) as held:
        for _ in range(64):
            held.write(b"x" * MIB)

        assert 60 * MIB < resident_bytes() - before < 80 * MIB


@pytest.mark.parametrize("text", ["", "12", "12 x"])
def test_resident_bytes_are_huge_if_the_system_does_not_report_them(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statm = tmp_path / "statm"
    monkeypatch.setattr(sweeps, "_STATM", statm)
    assert resident_bytes() > 2**60
    statm.write_text(text)

    assert resident_bytes() > 2**60


@on_uvloop
async def test_closing_connections_count_and_are_aborted(is_large: None) -> None:
    async with (
        stub_broker(lambda frame: fetch_response(correlation_id(frame), size_bytes=20 * MIB)) as broker,
        running(config_to(broker)) as server,
        AsyncExitStack() as stack,
    ):
        listener = server.listeners[0]
        for _ in range(3):
            client = await stack.enter_async_context(client_of(server))
            client.writer.transport.pause_reading()  # type: ignore[attr-defined] # uvloop has this method
            await client.send(fetch_request())
        await eventually(lambda: len(listener.connections) == 3)
        await eventually(lambda: all(one.state.is_client_full for one in listener.connections))
        sizes = sorted(one.held_bytes() or 0 for one in listener.connections)
        for connection in tuple(listener.connections):
            connection.close("idle_timeout")
        await asyncio.sleep(0.05)
        assert listener.open_count.total == 3  # nothing is read, so they linger

        bound(server, sum(sizes))
        await asyncio.sleep(0.05)
        assert listener.open_count.total == 3

        bound(server, sum(sizes[:2]))
        await eventually(lambda: listener.open_count.total == 2)
        bound(server, 0)
        await eventually(lambda: listener.open_count.total == 0)
        assert disconnects(server) == {"idle_timeout": 3}
        assert listener.closing.holders() == []


@on_uvloop
async def test_closing_connection_that_is_read_to_its_end_is_forgotten(is_large: None) -> None:
    response = fetch_response(size_bytes=20 * MIB)
    async with stub_broker(lambda _: response) as broker, running(config_to(broker)) as server:
        listener = server.listeners[0]
        async with client_of(server) as client:
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await client.send(fetch_request())
            await eventually(lambda: listener.connections and next(iter(listener.connections)).state.is_client_full)
            next(iter(listener.connections)).close("idle_timeout")
            ((size_bytes, _),) = listener.closing.holders()
            assert size_bytes > 64 * 1024

            client.writer.transport.resume_reading()  # type: ignore[attr-defined]
            received = await client.reader.read()

        assert response.startswith(received)
        assert len(received) > size_bytes
        await eventually(lambda: listener.closing.holders() == [])


@on_uvloop
async def test_orphaned_connections_count_and_are_aborted(is_large: None) -> None:
    limited = QuotaRule(client_id="etl", consumer_byte_rate=1_000.0)
    async with stub_broker() as broker, running(config_to(broker, limited)) as server, client_of(server) as client:
        listener = server.listeners[0]
        await client.send(other_request())
        await eventually(lambda: broker.in_use)
        (connection,) = listener.connections
        assert connection.transports.broker is not None
        sender = connection.transports.broker.get_extra_info("socket")
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        broker.in_use[0].transport.pause_reading()
        count = 1
        while not connection.transports.broker.get_write_buffer_size():
            count += 1
            await client.send(produce_request(count, client_id="free", size_bytes=30_000))
            await asyncio.sleep(0)
        await client.send(fetch_request(count + 1))
        await eventually(lambda: len(connection.session.state.in_flight) == count + 1)
        client.reset()
        await eventually(lambda: len(listener.orphans) == 1)

        bound(server, 64 * 1024)
        assert len(listener.orphans) == 1
        bound(server, 0)

        assert len(listener.orphans) == 0
        broker.in_use[0].transport.resume_reading()
        await eventually(lambda: broker.in_use[0].is_lost)
        assert len(broker.in_use[0].requests) < count + 1


MY_APP = QuotaRule(client_id="my-app", producer_byte_rate=1e6)
WRONG = "user='ANONYMOUS' client-id='myapp' (no rule applies to it; did you mean client-id='my-app'?)"


def not_limited(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in caplog.messages if message.startswith("not limited: ")]


@on_uvloop
async def test_misspelt_client_id_is_logged_at_once_for_tests(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        stub_broker(answers) as broker,
        running(replace(config_to(broker, MY_APP), testing=True)) as server,
        client_of(server) as right,
        client_of(server) as wrong,
    ):
        for number in range(5):
            await right.ask(produce_request(number, client_id="my-app"))
            await wrong.ask(produce_request(number, client_id="myapp"))
        await eventually(lambda: not_limited(caplog))
        await asyncio.sleep(0.3)
        assert not_limited(caplog) == [f"not limited: {WRONG}"]
        assert not any(quotas.newly_unlimited for quotas in server.brokers.quotas)

        server.apply(server.config)  # as after POST /testing/reset
        await right.ask(produce_request(7, client_id="my-app"))
        await wrong.ask(produce_request(7, client_id="myapp"))
        await eventually(lambda: len(not_limited(caplog)) == 2)
        assert not_limited(caplog)[1] == f"not limited: {WRONG}"


@on_uvloop
async def test_client_of_a_test_is_not_logged_in_the_next_one(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        stub_broker(answers) as broker,
        running(replace(config_to(broker, MY_APP), testing=True)) as server,
        client_of(server) as client,
    ):
        await client.ask(produce_request(1, client_id="myapp"))
        server.apply(server.config)  # as after POST /testing/reset
        await asyncio.sleep(0.3)

    assert not_limited(caplog) == []
