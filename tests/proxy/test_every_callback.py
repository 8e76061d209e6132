"""Tests that the proxy keeps serving other clients if any callback, task or thread raises an exception.

``tests.support.faults`` finds these functions, in the source and in busy proxies of several kinds. Each of them is made
to raise once. A test fails if no proxy calls a function, and then ``PARTS`` needs a part that does.
"""

import asyncio
import http.client
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from struct import unpack_from
from time import monotonic
from types import FrameType
from typing import Final, cast

import pytest

from kafka_quota_proxy.config.fair_call_queue import FairCallQueue
from kafka_quota_proxy.config.load import load
from kafka_quota_proxy.config.model import (
    DEFAULT,
    Address,
    Admin,
    AdminClient,
    IpRule,
    KafkaSettings,
    Listener,
    ProxyConfig,
    ProxyProtocol,
    QuotaRule,
    QuotasFromBroker,
    Replication,
    Store,
    UsageFiles,
    UsageLog,
)
from kafka_quota_proxy.config.principals import Principals
from kafka_quota_proxy.config.quota_record import Setting
from kafka_quota_proxy.config.security import ClientTls, UpstreamTls
from kafka_quota_proxy.protocol.client_quotas import Alteration, AlterRequest, DescribeRequest, Op
from kafka_quota_proxy.proxy.admin.http_server import AdminServer
from kafka_quota_proxy.proxy.fair_queue.dispatcher import Dispatcher
from kafka_quota_proxy.proxy.kafka_client.loop_thread import LoopThread
from kafka_quota_proxy.proxy.rules.broker.broker_rules import ParsedQuotas
from kafka_quota_proxy.proxy.rules.sqlite import directory_store
from kafka_quota_proxy.proxy.runtime import isolation
from kafka_quota_proxy.proxy.runtime.isolation import internal_errors
from kafka_quota_proxy.proxy.server.clients.connection import ClientConnection
from kafka_quota_proxy.proxy.server.config_reloader import Reloader
from kafka_quota_proxy.proxy.server.server import Server
from tests.proxy.replication.test_config_watcher import Script
from tests.proxy.rules.topic.test_topic_reader import Cluster
from tests.proxy.server.brokers.test_cluster_listeners import client_at, cluster_of, front_of, port_of
from tests.proxy.server.brokers.test_finder import Node
from tests.support.builds import interpreted_only
from tests.support.certificates import Authority
from tests.support.faults import Entry, Faults, expected
from tests.support.frames import (
    fetch_request,
    fetch_response,
    metadata_request,
    other_request,
    other_response,
    produce_request,
    produce_response,
)
from tests.support.quota_broker import QuotaBroker
from tests.support.quota_request_frames import write_alter_request, write_describe_request
from tests.support.reloads import Reloads
from tests.support.stub_broker import (
    Client,
    StubBroker,
    client_of,
    correlation_id,
    deaf_broker,
    eventually,
    free_port,
    free_ports,
    listener_to,
    on_uvloop,
    stub_broker,
)
from tests.support.topic_cluster import SETTINGS
from tests.support.topic_log import TopicLog, made_up

pytestmark = pytest.mark.usefixtures("has_faults")

