"""Tests a connection between one client and one broker, from the dial to the end, over real sockets."""

import asyncio
import socket
from dataclasses import replace
from struct import unpack_from
from time import monotonic

import pytest

from kafka_quota_proxy.config.model import Enforcement, ProxyConfig, QuotaRule
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.runtime import isolation
from kafka_quota_proxy.proxy.server import sweeps
from kafka_quota_proxy.proxy.server.clients import transport_pair as transport_pair_module
from kafka_quota_proxy.proxy.server.clients.connection import ClientConnection
from kafka_quota_proxy.proxy.server.clients.transport_pair import TransportPair
from kafka_quota_proxy.proxy.server.server import Server
from kafka_quota_proxy.proxy.session.session import Session
from tests.support.builds import interpreted_only
from tests.support.frames import (
    fetch_request,
    fetch_response,
    framed,
    other_request,
    other_response,
    produce_request,
    produce_response,
)
from tests.support.stub_broker import (
    Client,
    StubBroker,
    client_of,
    correlation_id,
    eventually,
    listener_to,
    on_uvloop,
    running,
    stub_broker,
    upstream_of,
)

pytestmark = pytest.mark.usefixtures("relay")


@pytest.fixture(autouse=True)
def _sweeps_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "_SWEEP_EVERY_S", 0.05)


# 10,400 B in a window of 10 s are 4 % over this quota. The throttle time for them is 0.4 s.
LIMITED = QuotaRule(client_id="etl", producer_byte_rate=1_000.0, consumer_byte_rate=1_000.0)
OVER_BYTES = 10_400
WAIT_MS = 400
MIB = 1024 * 1024
# The most bytes that a transport buffers: a full buffer (64 KiB) and one more read (256 KiB).
MOST_BUFFERED_BYTES = 64 * 1024 + 256 * 1024


def config_to(
    broker: StubBroker, *quotas: QuotaRule, enforcement: Enforcement = Enforcement.RESPOND, **limits: int | None
) -> ProxyConfig:
    listener = replace(listener_to(broker.address), **limits)  # type: ignore[arg-type] # all of them are numbers
    return ProxyConfig(listeners=(listener,), quotas=quotas, enforcement=enforcement)


def answers(frame: bytes) -> bytes:
    api_key: int = unpack_from(">h", frame, 4)[0]
    if api_key == 0:
        return produce_response(correlation_id(frame))
    return fetch_response(correlation_id(frame)) if api_key == 1 else other_response(correlation_id(frame))


def only_connection(server: Server) -> ClientConnection:
    (connection,) = server.listeners[0].connections
    return connection


def produce_bucket(server: Server, broker: StubBroker) -> Bucket:
    (bucket,) = upstream_of(server, broker.address).quotas.manager(QuotaKind.PRODUCE)
    return bucket


def disconnects(server: Server) -> dict[str, int]:
    return server.listeners[0].counters.disconnects


async def ended(client: Client) -> bool:
    """Return whether the proxy has closed the connection without more bytes and without a reset."""
    async with asyncio.timeout(10):
        return await client.reader.read() == b""


# -- the start of a connection --


@on_uvloop
async def test_the_broker_is_not_dialled_before_the_first_whole_header() -> None:
    request = other_request()
    async with stub_broker(answers) as broker, running(config_to(broker)) as server:
        await eventually(lambda: len(broker.connections) == 1)  # the probe of the proxy
        async with client_of(server) as silent, client_of(server) as client:
            await silent.send(request[:9])
            await client.send(request[:9])
            async with client_of(server) as proof:  # shows that the proxy has read the bytes above
                await proof.ask(request)
            assert len(broker.connections) == 2

            assert await client.ask(request[9:]) == other_response()

            assert len(broker.connections) == 3


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (bytes.fromhex("16 03 01 02 00 01 00 01 fc 03 03"), "tls_on_plaintext"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "http_on_kafka"),
        (b"\xff\xff\xff\xff", "negative_frame_size"),
        (b"\x7f\xff\xff\xff", "frame_too_large"),
        (framed(b"\0\3\0\5"), "frame_too_small"),
    ],
)
@on_uvloop
async def test_malformed_bytes_close_one_connection_and_are_counted(data: bytes, reason: str) -> None:
    async with stub_broker(answers) as broker, running(config_to(broker)) as server:
        async with client_of(server) as good, client_of(server) as bad:
            await good.ask(other_request(1))
            assert await bad.ask(data) == b""

            assert await good.ask(other_request(2)) == other_response(2)

        counters = server.listeners[0].counters
        assert counters.protocol_errors == {reason: 1}
        assert counters.disconnects["protocol_error"] == 1
        assert len(broker.in_use) == 1


