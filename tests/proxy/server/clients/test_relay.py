"""Tests the relay on real sockets: what passes, what is charged, and who is hurt by a lost or broken connection."""

import asyncio
import ssl
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic, monotonic_ns
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafka_quota_proxy.config.model import Address, Cluster, ProxyConfig, QuotaRule, RelayKind
from kafka_quota_proxy.config.security import ClientTls
from kafka_quota_proxy.proxy.server import server as server_module
from kafka_quota_proxy.proxy.server.clients import relay as relay_module
from kafka_quota_proxy.proxy.server.clients.relay import Relay, RelayEnd
from kafka_quota_proxy.proxy.server.clients.relay_sockets import Sockets, make_sockets
from kafka_quota_proxy.proxy.server.server import Server
from tests.proxy.server.clients.test_connection import WAIT_MS, answers, disconnects
from tests.proxy.server.clients.test_queued_connections import ONE_SLOT
from tests.support.builds import interpreted_only
from tests.support.certificates import Authority
from tests.support.frames import (
    fetch_request,
    fetch_response,
    framed,
    other_request,
    other_response,
    produce_request,
    produce_response,
)
from tests.support.python_sockets import PythonSockets
from tests.support.stub_broker import (
    Client,
    StubBroker,
    client_of,
    correlation_id,
    eventually,
    free_ports,
    listener_to,
    on_uvloop,
    running,
    stub_broker,
    upstream_of,
)

# Shorter than a head, than a read after a long body, than what is spliced; and longer than the relay's buffer.
SIZES = (1_000, 5_000, 40_000, 200, 700_000, 40_000, 300, 1_500_000, 20_000)


def config_to(broker: StubBroker, *quotas: QuotaRule) -> ProxyConfig:
    return ProxyConfig(listeners=(listener_to(broker.address),), quotas=quotas)


@pytest.fixture(autouse=True)
def _with_relay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "make_sockets", lambda: make_sockets() or PythonSockets())


def relayed(server: Server) -> int:
    """Return how many sockets the relay reads."""
    relay = server.listeners[0].relay
    assert relay is not None
    return len(relay.ends)