# How long the proxy may still work after the end of a part.
SETTLES_S: Final = 0.03
TOKEN: Final = "a-token-of-nobody-that-is-long-enough"  # noqa: S105
P: Final = "producer_byte_rate"
BIG_BYTES: Final = 6 * 1024 * 1024
# Response sizes. One of them fills both the socket buffer of the system and the buffer of the transport.
PARTING_BYTES: Final = (100_000, 120_000, 140_000, 160_000, 180_000)
# The tests shorten these periods and timeouts of the proxy to some milliseconds.
HURRIED: Final = {
    "kafka_quota_proxy.proxy.runtime.isolation._AGAIN_S": 0.02,
    "kafka_quota_proxy.proxy.server.sweeps._SWEEP_EVERY_S": 0.02,
    "kafka_quota_proxy.proxy.server.loop_lag.PERIOD_S": 0.02,
    "kafka_quota_proxy.proxy.server.clients.connection_limits._CHECK_AGAIN_MS": 20,
    "kafka_quota_proxy.proxy.server.clients.connection_limits._SLOT_MS": 20,
    "kafka_quota_proxy.proxy.server.sweeps._EXPIRE_EVERY_S": 0.02,
    "kafka_quota_proxy.proxy.server.brokers.dialer._PROBE_EVERY_S": 0.1,
    "kafka_quota_proxy.proxy.server.brokers.dialer._PROBES_PER_S": 1_000.0,
    "kafka_quota_proxy.proxy.server.brokers.dialer._DIAL_TIMEOUT_S": 0.3,
    "kafka_quota_proxy.proxy.server.brokers.probe._TIMEOUT_S": 0.3,
    "kafka_quota_proxy.proxy.server.brokers.probe._REFUSAL_S": 0.02,
    "kafka_quota_proxy.proxy.server.brokers.cluster_listeners._QUERY_EVERY_S": 0.02,
    "kafka_quota_proxy.proxy.server.tls.contexts._POLL_S": 0.02,
    "kafka_quota_proxy.proxy.server.tls.transport.HANDSHAKE_TIMEOUT_S": 0.5,
    "kafka_quota_proxy.proxy.server.clients.half_close._WAIT_S": 0.3,  # a loaded machine still sends within it
    "kafka_quota_proxy.proxy.server.clients.orphaned_connections.LONGEST_S": 0.05,
    "kafka_quota_proxy.proxy.admin.admin_port._WAIT_TIMEOUT_S": 0.1,
    "kafka_quota_proxy.proxy.admin.admin_port._DEADLINE_S": 0.3,
    "kafka_quota_proxy.proxy.admin.admin_port._REST_S": 0.02,
    "kafka_quota_proxy.proxy.admin.status.event_streams.EVERY_S": 0.02,
    "kafka_quota_proxy.proxy.admin.status.event_streams._BUFFER_BYTES": 4_096,
    "kafka_quota_proxy.proxy.server.clients.acceptor._PAUSE_S": 0.02,
    "kafka_quota_proxy.proxy.replication.config_watcher._LEAST_BETWEEN_S": 0.02,
    "kafka_quota_proxy.proxy.server.brokers.cluster_listeners._RETRY_S": 0.02,
    "kafka_quota_proxy.proxy.rules.topic.topic_reader._BACKOFF_S": 0.01,
    "kafka_quota_proxy.proxy.rules.topic.topic_reader._MOST_BACKOFF_S": 0.01,
    "kafka_quota_proxy.proxy.rules.topic.topic_reader._CHECK_S": 0.02,
    "kafka_quota_proxy.proxy.rules.topic.topic_source._CHECK_S": 0.02,
    "kafka_quota_proxy.proxy.rules.keeper._AGAIN_S": 0.02,
}


def answers(frame: bytes) -> bytes:
    api_key: int = unpack_from(">h", frame, 4)[0]
    if api_key == 0:
        return produce_response(correlation_id(frame)) if unpack_from(">h", frame, 8) else b""
    if api_key == 1:
        if b"unanswered" in frame:
            return b""
        asked = re.search(rb"parting-([0-9]+)", frame)
        return fetch_response(correlation_id(frame), size_bytes=int(asked[1]) if asked else BIG_BYTES)
    return other_response(correlation_id(frame))


@dataclass
class Bed:
    """A proxy under test, and its ``witness``, a client without faults that sends requests all the time."""

    server: Server
    path: Path
    admin: AdminServer | None = None
    quota_broker: QuotaBroker = field(default_factory=QuotaBroker)
    topic: TopicLog | Cluster | None = None
    node: Node = field(default_factory=Node)
    restarts: StubBroker | None = None  # the broker that answers from ``node``
    begun: set[Entry] = field(default_factory=set)  # entries that were called before the first client
    parting_bytes: int = PARTING_BYTES[0]
    names: int = 0
    requests: int = 0
    wrong: list[bytes] = field(default_factory=list)
    witness: ClientConnection | None = None

    def spares(self, frame: FrameType) -> bool:
        """Return whether a stack frame belongs to the connection of the witness."""
        if self.witness is None:
            return False
        one = frame.f_locals.get("self")
        return self.witness in (one, getattr(one, "_owner", None), frame.f_locals.get("connection"))

    def listener(self, name: str) -> int:
        return [port.name for port in self.server.listeners].index(name)

    @asynccontextmanager
    async def client(self, listener: str, *, tls: bool = False) -> AsyncIterator[Client]:
        context = ssl.create_default_context(cafile=str(self.path / "ca.pem")) if tls else None
        async with client_of(self.server, port=self.listener(listener), tls=context) as client:
            yield client

    def rules(self) -> tuple[QuotaRule, ...]:
        return self.server.quota_manager.rules.quotas

    def new_name(self) -> str:
        self.names += 1
        return f"client-{self.names}"

    async def witness_on(self) -> None:
        """Send requests all the time as the witness, and note every wrong response."""
        async with self.client("plain") as client:
            await client.ask(other_request(0, client_id="witness"))
            (self.witness,) = self.server.listeners[self.listener("plain")].connections
            while True:
                self.requests += 1
                number = self.requests
                answer = await client.ask(produce_request(number, client_id="witness"))
                if answer != produce_response(number):
                    self.wrong.append(answer)
                await asyncio.sleep(0.002)

    def has_nothing_left(self, sockets: int) -> bool:
        """Return whether everything that belonged to closed connections is released."""
        ports = self.server.listeners
        return (
            {connection for port in ports for connection in port.connections} == {self.witness}
            and sum(port.open_count.total for port in ports) == 1
            and sum(port.broker_count for port in ports) == 1
            and not any(len(port.refused_sockets) or len(port.orphans) for port in ports)
            and not any(one.pending for one in self.server.handshakes)
            and not self.server._dialer._dials
            and not any(one.in_flight or len(one.queue) for one in self.dispatchers())
            and open_sockets() <= sockets
        )

    def dispatchers(self) -> list[Dispatcher]:
        return [queue.dispatcher for _, queue in self.server.brokers.queues_by_name]

    def left(self) -> str:
        """Describe the connections, queues and dials that remain, for the message of a failure."""
        ports = [
            (
                port.name,
                len(port.connections),
                port.open_count.total,
                port.broker_count,
                len(port.refused_sockets),
            )
            for port in self.server.listeners
            if port.connections or port.open_count.total or port.broker_count or len(port.refused_sockets)
        ]
        handshakes = [len(one.pending) for one in self.server.handshakes]
        queues = [(one.in_flight, len(one.queue)) for one in self.dispatchers()]
        return f"{ports=} {handshakes=} {queues=} dials={self.server._dialer._dials}"


