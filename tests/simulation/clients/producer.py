"""A simulated producer: batches with a token each, sent until they are acknowledged or have failed for good."""

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.simulation.clients.client import Client
from tests.simulation.clients.profiles import RUDE
from tests.simulation.wire import groups, transfer
from tests.simulation.wire.records import Batch, write_batch

if TYPE_CHECKING:
    from tests.simulation.clients.connection import Connection, Setting
    from tests.simulation.ledger import Exchange
    from tests.simulation.world import World

_OUT_OF_ORDER_SEQUENCE: Final = 45
_DUPLICATE_SEQUENCE: Final = 46
_INVALID_PRODUCER_EPOCH: Final = 47
_UNKNOWN_PRODUCER_ID: Final = 59
# With these the outcome is known, or the broker keeps duplicates away: the batch is sent again.
_RETRIABLE: Final = frozenset((2, 3, 5, 6, 7, 8, 9, 13, 14, 19, 20, 56, 74, 100))
_LOST_SEQUENCE: Final = frozenset((_OUT_OF_ORDER_SEQUENCE, _INVALID_PRODUCER_EPOCH, _UNKNOWN_PRODUCER_ID))
_MOST_SEQUENCE_RETRIES: Final = 5
_HANGS_UP: Final = 0.2  # how often a rude client resets its connection once it has written a Produce with acks=0
_MOST_BUFFERED_BYTES: Final = 32 * 1_048_576
_MOST_REQUEST_BYTES: Final = 1_048_576

_FIRST_TOPIC_ID: Final = 13

Partition = tuple[str, int]


class Load(NamedTuple):
    """What a producer sends: each ``every_ms`` a burst of batches, until ``most_batches`` were made.

    ``after_ms`` makes producers burst at the same time: so long after each whole ``every_ms`` of the clock.
    """

    sizes: tuple[int, ...] = (1_000,)
    every_ms: float = 100.0
    burst: int = 1
    most_batches: int = 1 << 40
    after_ms: float | None = None


class _Pending:
    """A batch that is neither acknowledged nor failed."""

    __slots__ = ("attempts", "created_ms", "data", "partition", "sequence", "size", "token")

    def __init__(self, token: str, partition: Partition, size: int, created_ms: float) -> None:
        self.token = token
        self.partition = partition
        self.size = size
        self.created_ms = created_ms
        self.sequence = -1
        self.attempts = 0
        self.data = b""


class _Queue:
    """The batches for one partition. ``retries`` go first, and in the order of their sequences."""

    __slots__ = ("blocked_until_ms", "in_flight", "next_sequence", "partition", "retries", "waiting")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.waiting: deque[_Pending] = deque()
        self.retries: deque[_Pending] = deque()
        self.in_flight = 0
        self.next_sequence = 0
        self.blocked_until_ms = 0.0


class ProduceDetail(NamedTuple):
    """What a Produce request has, for the checks."""

    acks: int