@on_uvloop
async def test_repeated_malformed_bytes_are_logged_once_per_cause(caplog: pytest.LogCaptureFixture) -> None:
    async with stub_broker(answers) as broker, running(config_to(broker)) as server:
        for data in (b"\xff\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n") * 5:
            async with client_of(server) as bad:
                assert await bad.ask(data) == b""

        assert server.listeners[0].counters.disconnects == {"protocol_error": 10}
    assert ["HTTP" in line.message for line in caplog.records] == [False, True]
    fields = vars(caplog.records[1])
    assert [fields[key] for key in ("event", "listener", "cause")] == ["connection_closed", "clients", "http_on_kafka"]
    assert fields["address"].startswith("127.0.0.1:")


# -- throttling --


@on_uvloop
async def test_throttle_time_is_not_charged_as_broker_time() -> None:
    timed = replace(LIMITED, limits={**LIMITED.limits, "request_percentage": 1e6})
    async with (
        stub_broker(answers) as broker,
        running(config_to(broker, timed)) as server,
        client_of(server) as client,
    ):
        await client.ask(other_request(0))
        await client.ask(produce_request(1, size_bytes=OVER_BYTES))
        await client.ask(other_request(2))

        (bucket,) = upstream_of(server, broker.address).quotas.manager(QuotaKind.REQUEST)
        assert bucket.usage.amount < WAIT_MS * 1_000_000 / 5 / 2  # a fifth of the throttle time would be charged


@on_uvloop
async def test_a_muted_client_that_sends_ahead_is_not_read_and_loses_nothing() -> None:
    ahead = [produce_request(number, size_bytes=MIB) for number in range(2, 34)]
    async with (
        stub_broker(answers) as broker,
        running(config_to(broker, QuotaRule(client_id="etl", producer_byte_rate=float(4 * MIB)))) as server,
        client_of(server) as client,
    ):
        # This is 4.5 % over 4 MiB/s for 10 s.
        first = await client.ask(produce_request(1, size_bytes=int(41.8 * MIB)))
        muted_ms = unpack_from(">i", first, len(first) - 4)[0]
        assert 400 <= muted_ms <= 500
        sending = asyncio.ensure_future(client.send(*ahead))
        await eventually(lambda: only_connection(server).paused_socket() is not None)

        kept_bytes = len(only_connection(server).session._requests._data)
        assert len(broker.in_use[0].requests) == 1
        sending.cancel()

    assert kept_bytes <= MOST_BUFFERED_BYTES


@on_uvloop
async def test_a_client_that_waits_for_a_response_needs_no_timer() -> None:
    """A timer each millisecond for a thousand such clients would use a whole processor."""
    polls: list[bytes] = []

    def script(frame: bytes) -> bytes:
        if unpack_from(">h", frame, 4)[0] != 1:
            return answers(frame)
        polls.append(frame)
        return b""

    async with (
        stub_broker(script) as broker,
        running(config_to(broker, LIMITED)) as server,
        client_of(server) as client,
    ):
        await client.ask(produce_request(1, size_bytes=OVER_BYTES))
        await client.send(fetch_request(2), fetch_request(3))
        # Now the throttle time is over, and the second fetch waits for the response to the first.
        await eventually(lambda: polls)
        connection = only_connection(server)
        assert connection.session.state.blocked_by is not None

        assert connection._timer is None

        broker.in_use[0].transport.write(fetch_response(2))
        await client.answer()
        await eventually(lambda: len(polls) == 2)


@pytest.mark.kafka
@on_uvloop
async def test_a_delayed_answer_does_not_wait_for_a_mute_that_ends_later() -> None:
    asked: list[bytes] = []

    def script(frame: bytes) -> bytes:
        asked.append(frame)
        return b""

    async with (
        stub_broker(script) as broker,
        running(config_to(broker, LIMITED, enforcement=Enforcement.DELAY)) as server,
        client_of(server) as client,
        client_of(server) as other,
    ):
        flood = produce_request(2, acks=0, size_bytes=5_000)
        await client.send(fetch_request(1), flood[:1_000])
        await eventually(lambda: broker.in_use and broker.in_use[0].received)
        await other.send(produce_request(1, acks=0, size_bytes=9_000))
        await eventually(lambda: len(asked) == 2)
        # The throttle time for this is 4 s, because both clients share the quota.
        await client.send(flood[1_000:], other_request(3))
        await eventually(
            lambda: any(one.session.state.blocked_by is not None for one in server.listeners[0].connections)
        )
        sent_s = monotonic()

        broker.in_use[0].transport.write(fetch_response(1, size_bytes=10_100))  # a throttle time of 0.1 s

        assert await client.answer() == fetch_response(1, size_bytes=10_100)
        assert 0.09 < monotonic() - sent_s < 2.0  # the loop's clock may lag behind by some milliseconds


# -- back-pressure --