def open_sockets() -> int:
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor may be closed by now, as that of the directory is
            count += descriptor.is_socket()
    return count


Part = Callable[[Bed], Coroutine[None, None, None]]
PARTS: Final[dict[str, list[Part]]] = {"whole": [], "broker": [], "topic": [], "store": []}


def part(*kinds: str) -> Callable[[Part], Part]:
    """Add a function to the ``PARTS`` that are run with these kinds of proxies."""

    def add(function: Part) -> Part:
        for kind in kinds:
            PARTS[kind].append(function)
        return function

    return add


@part(*PARTS)
async def idle(_: Bed) -> None:
    await asyncio.sleep(0.1)


@part("whole")
async def closes_its_side(bed: Bed) -> None:
    async with bed.client("plain") as client:
        assert await client.ask(other_request()) == other_response()
        client.writer.write_eof()
        assert await client.answer() == b""


@part("whole")
async def resets(bed: Bed) -> None:
    async with bed.client("plain") as client:
        assert await client.ask(other_request()) == other_response()
        client.reset()
        await asyncio.sleep(0.01)


@part("whole")
async def waits_for_its_throttle_time(bed: Bed) -> None:
    name = bed.new_name()
    async with bed.client("plain") as client:
        assert await client.ask(produce_request(1, client_id=name, size_bytes=1_050)) != b""
        assert await client.ask(produce_request(2, client_id=name)) != b""


@part("whole")
async def reads_slowly(bed: Bed) -> None:
    async with bed.client("plain") as client:
        await client.send(fetch_request(client_id="reader"))
        await asyncio.sleep(0.05)
        assert len(await client.answer()) == 4 + BIG_BYTES


@part("whole")
async def sends_what_the_broker_reads_slowly(bed: Bed) -> None:
    async with bed.client("slow") as client:
        assert await client.ask(produce_request(client_id="writer", size_bytes=BIG_BYTES)) == produce_response()


@part("whole")
async def comes_with_tls(bed: Bed) -> None:
    async with bed.client("tls", tls=True) as client:
        await client.send(fetch_request(client_id="reader"))
        await asyncio.sleep(0.05)
        assert len(await client.answer()) == 4 + BIG_BYTES
        client.writer.close()
        await asyncio.sleep(0.02)


@part("whole")
async def sends_slowly_with_tls(bed: Bed) -> None:
    async with bed.client("slow tls", tls=True) as client:
        assert await client.ask(produce_request(client_id="writer", size_bytes=BIG_BYTES)) == produce_response()


@part("whole")
async def leaves_behind_what_is_throttled_with_tls(bed: Bed) -> None:
    name = bed.new_name()
    async with bed.client("tls", tls=True) as client:
        assert await client.ask(produce_request(1, client_id=name, size_bytes=1_050)) != b""
        client.writer.write(produce_request(2, client_id=name))
        client.writer.close()
        await asyncio.sleep(0.15)


@part("whole")
async def shakes_no_hands(bed: Bed) -> None:
    async with bed.client("tls") as silent, bed.client("tls") as rude:
        assert await rude.ask(other_request()) == b""
        assert await silent.answer() == b""


@part("whole")
async def is_refused(bed: Bed) -> None:
    async with bed.client("refused") as client:
        assert await client.ask(other_request()) == b""


@part("whole")
async def is_not_answered(bed: Bed) -> None:
    async with bed.client("deaf") as client:
        assert await client.ask(other_request()) == b""


@part("whole")
async def is_bid_to_leave(bed: Bed) -> None:
    # Begin with the size that filled the transport the last time.
    for size_bytes in sorted(PARTING_BYTES, key=lambda size_bytes: size_bytes != bed.parting_bytes):
        async with bed.client("parting") as client:
            assert await client.ask(other_request()) == other_response()
            (connection,) = bed.server.listeners[bed.listener("parting")].connections
            transports = (client.writer.transport, cast(asyncio.Transport, connection.transports.client))
            for transport, option in zip(transports, (socket.SO_RCVBUF, socket.SO_SNDBUF), strict=True):
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, option, 4_096)
            client.writer.transport.pause_reading()  # type: ignore[attr-defined] # the transport of uvloop has this method
            await client.send(fetch_request(client_id=f"parting-{size_bytes}"))
            await asyncio.sleep(0.05)
            is_full = connection.state.is_client_full and connection.session.is_idle
            connection.drain("max_connection_age")
            client.writer.transport.resume_reading()  # type: ignore[attr-defined]
            assert len(await client.answer()) == 4 + size_bytes
            assert await client.ask(other_request(2)) == b""
            await asyncio.sleep(0.35)
            if is_full:
                bed.parting_bytes = size_bytes
                return


