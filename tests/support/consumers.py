"""A model of consumers, of the proxy's sessions and of a broker, with a simulated clock.

The sessions are the proxy's own. The broker reads as Kafka does: one whole batch at least, and then as many bytes as
the fetch asks for, which may end within a batch. A consumer throws the piece of a batch away, and reads it again. A
broker without data keeps a fetch until data comes, or for its ``max_wait_ms``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from math import inf
from random import Random
from struct import Struct, pack, unpack_from
from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import KafkaSettings, ProxyConfig, QuotaRule, Shaping
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.session import Session
from kafka_quota_proxy.proxy.session.client_account import ConnectionContext, Policy
from kafka_quota_proxy.proxy.session.counters import Counters
from tests.support.frames import fetch_request, framed

# What Java and librdkafka ask for by default.
_PARTITION_MAX_BYTES: Final = 1 << 20
# A partition in a response v11: index, error, high watermark, last stable and first offset, aborted transactions,
# preferred replica, length of the records.
_PARTITION: Final = Struct(">ihqqqiii")
_BATCH_FRONT_BYTES: Final = 12
_START_MS: Final = 86_400_000.0
# The client takes this long from a response to the next fetch.
_WORKS_MS: Final = 0.2
_MAX_WAIT_AT: Final = 21  # in ``fetch_request`` v11
_THROTTLE_AT: Final = 8


class Partition:
    """A partition with ``end`` batches. They have the sizes ``sizes``, again and again."""

    def __init__(self, *sizes: int, end: float = inf) -> None:
        self.sizes = sizes
        self.end = end

    def size(self, number: int) -> int:
        """Return the size of the batch with this number."""
        return self.sizes[number % len(self.sizes)]


class Read(NamedTuple):
    """The bytes of whole batches that a consumer has read at a time."""

    at_ms: float
    whole_bytes: int


class Consumer:
    """A consumer with one connection, which fetches from its partitions in turn, again and again.

    Attributes:
        reads: Each response with records.
        told_ms: The throttle times that it was told.
        held_ms: For how long the proxy has held each of its fetches.
        empty: How many fetches the proxy has answered without records.
        charged_bytes: The bytes of all responses.
    """

    def __init__(self, group: Consumers, partitions: Sequence[Partition], *, has_session: bool) -> None:
        self.reads: list[Read] = []
        self.told_ms: list[int] = []
        self.held_ms: list[float] = []
        self.empty = self.charged_bytes = 0
        self._group = group
        self._partitions = list(partitions)
        self._next = dict.fromkeys(partitions, 0)
        self._has_session = has_session
        self._session = Session(group.context, owner=self)
        self._correlation_id = 0
        self._asked_bytes = 0
        self._is_at_broker = False
        self._sent_ms = self._timer_ms = 0.0

    def fetch(self) -> None:
        """Send the next fetch."""
        self._correlation_id += 1
        self._sent_ms = self._group.now_ms
        request = fetch_request(self._correlation_id)
        self._call(lambda now_ms: self._session.receive_from_client(request, now_ms=now_ms))

    def take_turn(self) -> None:
        """Check again whether the fetch may pass."""
        self._call(lambda now_ms: self._session.resume(now_ms=now_ms))

    def _call(self, step: Callable[[int], None]) -> None:
        """Call the session, and do what it asks for."""
        group, state = self._group, self._session.state
        now_ms = int(group.now_ms)
        state.now_ns = int(group.now_ms * 1_000_000)
        step(now_ms)
        if state.to_broker:
            request = b"".join(state.to_broker)
            state.to_broker.clear()
            self.held_ms.append(group.now_ms - self._sent_ms)
            self._reach_broker(request)
        if state.to_client:
            response = b"".join(state.to_client)
            state.to_client.clear()
            self._receive(response)
        wake_at_ms = self._session.wake_at_ms
        if wake_at_ms > now_ms and not group.now_ms < self._timer_ms <= wake_at_ms:
            self._timer_ms = wake_at_ms
            group.call_at(wake_at_ms, self._wake)

    def _wake(self) -> None:
        if self._group.now_ms >= self._timer_ms:
            self._timer_ms = 0.0
            self._call(lambda now_ms: self._session.handle_timer(now_ms=now_ms))

    def _receive(self, response: bytes) -> None:
        throttle_time_ms: int = unpack_from(">i", response, _THROTTLE_AT)[0]
        if throttle_time_ms:
            self.told_ms.append(throttle_time_ms)
        if self._is_at_broker:
            self._is_at_broker = False
        else:
            self.empty += 1
        self._group.call_at(self._group.now_ms + _WORKS_MS + throttle_time_ms, self.fetch)

    # -- at the broker --

    def _reach_broker(self, request: bytes) -> None:
        max_wait_ms, _, self._asked_bytes = unpack_from(">iii", request, _MAX_WAIT_AT)
        self._is_at_broker = True
        group, correlation_id = self._group, self._correlation_id
        answer_ms = group.answer_ms()
        if not self.has_data:
            group.parked[self] = None
            answer_ms = max(answer_ms, max_wait_ms)
        group.call_at(group.now_ms + answer_ms, lambda: self.answer(correlation_id))

    @property
    def has_data(self) -> bool:
        """Whether the broker has data for the next fetch."""
        return any(self._next[partition] < partition.end for partition in self._partitions)

    def answer(self, correlation_id: int = 0) -> None:
        """Let the broker answer the fetch, unless it has answered the one with this id."""
        if not self._is_at_broker or correlation_id not in (0, self._correlation_id):
            return
        self._group.parked.pop(self, None)
        partitions, whole_bytes = self._read()
        if whole_bytes:
            self.reads.append(Read(self._group.now_ms, whole_bytes))
        head = pack(">iihiih", self._correlation_id, 0, 0, 0, 1, 1) + b"t"
        response = framed(head + pack(">i", len(partitions)) + b"".join(partitions))
        self.charged_bytes += len(response)
        self._call(lambda now_ms: self._session.receive_from_broker(response, now_ms=now_ms))

    def _read(self) -> tuple[list[bytes], int]:
        """Return the partitions of a response, and how many bytes of them are whole batches."""
        entries, size, whole_bytes = [], 0, 0
        for partition in self._partitions:
            most = min(self._asked_bytes - size, _PARTITION_MAX_BYTES)
            begin = number = self._next[partition]
            taken = whole = 0
            while number < partition.end:
                batch = partition.size(number)
                if whole + batch > most and (size or whole):
                    taken = most if whole else 0  # a piece of a batch
                    break
                whole = taken = whole + batch
                number += 1
                if whole > most:
                    break
            self._next[partition] = number
            size += taken
            whole_bytes += whole
            if taken or not self._has_session:
                front = pack(">qi", begin, partition.size(begin) - _BATCH_FRONT_BYTES) if taken else b""
                entries.append(_PARTITION.pack(0, 0, 0, 0, 0, 0, -1, taken) + front.ljust(taken, b"\0"))
        self._partitions.append(self._partitions.pop(0))
        return entries, whole_bytes


class Consumers:
    """Consumers of one client-id at one broker, under one quota. ``answer_ms`` is how long the broker takes to read."""

    def __init__(self, quota: float, shaping: Shaping, *, answer_ms: Callable[[], float] = lambda: 1.0) -> None:
        rule = QuotaRule(client_id="etl", consumer_byte_rate=float(quota))
        config = ProxyConfig(
            listeners=(), quotas=(rule,), shaping=shaping, max_throttle_time_ms=25_000, kafka=KafkaSettings()
        )
        policy = Policy(104_857_600, config.enforcement, is_inter_broker=False, oauthbearer_claim="sub")
        self.context = ConnectionContext(policy, BrokerQuotas(config), Counters())
        self.context.quotas.lines.wake = lambda waiter: self.call_at(self.now_ms, waiter.take_turn)
        self.answer_ms = answer_ms
        self.now_ms = _START_MS
        self.all: list[Consumer] = []
        self.parked: dict[Consumer, None] = {}
        self._quota = quota
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._random = Random(1)  # noqa: S311 - a simulation

    def add(self, *partitions: Partition, has_session: bool = True, within_ms: float = 0.0) -> Consumer:
        """Add a consumer, which begins to fetch within this time."""
        consumer = Consumer(self, partitions, has_session=has_session)
        self.all.append(consumer)
        self.call_at(self.now_ms + self._random.random() * within_ms, consumer.fetch)
        return consumer

    def call_at(self, at_ms: float, call: Callable[[], None]) -> None:
        """Call a function at this time."""
        heappush(self._events, (max(at_ms, self.now_ms), next(self._order), call))

    def run(self, for_ms: float) -> None:
        """Let time pass."""
        end_ms = self.now_ms + for_ms
        while self._events and self._events[0][0] <= end_ms:
            self.now_ms, _, call = heappop(self._events)
            call()
        self.now_ms = end_ms

    def produce(self, *partitions: Partition) -> None:
        """Add a batch to each partition. The broker answers the fetches that wait for them."""
        for partition in partitions:
            partition.end += 1
        for consumer in list(self.parked):
            if consumer.has_data:
                consumer.answer()

    def share(self, *consumers: Consumer, after_s: float) -> float:
        """Return the bytes of whole batches after the first seconds, relative to what the quota allows."""
        begin_ms = _START_MS + after_s * 1_000
        whole = sum(read.whole_bytes for one in consumers for read in one.reads if read.at_ms >= begin_ms)
        return whole * 1_000 / (self.now_ms - begin_ms) / self._quota