@on_uvloop
async def test_latency_of_a_throttled_answer_is_counted_at_once() -> None:
    async with (
        stub_broker(answers) as broker,
        running(config_to(broker, LIMITED)) as server,
        client_of(server) as client,
    ):
        await client.ask(produce_request(1))
        await client.ask(produce_request(2, size_bytes=OVER_BYTES))

        assert {key: sum(counts) for key, counts in server.listeners[0].latency.counts.items()} == {0: 2}


def two_buffers_of(connection: ClientConnection) -> tuple[int, int]:
    """Return the sizes of two buffers: bytes for the client, and bytes for the broker."""
    assert connection.transports.client is not None
    assert connection.transports.broker is not None
    return connection.transports.client.get_write_buffer_size(), connection.transports.broker.get_write_buffer_size()


@on_uvloop
async def test_a_client_that_does_not_read_stalls_its_broker_and_loses_nothing() -> None:
    size_bytes = 24 * MIB
    async with stub_broker() as broker, running(config_to(broker)) as server, client_of(server) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(fetch_request())
        await eventually(lambda: broker.in_use and broker.in_use[0].requests)
        response = fetch_response(size_bytes=size_bytes)
        sender = broker.in_use[0].transport
        sender.write(response)
        connection = only_connection(server)
        await eventually(lambda: not connection.transports.reads_broker)

        to_client, _ = two_buffers_of(connection)
        assert to_client <= MOST_BUFFERED_BYTES
        assert sender.get_write_buffer_size() > size_bytes / 2  # most of the response is still at the broker

        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert await client.answer() == response


@on_uvloop
async def test_a_broker_that_does_not_read_stalls_its_client_and_loses_nothing() -> None:
    size_bytes = 24 * MIB
    request = produce_request(2, size_bytes=size_bytes)
    async with stub_broker(answers) as broker, running(config_to(broker)) as server, client_of(server) as client:
        await client.ask(other_request(1))
        broker.in_use[0].transport.pause_reading()
        client.writer.write(request)
        connection = only_connection(server)
        await eventually(lambda: not connection.transports.reads_client)

        _, to_broker = two_buffers_of(connection)
        assert to_broker <= MOST_BUFFERED_BYTES
        assert client.writer.transport.get_write_buffer_size() > size_bytes / 2

        broker.in_use[0].transport.resume_reading()
        assert await client.answer() == produce_response(2)
        assert broker.in_use[0].requests[1] == request


# -- the end of a connection --


@on_uvloop
async def test_a_client_that_closed_its_side_still_gets_its_answers() -> None:
    held: list[bytes] = []

    def hold(frame: bytes) -> bytes:
        held.append(frame)
        return b""

    async with stub_broker(hold) as broker, running(config_to(broker)) as server, client_of(server) as client:
        await client.send(other_request(1), other_request(2))
        client.writer.write_eof()
        await eventually(lambda: len(held) == 2 and only_connection(server)._has_client_ended)
        broker.in_use[0].transport.write(answers(held[0]) + answers(held[1]))

        assert [await client.answer() for _ in range(3)] == [other_response(1), other_response(2), b""]
        assert disconnects(server) == {"client_closed": 1}
        await eventually(lambda: broker.in_use[0].is_lost)


@pytest.mark.parametrize("with_reset", [False, True])
@on_uvloop
async def test_request_of_a_muted_client_that_has_gone_is_not_forwarded(with_reset: bool) -> None:
    async with (
        stub_broker(answers) as broker,
        running(config_to(broker, LIMITED)) as server,
        client_of(server) as client,
    ):
        await client.ask(produce_request(1, size_bytes=30_000))  # it is muted for 20 s
        await client.send(produce_request(2))
        await eventually(lambda: only_connection(server).state.blocked_by is not None)
        if with_reset:
            client.reset()
        else:
            client.writer.close()

        await eventually(lambda: not server.listeners[0].connections)
        assert server.listeners[0].counters.abandoned == 1
        assert len(broker.in_use[0].requests) == 1
        assert produce_bucket(server, broker).usage.requests == 1


@on_uvloop
async def test_waiting_records_without_an_answer_are_written_though_their_client_has_gone() -> None:
    async with (
        stub_broker(lambda _: b"") as broker,
        running(config_to(broker, LIMITED)) as server,
        client_of(server) as client,
    ):
        await client.send(produce_request(1, acks=0, size_bytes=12_000), produce_request(2, acks=0))
        await eventually(lambda: broker.in_use and broker.in_use[0].requests)
        await eventually(lambda: only_connection(server).state.blocked_by is not None)
        client.writer.close()
        await asyncio.sleep(0.3)  # longer than a sweep takes to find clients that have gone
        assert len(server.listeners[0].connections) == 1

        await eventually(lambda: len(broker.in_use[0].requests) == 2)
        await eventually(lambda: not server.listeners[0].connections)
        assert server.listeners[0].counters.abandoned == 0