@part("whole")
async def leaves_before_it_is_answered(bed: Bed) -> None:
    for listener in ("slow", "plain"):
        async with bed.client(listener) as client:
            await client.send(fetch_request(client_id="unanswered"))
            await asyncio.sleep(0.015)
            client.reset()
            await asyncio.sleep(0.1)


@part("whole")
async def says_nothing(bed: Bed) -> None:
    async with bed.client("impatient") as client:
        assert await client.answer() == b""


@part("whole")
async def queues_up(bed: Bed) -> None:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(bed.client("queue")) for _ in range(3)]
        answers = await asyncio.gather(*(client.ask(produce_request(client_id="queued")) for client in clients))
        assert answers == [produce_response()] * 3


@part("whole")
async def keeps_a_slot(bed: Bed) -> None:
    frame = produce_request(client_id="queued", size_bytes=600_000)
    async with bed.client("queue") as client:
        await client.send(frame[:500_000])
        await asyncio.sleep(0.08)
        assert await client.ask(frame[500_000:]) == produce_response()


@part("whole")
async def comes_by_a_balancer(bed: Bed) -> None:
    async with bed.client("proxied") as client:
        client.writer.write(b"PROXY TCP4 8.8.8.8 127.0.0.1 1 2\r\n")
        assert await client.ask(other_request()) == other_response()


@part("whole")
async def comes_too_often(bed: Bed) -> None:
    async with AsyncExitStack() as stack:
        for name in ("rated", "proxied"):
            for _ in range(6):
                client = await stack.enter_async_context(bed.client(name))
                client.writer.write(b"PROXY TCP4 9.9.9.9 127.0.0.1 1 2\r\n" if name == "proxied" else b"")
        await asyncio.sleep(0.3)
    async with bed.client("rated") as client:
        assert await client.ask(other_request()) == other_response()


@part("whole")
async def asks_a_cluster(bed: Bed) -> None:
    listener = bed.server.config.listeners[bed.listener("cluster")]
    async with client_at(listener.bind.port) as client, client_at(port_of(listener, 1)) as other:
        assert await client.ask(metadata_request()) != b""
        assert await other.ask(other_request(2, api_key=11)) == other_response(2)


@part("whole", "store")
async def changes_quotas(bed: Bed) -> None:
    entities = ((("client-id", bed.new_name()),), (("ip", "192.0.2.7"),))
    keys = ("producer_byte_rate", "connection_creation_rate")
    async with bed.client("plain") as client:
        for entity, key in zip(entities, keys, strict=True):
            for limit in (5.0, -1.0, -1.0, None):
                request = AlterRequest(1, 7, (Alteration(entity, (Op(key, limit),)),), False)
                assert await client.ask(write_alter_request(request, client_id="admin")) != b""
        assert await client.ask(write_describe_request(DescribeRequest(1, 9, (), False), client_id="admin")) != b""
        await asyncio.sleep(0.1)


@part("whole")
async def writes_a_quota_late(bed: Bed) -> None:
    limits = (Op("producer_byte_rate", 5.0),)
    request = AlterRequest(1, 7, (Alteration((("client-id", bed.new_name()),), limits),), False)
    async with bed.client("plain") as client:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(directory_store, "_WRITE_S", 0.0)
            assert await client.ask(write_alter_request(request, client_id="admin")) != b""
        await asyncio.sleep(0.1)


@part("whole")
async def asks_the_admin_port(bed: Bed) -> None:
    assert bed.admin is not None
    port = bed.admin.port
    body = '{"changes": [{"entity": {"client-id": "etl"}, "limits": {"producer_byte_rate": 5}}]}'
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}

    def ask(method: str, path: str) -> int:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            client.request(method, path, body if method == "POST" else None, headers)
            answer = client.getresponse()
            answer.read()
        except http.client.HTTPException:
            return 0
        else:
            return answer.status
        finally:
            client.close()

    asked = [*(("GET", path) for path in ("/livez", "/metrics", "/quotas")), ("POST", "/quotas")]
    assert [await asyncio.to_thread(ask, method, path) for method, path in asked] == [200] * 4


