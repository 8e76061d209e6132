"""Share groups (KIP-932): whole batches are acquired by one member, until it has acknowledged them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tests.simulation.brokers.log import Batch, joined
from tests.simulation.brokers.parked import Parked
from tests.simulation.brokers.partition import NOT_LEADER, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
from tests.simulation.wire import transfer
from tests.simulation.wire.common import RequestHeader
from tests.simulation.wire.transfer import RELEASE, AcknowledgedBatch, ShareTopic

if TYPE_CHECKING:
    from tests.simulation.brokers.broker import Broker
    from tests.simulation.brokers.connection import Connection
    from tests.simulation.brokers.partition import Partition

_INVALID_RECORD_STATE: Final = 121
_SHARE_SESSION_NOT_FOUND: Final = 122
_INVALID_SHARE_SESSION_EPOCH: Final = 123
_FINAL_EPOCH: Final = -1
_HIGHEST: Final = 0x7FFFFFFF

Key = tuple[bytes, int]
MemberKey = tuple[str | None, str | None]


def _base_offset(batch: Batch) -> int:
    return batch.base_offset


class ShareState:
    """What a group has of a partition. ``acquired`` is by base offset: the batch, its member, its delivery count."""

    __slots__ = ("acquired", "counts", "next_offset", "returned")

    def __init__(self) -> None:
        self.next_offset = 0
        self.returned: list[Batch] = []
        self.acquired: dict[int, tuple[Batch, str | None]] = {}
        self.counts: dict[int, int] = {}

    def take(self, partition: "Partition", member: str | None, room: int, *, at_least_one: bool) -> list[Batch]:
        """Acquire batches for a member: those that others gave back first."""
        self.returned = [batch for batch in self.returned if batch.next_offset <= partition.high_watermark]
        self.returned.sort(key=_base_offset)
        size = 0
        taken: list[Batch] = []
        while self.returned and (size + self.returned[0].size <= room or (at_least_one and not taken)):
            taken.append(self.returned.pop(0))
            size += taken[-1].size
        if not self.returned:
            start = self.next_offset
            more, _ = partition.log.read(
                start, partition.high_watermark, room - size, at_least_one=at_least_one and not taken
            )
            if more:
                self.next_offset = more[-1].next_offset
            taken += more
        for batch in taken:
            self.acquired[batch.base_offset] = (batch, member)
            self.counts[batch.base_offset] = self.counts.get(batch.base_offset, 0) + 1
        return taken

    def acknowledge(self, ranges: Sequence[AcknowledgedBatch], member: str | None) -> int:
        """Be done with batches, or give them back. Return the error."""
        error = 0
        for first, last, types in ranges:
            known = self.acquired.get(first)
            if known is None or known[1] != member or known[0].next_offset - 1 != last:
                error = _INVALID_RECORD_STATE
                continue
            del self.acquired[first]
            if RELEASE in types:
                self.returned.append(known[0])
            else:
                self.counts.pop(first, None)
        return error

    def give_back(self, member: str | None) -> None:
        """Give back all that a member has acquired."""
        for offset, (batch, owner) in list(self.acquired.items()):
            if owner == member:
                del self.acquired[offset]
                self.returned.append(batch)


class ShareSession:
    """The partitions that a member fetches from one broker."""

    __slots__ = ("epoch", "partitions")

    def __init__(self) -> None:
        self.epoch = 0
        self.partitions: dict[Key, None] = {}


def _state(broker: "Broker", group_id: str | None, key: Key) -> ShareState:
    states = broker.cluster.share_states
    found = states.get((group_id, key))
    if found is None:
        found = states[group_id, key] = ShareState()
    return found


def _open(broker: "Broker", member: MemberKey, epoch: int) -> tuple[ShareSession | None, int]:
    """Return the session of a member, or the error. An epoch of 0 begins a new one, -1 is its last request."""
    sessions = broker.share_sessions
    session = sessions.get(member)
    if epoch == 0:
        if session is not None:
            _give_back(broker, member, session)
        session = sessions[member] = ShareSession()
    elif session is None:
        return None, _SHARE_SESSION_NOT_FOUND
    elif epoch not in (_FINAL_EPOCH, session.epoch):
        return None, _INVALID_SHARE_SESSION_EPOCH
    session.epoch = session.epoch + 1 if session.epoch < _HIGHEST else 1
    return session, 0


def _give_back(broker: "Broker", member: MemberKey, session: ShareSession) -> None:
    for key in session.partitions:
        _state(broker, member[0], key).give_back(member[1])


def _acknowledge(broker: "Broker", member: MemberKey, topics: Sequence[ShareTopic]) -> dict[Key, int]:
    """Take the acknowledgements of a request, and return the error of each partition that has any."""
    errors: dict[Key, int] = {}
    for topic_id, partitions in topics:
        for index, ranges in partitions:
            if ranges:
                errors[topic_id, index] = _state(broker, member[0], (topic_id, index)).acknowledge(ranges, member[1])
    return errors


def answer_acknowledge(connection: "Connection", header: RequestHeader, frame: bytes) -> None:
    """Take acknowledgements without a fetch."""
    request = transfer.share_acknowledge.parse_request(frame)
    broker = connection.broker
    member = (request.group_id, request.member_id)
    session, error = _open(broker, member, request.session_epoch)
    answers: list[transfer.AcknowledgedTopic] = []
    if session is not None:
        errors = _acknowledge(broker, member, request.topics)
        answers = [
            transfer.AcknowledgedTopic(
                topic_id,
                [transfer.AcknowledgedPartition(index, errors.get((topic_id, index), 0)) for index, _ in parts],
            )
            for topic_id, parts in request.topics
        ]
        if request.session_epoch == _FINAL_EPOCH:
            _give_back(broker, member, session)
            del broker.share_sessions[member]
    connection.answer(transfer.share_acknowledge, header, answers, throttle_ms=broker.draw_throttle(), error_code=error)


def answer_fetch(connection: "Connection", header: RequestHeader, frame: bytes) -> None:
    """Acquire records for a member, at once or when there are enough."""
    request = transfer.share_fetch.parse_request(frame)
    broker = connection.broker
    member = (request.group_id, request.member_id)
    session, error = _open(broker, member, request.session_epoch)
    throttle_ms = broker.draw_throttle()
    if session is None or throttle_ms:
        if session is not None:
            _acknowledge(broker, member, request.topics)
            session.partitions.update(((topic, index), None) for topic, parts in request.topics for index, _ in parts)
        connection.answer(transfer.share_fetch, header, (), throttle_ms=throttle_ms, error_code=error)
        return
    errors = _acknowledge(broker, member, request.topics)
    if request.session_epoch == _FINAL_EPOCH:
        _give_back(broker, member, session)
        del broker.share_sessions[member]
        session.partitions.clear()
    else:
        for topic_id, parts in request.topics:
            session.partitions.update(((topic_id, index), None) for index, _ in parts)
        for topic_id, indexes in request.forgotten:
            for index in indexes:
                session.partitions.pop((topic_id, index), None)
    _ShareFetch(connection, request, session, errors).begin()


class _ShareFetch(Parked):
    """A ShareFetch, until it is answered."""

    __slots__ = ("_errors", "_request", "_session")

    def __init__(
        self,
        connection: "Connection",
        request: transfer.ShareFetchRequest,
        session: ShareSession,
        errors: dict[Key, int],
    ) -> None:
        super().__init__(connection)
        self._request = request
        self._session = session
        self._errors = errors

    def begin(self) -> None:
        """Answer if there is something to tell, and wait otherwise."""
        if self._try_to_answer(must=self._request.max_wait_ms <= 0 or bool(self._errors)):
            return
        parts = (self._find(key)[0] for key in self._session.partitions)
        self.park(parts, self._request.max_wait_ms, self._time_out)

    def woken(self) -> None:
        """Answer if there is something to tell now."""
        self._try_to_answer(must=False)

    def _time_out(self) -> None:
        self._try_to_answer(must=True)

    def _find(self, key: Key) -> "tuple[Partition | None, int]":
        broker = self._connection.broker
        topic = broker.cluster.topics_by_id.get(key[0])
        if topic is None:
            return None, UNKNOWN_TOPIC_ID
        if key[1] >= len(topic.partitions):
            return None, UNKNOWN_TOPIC_OR_PARTITION
        partition = topic.partitions[key[1]]
        return partition, 0 if partition.leader == broker.node_id else NOT_LEADER

    def _try_to_answer(self, *, must: bool) -> bool:
        request, connection = self._request, self._connection
        group_id, member = request.group_id, request.member_id
        broker, room = connection.broker, request.max_bytes
        topics: dict[bytes, list[transfer.SharedPartition]] = {}
        is_first = True
        for key in self._session.partitions or self._errors:
            partition, error = self._find(key)
            taken: list[Batch] = []
            state = _state(broker, group_id, key)
            if partition is not None and not error and key in self._session.partitions:
                taken = state.take(partition, member, room, at_least_one=is_first)
                room = max(0, room - sum(batch.size for batch in taken))
            if not (taken or error or key in self._errors):
                continue
            is_first = is_first and not taken
            acquired = [
                transfer.AcquiredRecords(
                    batch.base_offset, batch.next_offset - 1, min(state.counts[batch.base_offset], 32_767)
                )
                for batch in taken
            ]
            topics.setdefault(key[0], []).append(
                transfer.SharedPartition(
                    key[1], joined(taken), acquired, error, acknowledge_error_code=self._errors.get(key, 0)
                )
            )
        if not topics and not must:
            return False
        self.cancel()
        answers = [transfer.SharedTopic(topic_id, parts) for topic_id, parts in topics.items()]
        connection.answer(transfer.share_fetch, request.header, answers)
        return True