def patterned(size_bytes: int, seed: int) -> bytes:
    return bytes((seed + at * 7 + at // 256) % 256 for at in range(1_000)) * (size_bytes // 1_000 + 1)


def long_request(number: int, size_bytes: int) -> bytes:
    return framed(fetch_request(number)[4:] + patterned(size_bytes, number)[:size_bytes])


def long_response(number: int, size_bytes: int) -> bytes:
    return framed(fetch_response(number)[4:] + patterned(size_bytes, number + 1)[:size_bytes])


class Limited:
    """Sockets that write at most ``most`` bytes at once, and to which some peers are lost in the middle of a splice."""

    def __init__(self, sockets: Sockets, most: int) -> None:
        self._sockets = sockets
        self._most = most
        self.loses_next = False

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the sockets have
        return getattr(self._sockets, name)

    def write(self, fd: int, begin: int, end: int, *, has_more: bool) -> int:
        return self._sockets.write(fd, begin, min(end, begin + self._most), has_more=has_more)

    def splice_out(self, fd: int, count: int) -> int:
        if self.loses_next:
            self.loses_next = False
            raise ConnectionResetError
        return self._sockets.splice_out(fd, min(count, self._most))


def limit(server: Server, most: int) -> Limited:
    """Let the relay use limited sockets from the next connection on."""
    relay = server.listeners[0].relay
    assert relay is not None
    relay.sockets = limited = Limited(relay.sockets, most)
    return limited


@interpreted_only
def test_busy_sockets_share_the_event_loop_with_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    relay = Relay(cast("Sockets", SimpleNamespace(ready=lambda: [*range(5)])))
    now_ns = [0]
    runs: list[list[int]] = [[]]
    monkeypatch.setattr(relay_module, "monotonic_ns", lambda: now_ns[0])

    def read(fd: int) -> None:
        now_ns[0] += 1_000_000
        runs[-1].append(fd)

    for fd in range(5):
        relay.ends[fd] = cast("RelayEnd", SimpleNamespace(read=partial(read, fd)))
    for _ in range(4):
        relay.run()
        runs.append([])

    assert runs[:4] == [[0, 1], [2, 3], [4], [0, 1]]


@pytest.mark.parametrize("most", [50, 30_000, 10_000_000])
@on_uvloop
async def test_requests_and_responses_of_all_sizes_pass_byte_for_byte_on_many_connections(most: int) -> None:
    def script(frame: bytes) -> bytes:
        number = correlation_id(frame)
        return long_response(number, SIZES[-1 - number % len(SIZES)])

    requests = [long_request(number, SIZES[number % len(SIZES)]) for number in range(3 * len(SIZES))]
    async with stub_broker(script) as broker, running(config_to(broker)) as server, AsyncExitStack() as stack:
        limit(server, most)
        clients = [await stack.enter_async_context(client_of(server)) for _ in range(4)]

        async def run(client: Client) -> None:
            sending = asyncio.ensure_future(client.send(*requests))
            for number in range(len(requests)):
                assert await client.answer() == long_response(number, SIZES[-1 - number % len(SIZES)])
            await sending

        await asyncio.gather(*(run(client) for client in clients))
        assert relayed(server) == 2 * len(clients)
        assert [connection.requests for connection in broker.in_use] == [requests] * len(clients)


@on_uvloop
async def test_a_spliced_body_is_charged_as_a_whole_and_its_client_waits() -> None:
    size_bytes = 1_040_000  # 4 % above the quota of a window of 10 s
    async with (
        stub_broker(lambda frame: fetch_response(correlation_id(frame), size_bytes=size_bytes)) as broker,
        running(config_to(broker, QuotaRule(client_id="etl", consumer_byte_rate=100_000.0))) as server,
        client_of(server) as client,
    ):
        answer = await client.ask(fetch_request(1))
        began = monotonic()

        assert answer == fetch_response(1, size_bytes=size_bytes, throttle_time_ms=WAIT_MS)
        (bucket,) = upstream_of(server, broker.address).quotas.fetch
        assert bucket.usage.amount == size_bytes
        await client.ask(other_request(2))
        assert monotonic() - began > 0.9 * WAIT_MS / 1_000
        assert relayed(server) == 2


@pytest.mark.parametrize("first_bytes", [6, 400_000])  # a part of a head, and of a body that is spliced
@on_uvloop
async def test_a_client_that_sends_a_request_slowly_is_not_idle(first_bytes: int) -> None:
    request = long_request(2, 900_000)
    async with stub_broker(answers) as broker:
        listener = replace(listener_to(broker.address), idle_timeout_ms=60_000)
        async with running(ProxyConfig(listeners=(listener,))) as server, client_of(server) as client:
            assert await client.ask(other_request(1)) == other_response(1)
            (connection,) = server.listeners[0].connections
            now_ms, sent_bytes = monotonic_ns() // 1_000_000, 0

            def arrived() -> tuple[int, int]:
                return connection.state.request_left, connection.session.held_bytes

            for check in range(1, 3):
                before = arrived()
                await client.send(request[sent_bytes : sent_bytes + first_bytes])
                sent_bytes += first_bytes
                await eventually(lambda before=before: arrived() != before)  # type: ignore[misc]
                connection.time_checks.check(now_ms + check * 70_000)

            assert not connection.is_closed
            assert not connection.drain_cause
            assert await client.ask(request[sent_bytes:]) == fetch_response(2)
            assert relayed(server) == 2


@pytest.mark.parametrize("lost", ["client", "upstream"])
@on_uvloop
async def test_a_peer_lost_within_a_spliced_body_ends_only_its_own_connection(lost: str) -> None:
    request, response = long_request(1, 300 if lost == "client" else 500_000), long_response(1, 500_000)
    async with (
        stub_broker(lambda frame: response if frame == request else answers(frame)) as broker,
        running(config_to(broker)) as server,
    ):
        limited = limit(server, 10_000_000)
        async with client_of(server) as other, client_of(server) as client:
            assert await other.ask(other_request(7)) == other_response(7)
            assert await client.ask(other_request(7)) == other_response(7)
            limited.loses_next = True
            await client.send(request)
            await eventually(lambda: disconnects(server) == {f"{lost}_lost": 1})

            assert relayed(server) == 2
            requests = [long_request(number, 400_000) for number in range(2, 12)]
            for number, one in enumerate(requests, 2):
                assert await other.ask(one) == fetch_response(number)
            assert broker.in_use[0].requests[1:] == requests


@pytest.mark.usefixtures("has_faults")
@pytest.mark.parametrize("side", ["client", "broker"])
@on_uvloop
async def test_an_internal_error_ends_only_the_connection_it_happens_in(side: str) -> None:
    async with (
        stub_broker(answers) as broker,
        running(config_to(broker)) as server,
        client_of(server) as other,
        client_of(server) as client,
    ):
        assert await other.ask(other_request(7)) == other_response(7)
        assert await client.ask(produce_request(7)) == produce_response(7)
        listener = server.listeners[0]
        frames, counts = listener.counters.frames, listener.latency.counts
        if side == "client":
            listener.counters.frames = []
        else:
            listener.latency.counts = {0: []}

        await client.send(produce_request(8))
        await eventually(lambda: disconnects(server) == {"internal_error": 1})
        listener.counters.frames, listener.latency.counts = frames, counts

        assert await other.ask(fetch_request(9)) == fetch_response(9)
        assert relayed(server) == 2


@pytest.mark.parametrize("how", ["none", "python", "tls", "addresses", "queue"])
@on_uvloop
async def test_what_the_relay_cannot_serve_stays_with_the_event_loop(how: str, tmp_path: Path) -> None:
    authority = Authority("all")
    context = ssl.create_default_context(cafile=authority.save(tmp_path, "ca"))
    certificate, key = authority.issue("proxy", hosts=["127.0.0.1"]).save(tmp_path, "proxy")
    async with stub_broker(answers) as broker:
        first = free_ports(2)
        bind = Address(host="127.0.0.1", port=first)
        cluster = Cluster(
            bootstrap_servers=(broker.address,), advertised_host="h", first_port=first + 1, last_port=first + 1
        )
        changes: dict[str, dict[str, Any]] = {
            "none": {},
            "python": {"relay": RelayKind.PYTHON},
            "tls": {"client_tls": ClientTls(certificate=certificate, key=key)},
            "addresses": {"bind": bind, "upstream": None, "cluster": cluster},
            "queue": {"fair_call_queue": ONE_SLOT},
        }
        (listener,) = config_to(broker).listeners
        config = ProxyConfig(listeners=(replace(listener, **changes[how]),))
        tls = context if how == "tls" else None
        async with running(config) as server, client_of(server, tls=tls) as client:
            assert await client.ask(produce_request(7)) == produce_response(7)
            assert relayed(server) == (2 if how == "none" else 0)