@on_uvloop
async def test_a_client_that_still_awaits_an_answer_keeps_its_place() -> None:
    async with (
        stub_broker(lambda _: b"") as broker,
        running(config_to(broker, LIMITED)) as server,
        client_of(server) as client,
    ):
        await client.send(produce_request(1), produce_request(2, acks=0, size_bytes=30_000), produce_request(3, acks=0))
        await eventually(lambda: only_connection(server).state.blocked_by is not None)
        client.writer.write_eof()
        await asyncio.sleep(0.3)

        assert server.listeners[0].open_count.total == 1


@pytest.mark.parametrize(("with_reset", "cause"), [(False, "client_closed"), (True, "client_lost")])
@on_uvloop
async def test_when_the_client_leaves_its_connection_to_the_broker_is_closed(with_reset: bool, cause: str) -> None:
    async with stub_broker(answers) as broker, running(config_to(broker)) as server, client_of(server) as client:
        await client.ask(other_request())
        if with_reset:
            client.reset()
        else:
            client.writer.close()

        await eventually(lambda: broker.in_use[0].is_lost)
        assert disconnects(server) == {cause: 1}
        assert not server.listeners[0].connections


@pytest.mark.parametrize(("with_reset", "cause"), [(False, "upstream_closed"), (True, "upstream_lost")])
@on_uvloop
async def test_when_the_broker_leaves_its_client_is_closed(with_reset: bool, cause: str) -> None:
    async with stub_broker(answers) as broker, running(config_to(broker)) as server, client_of(server) as client:
        await client.ask(other_request())
        sender = broker.in_use[0].transport
        if with_reset:
            linger = b"\1\0\0\0\0\0\0\0"
            sender.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            sender.abort()
        else:
            sender.close()

        assert await client.answer() == b""
        assert disconnects(server) == {cause: 1}


@on_uvloop
async def test_responses_before_the_broker_closed_reach_the_client() -> None:
    response = fetch_response(size_bytes=4 * MIB)
    async with (
        stub_broker(lambda _: response) as broker,
        running(config_to(broker)) as server,
        client_of(server) as client,
    ):
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(fetch_request())
        await eventually(lambda: broker.in_use and broker.in_use[0].requests)
        broker.in_use[0].transport.close()
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]

        assert await client.answer() == response
        assert await client.answer() == b""


@interpreted_only
@pytest.mark.parametrize("user_timeout", [getattr(socket, "TCP_USER_TIMEOUT", 0), 0], ids=["as built", "without Linux"])
@on_uvloop
async def test_a_client_that_never_reads_does_not_keep_a_closed_connection(
    user_timeout: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport_pair_module, "_USER_TIMEOUT", user_timeout)
    monkeypatch.setattr(transport_pair_module, "_LINGER_MS", 500)
    response = fetch_response(size_bytes=20 * MIB)
    async with (
        stub_broker(lambda _: response) as broker,
        running(config_to(broker)) as server,
        client_of(server) as client,
    ):
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(fetch_request())
        await eventually(
            lambda: server.listeners[0].connections and not only_connection(server).transports.reads_broker
        )
        connection = only_connection(server)
        transport = connection.transports.client
        assert transport is not None

        connection.close("shutdown")

        await eventually(lambda: not transport.get_write_buffer_size())
        broker.in_use[0].transport.abort()


# -- the quota on the number of connections --


@on_uvloop
async def test_a_client_or_broker_that_vanishes_is_found_by_keepalive() -> None:
    async with stub_broker(answers) as broker, running(config_to(broker)) as server, client_of(server) as client:
        await client.ask(other_request())

        transports = only_connection(server).transports
        for transport in (transports.client, transports.broker):
            assert transport is not None
            sock = transport.get_extra_info("socket")
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            assert [sock.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [30, 5, 3]


def test_connection_that_has_ended_needs_no_keepalive() -> None:
    ended = socket.socket()
    ended.close()  # any option is refused from now on

    transports = TransportPair()
    transports.connect_client(asyncio.Transport({"socket": ended}))

    assert transports.client is not None


@interpreted_only
@on_uvloop
async def test_an_error_in_a_turn_ends_its_connection_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with stub_broker(answers) as broker, running(config_to(broker)) as server, client_of(server) as client:
        assert await client.ask(other_request(1)) == other_response(1)
        connection = only_connection(server)
        monkeypatch.setattr(isolation, "internal_errors", {})
        monkeypatch.setattr(Session, "resume", lambda *_, **__: 1 / 0)

        connection.take_turn()

        assert connection.is_closed
        assert isolation.internal_errors == {"server.connection": 1}
