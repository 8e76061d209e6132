"""Simulates clients that queue for the few slots of a broker, and writes their requests."""

from __future__ import annotations

from struct import pack, unpack_from

from kafka_quota_proxy.config.fair_call_queue import CostWeights, FairCallQueue
from kafka_quota_proxy.config.model import Enforcement, QuotaRule
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.proxy.fair_queue.concurrency import FixedLimit
from kafka_quota_proxy.proxy.fair_queue.connection_queue import ListenerQueue
from kafka_quota_proxy.proxy.fair_queue.cost import CompletedRequest, WeightedTimeCost
from kafka_quota_proxy.proxy.fair_queue.decay import DecayScheduler
from kafka_quota_proxy.proxy.fair_queue.dispatcher import Dispatcher
from kafka_quota_proxy.proxy.fair_queue.queue_stats import QueueStats
from kafka_quota_proxy.proxy.fair_queue.settings import identities
from kafka_quota_proxy.proxy.fair_queue.slot_timeouts import SlotTimeouts
from tests.simulation.wire.greeting import sasl_handshake
from tests.simulation.wire.transfer import FetchPartition, FetchTopic, PartitionData, TopicData, fetch, produce
from tests.support.frames import framed, other_request, request_header
from tests.support.wire import START_MS, Wire


class OneEach(WeightedTimeCost):
    """A cost provider for which each request costs 1 when it completes."""

    def __init__(self) -> None:
        super().__init__(CostWeights())
        self.done: list[CompletedRequest] = []

    def on_completion(self, done: CompletedRequest) -> int:
        self.done.append(done)
        return 1


class CountingLimit(FixedLimit):
    """A concurrency limit that counts the observations that it could learn from."""

    learns = True
    observed = 0

    def observe(self, rtt_us: int, in_flight: int, now_ms: int) -> None:
        self.observed += 1


class Crowd:
    """The clients of one broker, and the queue in front of the broker."""

    def __init__(
        self,
        *rules: QuotaRule,
        slots: int = 1,
        clients: int = 3,
        capacity: int = 1_024,
        is_backoff_enabled: bool = False,
        enforcement: Enforcement = Enforcement.RESPOND,
    ) -> None:
        self.cost = OneEach()
        self.timeouts = SlotTimeouts()
        self.stats = QueueStats()
        self.settings = FairCallQueue(capacity=capacity, backoff_enable=is_backoff_enabled)
        self.dispatcher = Dispatcher(self.settings, FixedLimit(slots))
        self.scheduler = DecayScheduler(self.settings, now_ms=START_MS)
        self.line = ListenerQueue(
            self.scheduler,
            self.dispatcher,
            self.cost,
            identity=identities(self.settings),
            stats=self.stats,
            timeouts=self.timeouts,
            wake=lambda: None,
        )
        self.wires = [Wire(*rules, line=self.line, enforcement=enforcement) for _ in range(clients)]

    def granted(self) -> list[Wire]:
        return [ticket.owner for ticket in self.dispatcher.granted() if isinstance(ticket.owner, Wire)]

    def wait(self, wait_ms: int) -> None:
        for wire in self.wires:
            wire.wait(wait_ms)
        self.timeouts.park_due(self.wires[0].now_ms * 1_000)


def heartbeat(correlation_id: int = 1) -> bytes:
    return grouped(ApiKey.HEARTBEAT, correlation_id)


def grouped(api_key: ApiKey, correlation_id: int = 1) -> bytes:
    return framed(request_header(api_key, 0, correlation_id, "etl", is_flexible=False) + bytes(20))


def handshake(correlation_id: int) -> bytes:
    """Return a SaslHandshake v1 request."""
    return sasl_handshake.request(correlation_id, 1, "etl")


def handshake_response(correlation_id: int) -> bytes:
    return sasl_handshake.response(correlation_id, 1)


def costs(crowd: Crowd) -> list[float]:
    return [one.raw for one in crowd.scheduler.top(10)]


def full(crowd: Crowd) -> None:
    """Let all clients but the last send a request, so that the slots and the queue are full."""
    for number, wire in enumerate(crowd.wires[:-1]):
        wire.client(other_request(number))


def whole_produce(correlation_id: int, *, acks: int = 1, size_bytes: int = 100) -> bytes:
    """Return a Produce v7 request for one partition, with ``size_bytes`` zeros in place of its records."""
    topics = [TopicData("t", [PartitionData(0, bytes(size_bytes))])]
    return produce.request(correlation_id, 7, "etl", topics, acks)


def idempotent_produce(
    correlation_id: int, sequence: int, *, producer_id: int = 7, epoch: int = 0, partition: int = 0, more_bytes: int = 0
) -> bytes:
    """Return a Produce v7 request with one batch of an idempotent producer."""
    batch = pack(">qiib", 0, 49 + more_bytes, 0, 2) + bytes(26) + pack(">qhii", producer_id, epoch, sequence, 1)
    topics = [TopicData("t", [PartitionData(partition, batch + bytes(more_bytes))])]
    return produce.request(correlation_id, 7, "etl", topics)


def answered(data: bytes) -> list[tuple[int, int, int]]:
    """Return correlation id, error code and throttle time in ms of each response to ``whole_produce`` in ``data``."""
    found = []
    while data:
        (size_bytes,) = unpack_from(">i", data)
        frame, data = data[: 4 + size_bytes], data[4 + size_bytes :]
        correlation_id, *_, error_code = unpack_from(">iih1siih", frame, 4)
        found.append((correlation_id, error_code, unpack_from(">i", frame, len(frame) - 4)[0]))
    return found


def refused() -> tuple[Crowd, Wire]:
    """Return a crowd with a full queue, and its last client. The Produce request of that client was refused."""
    crowd = Crowd(clients=50, capacity=40, is_backoff_enabled=True)
    full(crowd)
    last = crowd.wires[-1]
    assert last.client(whole_produce(1)) == b""
    assert answered(last.to_client()) == [(1, 19, 500)]
    return crowd, last


def whole_fetch(correlation_id: int) -> bytes:
    """Return a Fetch v4 request for one partition."""
    topics = [FetchTopic("t", [FetchPartition(0, 0, 1)])]
    return fetch.request(correlation_id, 4, "etl", topics, max_bytes=1_000)
