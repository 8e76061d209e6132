"""A partition: its log, its replicas, and what its leader knows of them."""

from collections.abc import Callable
from typing import Final, NamedTuple

from tests.simulation.brokers.log import Batch, Log
from tests.simulation.brokers.parked import Parked
from tests.simulation.wire import records

NO_ERROR: Final = 0
OFFSET_OUT_OF_RANGE: Final = 1
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
LEADER_NOT_AVAILABLE: Final = 5
NOT_LEADER: Final = 6
REQUEST_TIMED_OUT: Final = 7
NOT_ENOUGH_REPLICAS: Final = 19
OUT_OF_ORDER_SEQUENCE_NUMBER: Final = 45
INVALID_PRODUCER_EPOCH: Final = 47
FENCED_LEADER_EPOCH: Final = 74
UNKNOWN_LEADER_EPOCH: Final = 75
UNKNOWN_TOPIC_ID: Final = 100
# How many batches of a producer a broker remembers, to know one that comes a second time.
_REMEMBERED: Final = 5


class Appended(NamedTuple):
    """What became of a batch that a producer sent. ``batch`` is the one in the log, also if it is a duplicate."""

    error: int
    batch: Batch | None


class Replica:
    """A replica of a partition, as its leader sees it.

    Attributes:
        log_end: Where the log of the replica ends.
        caught_up_ms: When it last had all that the leader had.
        fetched_ms: When it last fetched. ``leader_end_then`` is where the log of the leader ended then.
    """

    __slots__ = ("caught_up_ms", "fetched_ms", "leader_end_then", "log_end", "node_id")

    def __init__(self, node_id: int, now_ms: float) -> None:
        self.node_id = node_id
        self.log_end = 0
        self.caught_up_ms = self.fetched_ms = now_ms
        self.leader_end_then = 0


class _Producer:
    """The last batches of an idempotent producer."""

    __slots__ = ("batches", "epoch")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.batches: list[Batch] = []

    def check(self, content: records.Batch) -> tuple[int, Batch | None]:
        """Return the error for a batch, or the batch in the log that it repeats, or neither."""
        if content.epoch != self.epoch:
            if content.epoch < self.epoch:
                return INVALID_PRODUCER_EPOCH, None
            return (OUT_OF_ORDER_SEQUENCE_NUMBER if content.base_sequence else NO_ERROR), None
        if content.base_sequence == self.batches[-1].next_sequence:
            return NO_ERROR, None
        for batch in self.batches:
            known = batch.content
            if known.base_sequence == content.base_sequence and known.record_count == content.record_count:
                return NO_ERROR, batch
        return OUT_OF_ORDER_SEQUENCE_NUMBER, None


class Partition:
    """A partition. ``leader`` is -1 while no broker leads it."""

    __slots__ = (
        "_producers", "high_watermark", "index", "isr", "leader", "leader_epoch", "log", "on_append", "replicas",
        "states", "topic_id", "topic_name", "waiters",
    )  # fmt: skip

    def __init__(self, topic_name: str, topic_id: bytes, index: int, replicas: list[int], now_ms: float) -> None:
        self.topic_name = topic_name
        self.topic_id = topic_id
        self.index = index
        self.replicas = replicas
        self.isr = list(replicas)
        self.leader = replicas[0]
        self.leader_epoch = 0
        self.log = Log()
        self.high_watermark = 0
        self.states = {node_id: Replica(node_id, now_ms) for node_id in replicas}
        self.waiters: dict[Parked, None] = {}
        self.on_append: Callable[[Partition], None] | None = None
        self._producers: dict[int, _Producer] = {}

    def __repr__(self) -> str:
        return f"{self.topic_name}-{self.index}"

    # -- producers --

    def append(self, content: records.Batch) -> Appended:
        """Append a batch, unless it is a duplicate or not the next one of its producer."""
        log = self.log
        producer = self._producers.get(content.producer_id) if content.producer_id >= 0 else None
        if producer is not None:
            error, known = producer.check(content)
            if error or known is not None:
                return Appended(error, known)
        batch = Batch(content, offset=log.end_offset, leader_epoch=self.leader_epoch)
        log.append(batch)
        if content.producer_id >= 0:
            self._remember(batch)
        self.states[self.leader].log_end = log.end_offset
        if len(self.isr) == 1:
            self.high_watermark = log.end_offset
        if self.on_append is not None:
            self.on_append(self)
        self.wake()
        return Appended(NO_ERROR, batch)

    def _remember(self, batch: Batch) -> None:
        content = batch.content
        producer = self._producers.get(content.producer_id)
        if producer is None or producer.epoch != content.epoch:
            producer = self._producers[content.producer_id] = _Producer(content.epoch)
        producer.batches.append(batch)
        if len(producer.batches) > _REMEMBERED:
            del producer.batches[0]

    # -- replicas --

    def fetched_by(self, node_id: int, offset: int, now_ms: float) -> None:
        """Note that a replica fetches from ``offset``, so that it has all before it."""
        state = self.states[node_id]
        end = self.log.end_offset
        state.log_end = min(offset, end)
        if offset >= end:
            state.caught_up_ms = now_ms
        elif offset >= state.leader_end_then:
            state.caught_up_ms = max(state.caught_up_ms, state.fetched_ms)
        state.fetched_ms = now_ms
        state.leader_end_then = end
        self.advance()

    def advance(self) -> None:
        """Move the high watermark up to what all in-sync replicas have."""
        states = self.states
        common = min(states[node_id].log_end for node_id in self.isr) if self.isr else self.high_watermark
        if common > self.high_watermark:
            self.high_watermark = common
            self.wake()

    def wake(self) -> None:
        """Let all requests that wait for this partition look again."""
        if self.waiters:
            for waiter in list(self.waiters):
                if waiter in self.waiters:  # one that was woken before may have ended it
                    waiter.woken()

    def lead(self, node_id: int, now_ms: float) -> list[Batch]:
        """Make ``node_id`` the leader, -1 for nobody. Return the batches that it does not have, which are lost."""
        self.leader = node_id
        self.leader_epoch += 1
        lost: list[Batch] = []
        if node_id >= 0:
            lost = self.truncate(self.states[node_id].log_end)
            for state in self.states.values():
                state.caught_up_ms = state.fetched_ms = now_ms
                state.leader_end_then = 0
            self.advance()
        self.wake()
        return lost

    def truncate(self, end_offset: int) -> list[Batch]:
        """Lose the end of the log, and return what is lost."""
        lost = self.log.truncate(end_offset)
        end = self.log.end_offset
        self.high_watermark = min(self.high_watermark, end)
        for state in self.states.values():
            state.log_end = min(state.log_end, end)
        if lost:
            self._producers.clear()
            for batch in self.log.batches:
                if batch.content.producer_id >= 0:
                    self._remember(batch)
        return lost
