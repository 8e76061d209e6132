"""Tests the bounds of the streams of events: how many there are, and what happens to a page that does not read."""

import asyncio
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from kafka_quota_proxy.proxy.admin.admin_port import MAX_REQUESTS
from kafka_quota_proxy.proxy.admin.http_server import AdminServer
from kafka_quota_proxy.proxy.admin.status.event_streams import MAX_STREAMS, EventStreams
from tests.proxy.admin.test_http_server import admin_of, ask, ready_server
from tests.support.stub_broker import eventually

MODULE = "kafka_quota_proxy.proxy.admin.status.event_streams"
REQUEST = b"GET /clients/stream HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{MODULE}.EVERY_S", 0.05)


@contextmanager
def stream(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall(REQUEST)
        yield client


def read_events(client: socket.socket, count: int) -> list[dict[str, object]]:
    """Read this many events, after the head of the response."""
    found: list[dict[str, object]] = []
    with client.makefile("rb") as lines:
        while len(found) < count and (line := lines.readline()):
            if line.startswith(b"data: "):
                found.append(json.loads(line[6:]))
    return found


def streams_of(admin: AdminServer) -> EventStreams:
    return admin._ports[0]._streams["/clients/stream"]


async def test_a_stream_begins_at_once_and_goes_on() -> None:
    async with admin_of(ready_server()) as admin:
        with stream(admin.port) as client:
            events = await asyncio.to_thread(read_events, client, 3)
        head = http.client.HTTPConnection("127.0.0.1", admin.port, timeout=20)
        await asyncio.to_thread(head.request, "GET", "/clients/stream")
        response = await asyncio.to_thread(head.getresponse)
        head.close()

    assert [str(event["verdict"])[:4] for event in events] == ["Well"] * 3
    assert len({event["time"] for event in events}) == 3
    assert response.headers["Content-Type"] == "text/event-stream"
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["Content-Length"] is None


async def test_all_pages_share_one_reading_and_nothing_is_read_without_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{MODULE}.EVERY_S", 0.3)
    async with admin_of(ready_server()) as admin:
        streams, readings = streams_of(admin), 0
        read = streams._read

        def counted() -> bytes:
            nonlocal readings
            readings += 1
            return read()

        streams._read = counted
        with ExitStack() as stack:
            clients = [stack.enter_context(stream(admin.port)) for _ in range(MAX_STREAMS)]
            all_events = await asyncio.gather(*(asyncio.to_thread(read_events, client, 2) for client in clients))
        assert 2 <= readings <= 3
        assert len({json.dumps(events[-1]) for events in all_events}) <= 2

        await eventually(lambda: not len(streams))
        await asyncio.sleep(0.4)  # an event that was being read may still arrive
        before = readings
        await asyncio.sleep(0.5)
        assert readings == before


async def test_a_ninth_stream_is_refused_until_one_ends_and_eight_take_no_room_from_other_requests() -> None:
    async with admin_of(ready_server()) as admin:
        with ExitStack() as stack:
            clients = [stack.enter_context(stream(admin.port)) for _ in range(MAX_STREAMS)]
            await asyncio.gather(*(asyncio.to_thread(read_events, client, 1) for client in clients))
            threads = threading.active_count()
            asked = (asyncio.to_thread(ask, admin.port, "/clients") for _ in range(MAX_REQUESTS))
            answers = await asyncio.gather(*asked)
            with stream(admin.port) as ninth:
                refused = await asyncio.to_thread(ninth.recv, 16_384)
            clients[0].close()
            await eventually(lambda: len(streams_of(admin)) < MAX_STREAMS)
            with stream(admin.port) as client:
                events = await asyncio.to_thread(read_events, client, 1)

    assert [answer.status for answer in answers] == [200] * MAX_REQUESTS
    assert threads < 20  # those of pytest, and of the tests' own reads
    assert refused.startswith(b"HTTP/1.0 503 Service Unavailable\r\n")
    assert refused.endswith(b"\r\n\r\n8 status pages are open; close one\n")
    assert len(events) == 1


async def test_a_page_that_does_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{MODULE}._STALLED_S", 0.2)
    async with admin_of(ready_server()) as admin:
        streams = streams_of(admin)
        streams._read = lambda: json.dumps({"padding": "x" * 1_000_000}).encode()
        with socket.socket() as client, stream(admin.port) as reader:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.connect(("127.0.0.1", admin.port))
            client.sendall(REQUEST)
            await eventually(lambda: len(streams) == 2)
            reading = asyncio.ensure_future(asyncio.to_thread(read_events, reader, 15))
            await eventually(lambda: len(streams) == 1)
            most = max(len(one.unsent) for one in streams._streams.values())
            events = await reading

    assert len(events) == 15  # the other page goes on
    assert most <= 1_000_100  # at most one event is kept


@pytest.mark.parametrize("goes_away", [True, False])
async def test_a_page_that_goes_away_or_sends_more_is_dropped(goes_away: bool) -> None:
    async with admin_of(ready_server()) as admin:
        streams = streams_of(admin)
        with stream(admin.port) as client:
            await eventually(lambda: len(streams) == 1)
            if goes_away:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # end it with a reset
                client.close()
            else:
                client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            await eventually(lambda: not len(streams))


async def test_streams_end_with_the_proxy() -> None:
    async with admin_of(ready_server()) as admin:
        client = socket.create_connection(("127.0.0.1", admin.port), timeout=20)
        client.sendall(REQUEST)
        await asyncio.to_thread(read_events, client, 1)
        streams = streams_of(admin)

    assert len(streams) == 0
    assert await asyncio.to_thread(_rest_of, client)
    client.close()


def _rest_of(client: socket.socket) -> bool:
    """Return whether the connection ends, by whatever way."""
    try:
        while client.recv(65_536):
            pass
    except ConnectionError:
        pass
    return True


@pytest.mark.usefixtures("has_faults")
async def test_a_fault_in_one_reading_leaves_the_streams_open(caplog: pytest.LogCaptureFixture) -> None:
    async with admin_of(ready_server()) as admin:
        streams, read = streams_of(admin), streams_of(admin)._read
        faults = iter([True])

        def fails_once() -> bytes:
            if next(faults, False):
                raise ValueError("a fault")
            return read()

        streams._read = fails_once
        with stream(admin.port) as client:
            events = await asyncio.to_thread(read_events, client, 1)

    assert len(events) == 1
    assert "the state for the status page could not be read" in caplog.text
