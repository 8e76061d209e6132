"""A model of consumers, of the proxy's sessions and of a broker, on simulated time, for tests of consumer quotas.

The sessions are the proxy's own. The broker reads as Kafka does: at least one whole batch, then as many bytes as the
fetch asks for, which may end within a batch. A consumer throws the piece of a batch away, and reads it again.

Only sizes travel: a response has the size of what it would contain, and its content is zeros.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from random import Random
from struct import Struct, pack, unpack_from
from typing import Final

from kafka_quota_proxy.config.model import KafkaSettings, ProxyConfig, QuotaRule, Shaping
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.session import Session
from kafka_quota_proxy.proxy.session.client_account import ConnectionContext, Policy
from kafka_quota_proxy.proxy.session.counters import Counters
from tests.support.frames import fetch_request, framed, share_fetch_request, share_fetch_response

# A partition of a response (Fetch v11): index, error, high watermark, last stable and first offset, aborted
# transactions, preferred replica, and the length of its records.
_PARTITION: Final = Struct(">ihqqqiii")
_START_MS: Final = 86_400_000.0
_MAX_WAIT_AT: Final = 4 + 8 + 2 + 3 + 4  # in ``fetch_request`` v11 of the client-id "etl"


@dataclass
class Partition:
    """A partition: the sizes of its batches, which repeat, and how many of them it has. ``inf`` means a full topic."""

    batches: Sequence[int]
    end: float = float("inf")


@dataclass
class BrokerModel:
    """A broker that takes ``latency_ms`` to read, and sends ``bytes_per_ms``."""

    latency_ms: Callable[[], float] = lambda: 1.0
    bytes_per_ms: float = 500_000.0
    parked: "dict[Consumer, tuple[int, int, int]]" = field(default_factory=dict)


class Consumer:
    """A consumer with one connection. It fetches again as soon as it may.

    Attributes:
        whole_bytes: The bytes of whole batches that it has read.
        told_ms: The throttle time of each response that had one.
        held_ms: For how long each of its fetches was held by the proxy.
        empty: How many fetches the proxy answered without records.
    """

    def __init__(
        self,
        world: "FetchModel",
        partitions: Sequence[Partition],
        *,
        max_wait_ms: int = 500,
        max_bytes: int = 50 << 20,
        partition_max_bytes: int = 1 << 20,
        has_session: bool = True,
        works_ms: float = 0.2,
        obeys: bool = True,
        shares: bool = False,
    ) -> None:
        self.world = world
        phase = Random(len(partitions))
        self.partitions = [
            (partition, [phase.randrange(len(partition.batches)) if partition.end == float("inf") else 0])
            for partition in partitions
        ]
        self.max_wait_ms = max_wait_ms
        self.max_bytes = max_bytes
        self.partition_max_bytes = partition_max_bytes
        self.has_session = has_session
        self.works_ms = works_ms
        self.obeys = obeys
        self.shares = shares
        self.session = Session(world.context, owner=self)
        self.whole_bytes = self.fetched_bytes = self.empty = self.fetches = 0
        self.whole_log: list[tuple[float, int]] = []
        self.told_ms: list[int] = []
        self.held_ms: list[float] = []
        self.got_ms: list[float] = []
        self._sent_ms = self._timer_ms = 0.0
        self._is_forwarded = False
        self._correlation_id = 0
        self._epoch = 0

    # -- client --

    def start(self, at_ms: float = 0.0) -> None:
        self.world.at(_START_MS + at_ms, self._fetch)

    def _fetch(self) -> None:
        self._correlation_id += 1
        self.fetches += 1
        self._sent_ms = self.world.now_ms
        self._is_forwarded = False
        request = share_fetch_request if self.shares else fetch_request
        frame = request(self._correlation_id, max_bytes=self.max_bytes)
        self._run(lambda now_ms: self.session.receive_from_client(frame, now_ms=now_ms))

    def _receive(self, data: bytes) -> None:
        at = 13 if self.shares and self._is_forwarded else 12 if self.shares else 8
        throttle_ms: int = unpack_from(">i", data, 9 if self.shares else 8)[0]
        del at
        if throttle_ms:
            self.told_ms.append(throttle_ms)
        if not self._is_forwarded:
            self.empty += 1
            self.held_ms.append(self.world.now_ms - self._sent_ms)
        wait_ms = self.works_ms + (throttle_ms if self.obeys else 0)
        self.world.at(self.world.now_ms + wait_ms, self._fetch)

    # -- proxy --

    def take_turn(self) -> None:
        self._run(lambda now_ms: self.session.resume(now_ms=now_ms))

    def _run(self, step: Callable[[int], None]) -> None:
        now_ms = int(self.world.now_ms)
        state = self.session.state
        state.now_ns = int(self.world.now_ms * 1_000_000)
        step(now_ms)
        if state.to_broker:
            data = b"".join(state.to_broker)
            state.to_broker.clear()
            self._is_forwarded = True
            self.held_ms.append(self.world.now_ms - self._sent_ms)
            self.world.forwarded(self, data)
        if state.to_client:
            data = b"".join(state.to_client)
            state.to_client.clear()
            self._receive(data)
        wake_at_ms = self.session.wake_at_ms
        if wake_at_ms > now_ms and not self.world.now_ms < self._timer_ms <= wake_at_ms:
            self._timer_ms = wake_at_ms
            self.world.at(wake_at_ms, self._wake)

    def _wake(self) -> None:
        if self.world.now_ms >= self._timer_ms:
            self._timer_ms = 0.0
            self._run(lambda now_ms: self.session.handle_timer(now_ms=now_ms))

    # -- broker --

    def read(self, max_bytes: int) -> tuple[bytes, int]:
        """Return the partitions of a response that asks for ``max_bytes``, and how many bytes are whole batches."""
        size, whole, room = 0, 0, max_bytes
        named: list[bytes] = []
        for partition, at in self.partitions:
            most = min(room, self.partition_max_bytes)
            taken = full = 0
            batches = partition.batches
            place = at[0]
            first = batches[place % len(batches)]
            while place < partition.end:
                batch = batches[place % len(batches)]
                if taken + batch > most:
                    is_first = not size and not taken
                    if is_first:
                        taken = full = batch
                        place += 1
                    elif taken:
                        taken = most  # a piece of a batch
                    break
                taken += batch
                full = taken
                place += 1
            at[0] = place
            size += taken
            whole += full
            room = max(0, room - taken)
            if taken or not self.has_session:
                records = pack(">qi", 0, first - 12).ljust(taken, b"\0") if taken else b""
                named.append(_PARTITION.pack(0, 0, 0, 0, 0, 0, -1, len(records)) + records)
        self.partitions.append(self.partitions.pop(0))
        return pack(">i", len(named)) + b"".join(named), whole

    def has_data(self) -> bool:
        return any(at[0] < partition.end for partition, at in self.partitions)

    def answer(self, max_bytes: int, epoch: int) -> None:
        if epoch != self._epoch:
            return
        self._epoch += 1
        partitions, whole = self.read(max_bytes)
        self.whole_bytes += whole
        if whole:
            self.whole_log.append((self.world.now_ms, whole))
            self.got_ms.append(self.world.now_ms)
        if self.shares:
            frame = share_fetch_response(self._correlation_id, size_bytes=len(partitions) + 50)
        else:
            head = pack(">iihiih", self._correlation_id, 0, 0, 0, 1, 1) + b"t"
            frame = framed(head + partitions)
        self.fetched_bytes += len(frame)
        self._run(lambda now_ms: self.session.receive_from_broker(frame, now_ms=now_ms))


class FetchModel:
    """Consumers of one client-id in front of one broker, under one quota."""

    def __init__(
        self, quota: float, *, shaping: Shaping = Shaping.SAMPLED, broker: BrokerModel | None = None,
        max_throttle_time_ms: int | None = 25_000,
    ) -> None:  # fmt: skip
        config = ProxyConfig(
            listeners=(), quotas=(QuotaRule(client_id="etl", consumer_byte_rate=float(quota)),), shaping=shaping,
            max_throttle_time_ms=max_throttle_time_ms, kafka=KafkaSettings(),
        )  # fmt: skip
        policy = Policy(104_857_600, config.enforcement, is_inter_broker=False, oauthbearer_claim="sub")
        self.quota = quota
        self.context = ConnectionContext(policy, BrokerQuotas(config), Counters())
        self.context.quotas.lines.wake = lambda waiter: self.at(self.now_ms, waiter.take_turn)
        self.broker = broker or BrokerModel()
        self.now_ms = _START_MS
        self.consumers: list[Consumer] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._free_ms = 0.0

    def add(
        self, number: int, partitions: Sequence[Partition], *, spread_ms: float = 0.0, **options: object
    ) -> list[Consumer]:
        """Add consumers that begin within ``spread_ms``."""
        added = [Consumer(self, partitions, **options) for _ in range(number)]  # type: ignore[arg-type]
        random = Random(len(self.consumers))
        for consumer in added:
            consumer.start(self.now_ms - _START_MS + random.random() * spread_ms)
        self.consumers += added
        return added

    @property
    def bucket(self) -> Bucket:
        return self.context.quotas.bucket(
            QuotaKind.FETCH, principal="ANONYMOUS", client_id="etl", now_ms=int(self.now_ms)
        )

    def at(self, at_ms: float, call: Callable[[], None]) -> None:
        heappush(self._events, (max(at_ms, self.now_ms), next(self._order), call))

    def run(self, for_ms: float) -> None:
        end_ms = self.now_ms + for_ms
        while self._events and self._events[0][0] <= end_ms:
            self.now_ms, _, call = heappop(self._events)
            call()
        self.now_ms = end_ms

    def forwarded(self, consumer: Consumer, frame: bytes) -> None:
        if consumer.shares:
            # the field max_wait_ms follows group, member and epoch
            at = 4 + 8 + 2 + 3 + 1 + 6 + 7 + 4
        else:
            at = _MAX_WAIT_AT
        max_wait_ms, _, max_bytes = unpack_from(">iii", frame, at)
        epoch = consumer._epoch
        latency_ms = self.broker.latency_ms()
        if consumer.has_data() and max_bytes > 0:
            self._free_ms = max(self._free_ms, self.now_ms + latency_ms)
            self._answer(consumer, max_bytes, epoch, latency_ms)
        else:
            self.broker.parked[consumer] = (max_bytes, epoch, 0)
            self.at(self.now_ms + max(max_wait_ms, latency_ms), lambda: consumer.answer(max_bytes, epoch))

    def _answer(self, consumer: Consumer, max_bytes: int, epoch: int, latency_ms: float) -> None:
        self.at(self.now_ms + latency_ms, lambda: consumer.answer(max_bytes, epoch))

    def produce(self, partition: Partition, batches: int = 1) -> None:
        """Add batches to a partition, which the broker sends to those that wait for them."""
        partition.end += batches
        for consumer in list(self.broker.parked):
            if consumer.has_data():
                max_bytes, epoch, _ = self.broker.parked.pop(consumer)
                self._answer(consumer, max_bytes, epoch, 0.5)

    # -- what came of it --

    def share(self, *, from_ms: float, consumers: Sequence[Consumer] | None = None) -> float:
        """Return the whole bytes since ``from_ms`` over those that the quota allows."""
        begin_ms = _START_MS + from_ms
        whole = sum(n for one in consumers or self.consumers for at_ms, n in one.whole_log if at_ms >= begin_ms)
        return whole * 1_000 / (self.now_ms - begin_ms) / self.quota