class Producer(Client):
    """Produces to all partitions of its topics.

    Attributes:
        acknowledged: Topic, partition, offset and token of each batch that a broker has acknowledged, in this order.
            The offset is -1 if the broker only says that it has the batch already.
        failed: Topic, partition and token of each batch that has failed for good. It may have been written.
        may_repeat: Tokens that an idempotent producer has sent again under another producer id.
    """

    def __init__(
        self,
        world: "World",
        setting: "Setting",
        topics: list[str],
        load: Load,
        *,
        acks: int = -1,
        is_idempotent: bool = False,
        client_ids: tuple[str, ...] = (),
    ) -> None:
        super().__init__(world, setting, topics)
        self.acks = -1 if is_idempotent else acks
        self.is_idempotent = is_idempotent
        self.acknowledged: list[tuple[str, int, int, str]] = []
        self.failed: list[tuple[str, int, str]] = []
        self.may_repeat: set[str] = set()
        self.buffered_bytes = 0
        self._client_ids = client_ids  # of which each Produce request has one; the setting's if there are none
        self._load = load
        self._made = 0
        self._next_burst_ms = 0.0
        if load.after_ms is not None:
            self._next_burst_ms = (world.clock.now_ms // load.every_ms + 1) * load.every_ms + load.after_ms
        self._queues: dict[Partition, _Queue] = {}
        self._producer_id = self._epoch = -1
        self._is_asking_id = False
        self._id_due_ms = 0.0
        self._most_in_flight = self.profile.most_in_flight_idempotent if is_idempotent else self.profile.most_in_flight

    def work(self) -> None:
        """Make batches that are due, and send what can be sent."""
        if not self.leaders:
            return
        now_ms = self.world.clock.now_ms
        if self._made < self._load.most_batches:
            if now_ms >= self._next_burst_ms:
                self._make(now_ms)
            else:
                self.wake_in(self._next_burst_ms - now_ms)
        if self.is_idempotent and self._producer_id < 0:
            self._ask_id(now_ms)
            return
        ready: dict[int, list[_Queue]] = {}
        for queue in self._queues.values():
            if queue.retries or queue.waiting:
                if queue.blocked_until_ms > now_ms:
                    self.wake_in(queue.blocked_until_ms - now_ms)
                    continue
                if self.is_idempotent and queue.retries and queue.in_flight:
                    continue  # the requests in flight have to end first, or a retry would overtake them
                self._expire(queue, now_ms)
                leader = self.leaders.get(queue.partition, -1)
                if leader < 0:
                    self.refresh_metadata()
                else:
                    ready.setdefault(leader, []).append(queue)
        if self.is_idempotent and self._producer_id < 0:
            self._ask_id(now_ms)  # a batch has expired
            return
        for leader, queues in ready.items():
            self._send_to(leader, queues)

    def stop(self, patience_ms: float = 5_000.0) -> None:
        """Give up what was sent and must be sent again."""
        for queue in self._queues.values():
            while queue.retries:
                self._give_up(queue, queue.retries.popleft())
        super().stop(patience_ms)

    # -- batches --

    def _make(self, now_ms: float) -> None:
        load, random = self._load, self.random
        partitions = list(self.leaders)
        for _ in range(min(load.burst, load.most_batches - self._made)):
            size = random.choice(load.sizes)
            if self.buffered_bytes + size > _MOST_BUFFERED_BYTES:
                break
            partition = partitions[int(random.random() * len(partitions))]
            self._made += 1
            pending = _Pending(f"{self.setting.name}-{self._made}", partition, size, now_ms)
            queue = self._queues.get(partition)
            if queue is None:
                queue = self._queues[partition] = _Queue(partition)
            queue.waiting.append(pending)
            self.buffered_bytes += size
        if self._made < load.most_batches:
            self._next_burst_ms = now_ms + load.every_ms
            self.wake_in(load.every_ms)

    def _expire(self, queue: _Queue, now_ms: float) -> None:
        limit_ms = now_ms - self.profile.delivery_timeout_ms
        for batches in (queue.retries, queue.waiting):
            while batches and batches[0].created_ms <= limit_ms:
                self._give_up(queue, batches.popleft())

    def _give_up(self, queue: _Queue, pending: _Pending) -> None:
        self.failed.append((*pending.partition, pending.token))
        self.buffered_bytes -= pending.size
        if pending.sequence >= 0:
            self._lose_id()

    # -- requests --

    def _send_to(self, leader: int, queues: list[_Queue]) -> None:
        while True:
            connection = self.connection_to(leader)
            if connection is None or len(connection.in_flight) >= self._most_in_flight:
                return
            pendings: list[_Pending] = []
            size = 0
            for queue in queues:
                batches = queue.retries or queue.waiting
                if not batches or (pendings and size + batches[0].size > _MOST_REQUEST_BYTES):
                    continue
                if self.is_idempotent and queue.in_flight >= self._most_in_flight:
                    continue
                pending = batches.popleft()
                size += pending.size
                queue.in_flight += 1
                pendings.append(pending)
            if not pendings:
                return
            self._send(connection, pendings)

    def _send(self, connection: "Connection", pendings: list[_Pending]) -> None:
        version = self.version(connection, transfer.produce)
        if version >= _FIRST_TOPIC_ID and not all(each.partition[0] in self.topic_ids for each in pendings):
            version = _FIRST_TOPIC_ID - 1
        has_ids = version >= _FIRST_TOPIC_ID
        by_topic: dict[str | bytes, list[transfer.PartitionData]] = {}
        for pending in pendings:
            topic, index = pending.partition
            pending.attempts += 1
            if not pending.data:
                self._encode(pending)
            key = self.topic_ids[topic] if has_ids else topic
            by_topic.setdefault(key, []).append(transfer.PartitionData(index, pending.data))
        entity = self.setting.entity
        if self._client_ids:
            entity = entity._replace(client_id=self.random.choice(self._client_ids))
        fields = {"topics": [transfer.TopicData(*each) for each in by_topic.items()], "acks": self.acks}
        if self.acks:
            connection.ask(
                transfer.produce, version, lambda result, exchange: self._answered(result, exchange, pendings),
                lambda exchange: self._unanswered(pendings), detail=ProduceDetail(self.acks), entity=entity,
                fields=fields,
            )  # fmt: skip
            return
        for pending in pendings:
            self._queues[pending.partition].in_flight -= 1
            self.buffered_bytes -= pending.size
        connection.ask(
            transfer.produce, version, detail=ProduceDetail(0), entity=entity, expects_response=False, fields=fields
        )
        if self.profile is RUDE and self.random.random() < _HANGS_UP:
            self.world.call_soon(connection.abort)  # the caller is not done with the connection

    def _encode(self, pending: _Pending) -> None:
        if self.is_idempotent and pending.sequence < 0:
            queue = self._queues[pending.partition]
            pending.sequence = queue.next_sequence
            queue.next_sequence += 1
        pending.data = write_batch(
            Batch(pending.token, pending.size, 1, self._producer_id, self._epoch, pending.sequence)
        )

    # -- responses --

    def _answered(self, result: transfer.ProduceResponse, exchange: "Exchange", pendings: list[_Pending]) -> None:
        answers = {}
        for topic, partitions in result.topics:
            name = topic if isinstance(topic, str) else self.topic_names.get(topic, "")
            for answer in partitions:
                answers[name, answer.partition] = answer
        if len(answers) != len(pendings):
            self.world.fail("answers", f"{exchange!r} is answered for {sorted(answers)}, not for what it has")
        for pending in pendings:
            queue = self._queues[pending.partition]
            queue.in_flight -= 1
            if pending.partition not in answers:
                self.world.fail("answers", f"{exchange!r} is not answered for {pending.partition}")
            answer = answers[pending.partition]
            error = answer.error_code
            if error == 0 or (error == _DUPLICATE_SEQUENCE and self.is_idempotent):
                offset = answer.base_offset if error == 0 else -1
                self.acknowledged.append((*pending.partition, offset, pending.token))
                self.buffered_bytes -= pending.size
            elif error in _RETRIABLE or (error in _LOST_SEQUENCE and self.is_idempotent):
                if error in _LOST_SEQUENCE and (
                    error != _OUT_OF_ORDER_SEQUENCE or pending.attempts > _MOST_SEQUENCE_RETRIES
                ):
                    self._lose_id()
                self.refresh_metadata()
                self._retry(queue, pending)
            else:
                self._give_up(queue, pending)

    def _unanswered(self, pendings: list[_Pending]) -> None:
        for pending in pendings:
            queue = self._queues[pending.partition]
            queue.in_flight -= 1
            self._retry(queue, pending)

    def _retry(self, queue: _Queue, pending: _Pending) -> None:
        """Put a batch back, in the order of the sequences."""
        now_ms = self.world.clock.now_ms
        if self.is_stopping or pending.created_ms + self.profile.delivery_timeout_ms <= now_ms:
            self._give_up(queue, pending)
            return
        at = len(queue.retries)
        while at and queue.retries[at - 1].sequence > pending.sequence:
            at -= 1
        queue.retries.insert(at, pending)
        queue.blocked_until_ms = max(queue.blocked_until_ms, now_ms + self.retry_backoff_ms(pending.attempts - 1))

    # -- the producer id --

    def _lose_id(self) -> None:
        """Number all batches anew, under another id, once nothing is in flight."""
        self._producer_id = -1

    def _ask_id(self, now_ms: float) -> None:
        if self._is_asking_id or any(queue.in_flight for queue in self._queues.values()):
            return
        if now_ms < self._id_due_ms:
            self.wake_in(self._id_due_ms - now_ms)
            return
        connection = self.any_connection()
        if connection is None:
            return
        self._is_asking_id = True
        self.ask(connection, groups.init_producer_id, self._has_id, self._has_no_id)

    def _has_no_id(self, _exchange: "Exchange") -> None:
        self._is_asking_id = False
        self._id_due_ms = self.world.clock.now_ms + self.profile.retry_backoff_ms
        self.wake_in(self.profile.retry_backoff_ms)

    def _has_id(self, result: groups.InitProducerIdResponse, exchange: "Exchange") -> None:
        if result.error_code:
            self._has_no_id(exchange)
            return
        self._is_asking_id = False
        self._producer_id, self._epoch = result.producer_id, result.epoch
        for queue in self._queues.values():
            queue.next_sequence = 0
            for pending in queue.retries:
                self.may_repeat.add(pending.token)
                pending.sequence, pending.data = -1, b""
            queue.waiting.extendleft(reversed(queue.retries))
            queue.retries.clear()