@part("whole")
async def watches_the_status_page(bed: Bed) -> None:
    assert bed.admin is not None
    with socket.socket() as page:
        # With small buffers, a page that does not read fills them with a few events.
        page.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        page.connect(("127.0.0.1", bed.admin.port))
        page.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=page, limit=4_096)
        writer.write(b"GET /clients/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asyncio.sleep(0.5)
        async with asyncio.timeout(3):
            read_bytes = 0
            while read_bytes < 60_000:
                read_bytes += len(await reader.read(4_096)) or 60_000
        writer.close()
        await asyncio.sleep(0.1)


@part("whole")
async def keeps_the_admin_port_waiting(bed: Bed) -> None:
    assert bed.admin is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", bed.admin.port)
    await reader.read()
    writer.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", bed.admin.port)
    writer.write(b"POST /quotas HTTP/1.1\r\nContent-Length: 9\r\nContent-Type: application/json\r\n"
                 b"Authorization: Bearer " + TOKEN.encode() + b"\r\n\r\n")  # fmt: skip
    await reader.read()
    writer.close()


@part("whole")
async def writes_the_file(bed: Bed) -> None:
    file = bed.path / "config.yaml"
    file.write_text(file.read_text() + "\n")
    bed.server.apply(bed.server.config)
    await asyncio.sleep(0.15)


@part("whole")
async def holds_too_much(bed: Bed) -> None:
    config = bed.server.config
    bed.server.rules.config = replace(config, max_buffered_bytes=1_000)
    port = bed.server.listeners[bed.listener("plain")]
    async with bed.client("plain") as client:
        await client.send(fetch_request(client_id="reader"))
        with suppress(TimeoutError):
            await eventually(lambda: len(port.connections) == 2, timeout_s=1)
            await eventually(lambda: len(port.connections) == 1, timeout_s=2)
    bed.server.rules.config = config


@part("whole")
async def comes_to_a_broker_that_restarts(bed: Bed) -> None:
    assert bed.restarts is not None
    upstream = next(one for one in bed.server.brokers.upstreams if one.address == bed.restarts.address)
    await bed.restarts.stop()
    await eventually(lambda: upstream.fault is not None, timeout_s=1)
    bed.node.brokers = {1: Address(host=bed.new_name(), port=bed.restarts.address.port)}
    await bed.restarts.start()
    await eventually(lambda: upstream.fault is None, timeout_s=1)
    async with bed.client("restarts") as client:
        assert await client.ask(metadata_request()) != b""
        await asyncio.sleep(0.05)


@part("broker")
async def asks_in_a_thread_with_a_loop(_: Bed) -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    async def end() -> None: ...

    def ask() -> int:
        thread = LoopThread("asks", on_close=end)
        try:
            return thread.run(work())
        finally:
            thread.close()

    assert await asyncio.to_thread(ask) == 7


@part("broker")
async def changes_a_brokers_quotas(bed: Bed) -> None:
    async with bed.client("plain") as client:
        request = AlterRequest(1, 7, (Alteration((("client-id", bed.new_name()),), (Op(P, 5.0),)),), False)
        assert await client.ask(write_alter_request(request, client_id="admin")) != b""


@part("topic", "store")
async def writes_a_topic(bed: Bed) -> None:
    name = bed.new_name()
    record = Setting(user=name, key=P, value=1.0)
    if isinstance(bed.topic, Cluster):
        bed.topic.append(record)
    elif bed.topic is not None:
        bed.topic.write(record)
    await eventually(lambda: name in {rule.user for rule in bed.rules()}, timeout_s=3)


class SlowBroker:
    """A broker that waits before it reads a request and responds."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.address = Address(host="127.0.0.1", port=free_port())
        self._tls = tls
        self._connections = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Address]:
        server = await asyncio.start_server(self._serve, self.address.host, self.address.port, ssl=self._tls)
        async with server:
            yield self.address
            await eventually(lambda: not self._connections)  # the event loop cannot be closed before them

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        with suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            while True:
                size = await reader.readexactly(4)
                await asyncio.sleep(0.03)
                frame = size + await reader.readexactly(unpack_from(">i", size)[0])
                writer.write(produce_response(correlation_id(frame)))
        writer.transport.abort()
        self._connections -= 1


@asynccontextmanager
async def bed_of(
    kind: str, path: Path, patched: pytest.MonkeyPatch, faults: Faults, *, settles: bool = True
) -> AsyncIterator[Bed]:
    """Run a proxy of a kind and its witness, and yield them."""
    async with AsyncExitStack() as stack:
        make = {"whole": whole, "broker": of_broker, "topic": of_topic, "store": of_store}[kind]
        bed, companion = await make(stack, path, patched)
        serving = asyncio.ensure_future(bed.server.run(companion=companion))
        try:
            await eventually(lambda: bed.server.is_listening or serving.done())
            assert not serving.done(), serving.exception()
            if settles:
                await idle(bed)
            bed.begun = set(faults.seen)
            faults.spares = bed.spares
            witness = asyncio.ensure_future(bed.witness_on())
            await eventually(lambda: bed.requests or witness.done())
            yield bed
            witness.cancel()
            await asyncio.wait([witness])
        finally:
            bed.server.stop()
            bed.server.stop()
            await serving


def at_port(listener: Listener, port: int) -> Listener:
    """Return the listener at another port. A listener for a cluster also uses the next ports."""
    cluster = listener.cluster and replace(listener.cluster, first_port=port + 1, last_port=port + 10)
    return replace(listener, bind=replace(listener.bind, port=port), cluster=cluster)


Made = tuple[Bed, Callable[[], Coroutine[None, None, None]] | None]
WITNESS: Final = QuotaRule(client_id="witness", producer_byte_rate=1e12)


async def whole(stack: AsyncExitStack, path: Path, patched: pytest.MonkeyPatch) -> Made:
    """Return a proxy with a configuration file, every kind of listener, and nearly every feature."""
    patched.setattr("kafka_quota_proxy.proxy.replication.config_watcher._connect", Script().connect)
    certificate, key = str(path / "proxy.pem"), str(path / "proxy.key")
    if not (path / "ca.pem").exists():
        authority = Authority("all")
        authority.save(path, "ca")
        authority.issue("proxy", hosts=["127.0.0.1"]).save(path, "proxy")
    brokers_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    brokers_tls.load_cert_chain(certificate, key)
    client_tls, upstream_tls = ClientTls(certificate=certificate, key=key), UpstreamTls(ca=str(path / "ca.pem"))
    broker = (await stack.enter_async_context(stub_broker(answers))).address
    node = Node()
    restarts = await stack.enter_async_context(stub_broker(node.script))
    slow = await stack.enter_async_context(SlowBroker().serving())
    slow_tls = await stack.enter_async_context(SlowBroker(brokers_tls).serving())
    queue = await stack.enter_async_context(SlowBroker().serving())
    cluster = await stack.enter_async_context(cluster_of(1))
    stranger = await stack.enter_async_context(cluster_of(1))
    stranger.answers_strangers = False
    deaf = stack.enter_context(deaf_broker())
    listeners: tuple[Listener, ...] = (
        listener_to(broker, name="plain"),
        listener_to(slow, name="slow"),
        replace(listener_to(broker, name="tls"), client_tls=client_tls),
        replace(listener_to(slow_tls, name="slow tls"), client_tls=client_tls, upstream_tls=upstream_tls),
        listener_to(Address(host="127.0.0.1", port=free_port()), name="refused"),
        listener_to(deaf, name="deaf"),
        listener_to(broker, name="parting"),
        replace(listener_to(broker, name="impatient"), login_timeout_ms=1),
        replace(listener_to(queue, name="queue"), fair_call_queue=FairCallQueue(max_in_flight=1)),
        replace(listener_to(broker, name="proxied"), proxy_protocol=ProxyProtocol()),
        replace(listener_to(broker, name="rated"), max_connection_creation_rate=5),
        listener_to(restarts.address, name="restarts"),
        front_of(cluster, name="cluster"),
        front_of(stranger, name="strangers"),
    )
    first = free_ports(20 * len(listeners))
    listeners = tuple(at_port(one, first + 20 * number) for number, one in enumerate(listeners))
    (path / "token").write_text(f"{TOKEN}\n")
    unlimited = [
        QuotaRule(client_id=name, producer_byte_rate=1e12, consumer_byte_rate=1e12)
        for name in (
            "writer",
            "queued",
            "reader",
            "unanswered",
            *(f"parting-{size_bytes}" for size_bytes in PARTING_BYTES),
        )
    ]
    asked = AdminClient(bootstrap_servers=(broker,))
    config = ProxyConfig(
        listeners=listeners,
        kafka=KafkaSettings(quota_window_num=2),
        quotas=(QuotaRule(client_id=DEFAULT, producer_byte_rate=1_000.0), WITNESS, *unlimited),
        ip_quotas=(IpRule(ip="9.9.9.9", connection_creation_rate=5.0),),
        principals=Principals(admins=frozenset({"ANONYMOUS"})),
        store=Store(directory=str(path / "store"), audit_log=str(path / "audit.log"), changes_per_second=None),
        replication=Replication(from_cluster=True, poll_interval_ms=20, admin_client=asked),
        usage_log=UsageLog(interval_ms=20, to=UsageFiles(directory=str(path / "usage"))),
    )
    file = path / "config.yaml"
    file.write_text(f"listeners: [{{name: a, bind: '127.0.0.1:1', upstream: '{broker}'}}]\n")
    reloader = Reloader(file, load(file), on_loaded=lambda _: asyncio.sleep(0), poll_s=0.02, settle_s=0.01)
    server = Server(config)
    admin = Admin(bind=Address(host="127.0.0.1", port=0), quotas_token_file=str(path / "token"))
    admin_server = stack.enter_context(AdminServer(admin, server, Reloads()))
    return Bed(server, path, admin_server, node=node, restarts=restarts), reloader.watch


class BrokerReader:
    """Stands in for the reader of a broker's quotas, without a network."""

    def __init__(self, broker: QuotaBroker) -> None:
        self.server = Address(host="k", port=1)
        self._broker = broker

    def read(self) -> ParsedQuotas:
        return ParsedQuotas(dict(self._broker.rules), ())

    def close(self) -> None:
        pass


async def of_broker(stack: AsyncExitStack, path: Path, patched: pytest.MonkeyPatch) -> Made:
    quotas = QuotaBroker()
    patched.setattr("kafka_quota_proxy.proxy.rules.broker.broker_source._connect", lambda *_: BrokerReader(quotas))
    broker = await stack.enter_async_context(stub_broker(quotas.script))
    config = ProxyConfig(
        listeners=(listener_to(broker.address, name="plain"),),
        quotas=(WITNESS,),
        quotas_from=QuotasFromBroker(every_ms=20),
        testing=True,
    )
    return Bed(Server(config), path, quota_broker=quotas), None


async def of_topic(stack: AsyncExitStack, path: Path, patched: pytest.MonkeyPatch) -> Made:
    cluster = Cluster()
    broker = await stack.enter_async_context(stub_broker(answers))

    def client(**settings: object) -> object:
        return cluster.client(**{**settings, "client_id": "me"})

    patched.setattr("kafka_quota_proxy.proxy.rules.topic.topic_reader.AIOKafkaClient", client)
    config = ProxyConfig(
        listeners=(listener_to(broker.address, name="plain"),), quotas=(WITNESS,), quotas_from=SETTINGS
    )
    return Bed(Server(config), path, topic=cluster), None


async def of_store(stack: AsyncExitStack, path: Path, patched: pytest.MonkeyPatch) -> Made:
    """Return a proxy with a store in a topic, and a copy of it on disk."""
    log = made_up(patched)
    broker = await stack.enter_async_context(stub_broker(answers))
    config = ProxyConfig(
        listeners=(listener_to(broker.address, name="plain"),),
        quotas=(WITNESS,),
        principals=Principals(admins=frozenset({"ANONYMOUS"})),
        store=Store(topic=SETTINGS, directory=str(path / "last-known"), changes_per_second=None),
    )
    return Bed(Server(config), path, topic=log), None


# A fault in one of these functions is logged, and ends the start of the proxy.
OPENINGS: Final = {"QuotaManager.read", "ChangeLog.open", "RuleDatabase.open", "Server.run"}


@dataclass
class Seen:
    """The entries that were called in a proxy of a kind.

    Attributes:
        begun: The entries that were called as the proxy started.
        parts: For each entry that was called later, the parts that called it. The quickest part comes first.
        all: The entries of both, and those that were called as the proxy stopped.
    """

    begun: set[Entry]
    parts: dict[Entry, list[Part]]
    all: set[Entry]


_seen: dict[str, Seen] = {}


async def seen_at(kind: str, path: Path, patched: pytest.MonkeyPatch) -> Seen:
    """Run all parts with a proxy of a kind, and return the entries that were called."""
    if kind not in _seen:
        with Faults() as faults:
            async with bed_of(kind, path, patched, faults) as bed:
                took = []
                for one in PARTS[kind]:
                    faults.seen.clear()
                    started_s = monotonic()
                    await one(bed)
                    await asyncio.sleep(SETTLES_S)
                    took.append((monotonic() - started_s, one, set(faults.seen)))
                assert bed.wrong == []
        parts: dict[Entry, list[Part]] = {}
        for _, one, entries in sorted(took, key=itemgetter(0)):
            for entry in entries:
                parts.setdefault(entry, []).append(one)
        _seen[kind] = Seen(bed.begun, parts, bed.begun | parts.keys() | faults.seen)
        assert not internal_errors
    return _seen[kind]


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in HURRIED.items():
        monkeypatch.setattr(name, value)
    monkeypatch.setattr("kafka_quota_proxy.proxy.server.brokers.host_lookups._addresses_of", lambda _: ("7.7.7.7",))
    internal_errors.clear()
    isolation._logged.clear()


# Errors that a client may raise if a fault affects it. uvloop raises RuntimeError for a closed transport.
OF_A_FAULT: Final = (OSError, AssertionError, RuntimeError, asyncio.IncompleteReadError)


class Watcher:
    """Injects one fault at a time, and checks its effects."""

    def __init__(self, bed: Bed, faults: Faults, caplog: pytest.LogCaptureFixture) -> None:
        self._bed = bed
        self._faults = faults
        self._caplog = caplog
        self._sockets = 0
        self.failures: list[str] = []

    async def begin(self) -> None:
        """Count the sockets before the first fault."""
        counts = []
        async with self._without_probes():
            for _ in range(20):
                counts.append(open_sockets())
                await asyncio.sleep(0.005)
        self._sockets = min(counts)

    @asynccontextmanager
    async def _without_probes(self) -> AsyncIterator[None]:
        """Let no probe of a broker have a socket meanwhile. On a loaded machine, one of them always has."""
        prober = self._bed.server.brokers.prober
        upstreams, prober._upstreams = prober._upstreams, tuple
        await eventually(lambda: all(attempt.done() for attempt in prober._attempts.values()))
        yield
        prober._upstreams = upstreams

    async def check(self, parts: dict[Entry, list[Part]], others: list[Part]) -> None:
        """Let each entry raise in a part that calls it, and check that the entry is called again later."""
        for entry, own in parts.items():
            internal_errors.clear()
            self._caplog.clear()
            self._faults.arm(entry)
            for one in (*own * 2, *others):
                with suppress(*OF_A_FAULT):
                    await self._run(one)
                if self._faults.armed is None:
                    break
            await self.look(entry)
        self._faults.arm(None)
        for entry, own in parts.items():
            for one in (*own * 2, *others):
                if entry in self._faults.seen:
                    break
                try:
                    await self._run(one)
                except OF_A_FAULT as error:
                    self.failures.append(f"{entry}: afterwards {one.__name__} goes wrong: {error!r}")
            else:
                self.failures.append(f"{entry}: it is not called any more")

    async def _run(self, one: Part) -> None:
        async with asyncio.timeout(8):
            await one(self._bed)
        await asyncio.sleep(SETTLES_S)

    async def look(self, entry: Entry) -> None:
        """Check that the proxy works after a fault, and note every failure."""
        bed, before = self._bed, self._bed.requests
        faults: list[str] = []
        if self._faults.armed is not None:
            faults.append("it was not called again")
            self._faults.armed = None
        with suppress(TimeoutError):
            await eventually(lambda: bed.requests > before + 3, timeout_s=5)
        if bed.requests <= before + 3:
            faults.append("the witness is not served")
        with suppress(TimeoutError):
            await eventually(lambda: self._tracebacks(), timeout_s=0.1 if entry.is_of_client else 2)
        counts = (sum(internal_errors.values()), len(self._tracebacks()))
        if counts != (1, 1) and not (entry.is_of_client and counts == (0, 0)):
            faults.append(f"counted {internal_errors}, logged {self._tracebacks()}")
        self._caplog.clear()
        async with self._without_probes():
            with suppress(TimeoutError):
                await eventually(lambda: bed.has_nothing_left(self._sockets), timeout_s=3)
            if not bed.has_nothing_left(self._sockets):
                faults.append(f"left: {bed.left()}, {open_sockets()} sockets of {self._sockets}")
                self._sockets = max(self._sockets, open_sockets())
        if bed.wrong:
            faults.append(f"the witness got {bed.wrong}")
            bed.wrong.clear()
        self.failures += [f"{entry}: {fault}" for fault in faults]

    def _tracebacks(self) -> list[str]:
        return [record.getMessage() for record in self._caplog.records if record.exc_info]


@pytest.mark.long
@interpreted_only
def test_every_callback_task_and_thread_in_the_source_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        seen: set[Entry] = set()
        for kind in PARTS:
            (tmp_path / kind).mkdir()
            seen |= (await seen_at(kind, tmp_path / kind, monkeypatch)).all
        in_files = {(entry.file, name) for entry in seen for name in (entry.name, entry.name.split(".")[-1])}
        names = {name for _, name in in_files}
        missing = {one for one in expected() if one not in in_files and not (one[0] == "" and one[1] in names)}
        assert missing == set()

    on_uvloop(test)()


@pytest.mark.parametrize(
    ("kind", "turn", "turns"),
    [
        pytest.param("whole", 0, 2, marks=pytest.mark.long),
        pytest.param("whole", 1, 2, marks=pytest.mark.long),
        *(pytest.param(kind, 0, 1, marks=pytest.mark.kafka) for kind in ("broker", "topic", "store")),
    ],
)
def test_fault_in_a_callback_ends_only_its_own_work(
    kind: str, turn: int, turns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        whole = await seen_at("whole", tmp_path, monkeypatch)
        others = set() if kind == "whole" else whole.parts.keys()
        seen = await seen_at(kind, tmp_path, monkeypatch)
        with Faults() as faults:
            async with bed_of(kind, tmp_path, monkeypatch, faults) as bed:
                watcher = Watcher(bed, faults, caplog)
                await watcher.begin()
                entries = sorted(seen.parts.keys() - others)[turn::turns]
                await watcher.check({entry: seen.parts[entry] for entry in entries}, PARTS[kind])
        assert "\n".join(watcher.failures) == ""

    on_uvloop(test)()


@pytest.mark.kafka
@pytest.mark.parametrize("kind", ["whole", "broker", "topic", "store"])
def test_fault_at_the_start_of_a_task_restarts_it(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        whole = await seen_at("whole", tmp_path, monkeypatch)
        others = set() if kind == "whole" else whole.begun
        seen = await seen_at(kind, tmp_path, monkeypatch)
        failures = []
        for entry in sorted(seen.begun - seen.parts.keys() - others):
            if entry.name in OPENINGS:
                continue
            internal_errors.clear()
            caplog.clear()
            with Faults() as faults:
                faults.arm(entry)
                async with bed_of(kind, tmp_path, monkeypatch, faults, settles=False) as bed:
                    with suppress(TimeoutError):
                        await eventually(lambda: faults.armed is None, timeout_s=2)
                    watcher = Watcher(bed, faults, caplog)
                    await watcher.begin()
                    await watcher.look(entry)
            failures += watcher.failures
        assert "\n".join(failures) == ""

    on_uvloop(test)()
