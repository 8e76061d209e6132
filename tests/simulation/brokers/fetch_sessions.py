"""Fetch sessions (KIP-227): a broker remembers what a client fetches, and tells it only what is new."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tests.simulation.wire.transfer import FetchPartition, FetchRequest

if TYPE_CHECKING:
    from tests.simulation.brokers.broker import Broker

FETCH_SESSION_ID_NOT_FOUND: Final = 70
INVALID_FETCH_SESSION_EPOCH: Final = 71
FETCH_SESSION_TOPIC_ID_ERROR: Final = 106
_FINAL_EPOCH: Final = -1
_FIRST_EPOCH: Final = 0
_HIGHEST: Final = 0x7FFFFFFF

Key = tuple[str | bytes, int]


class Wanted:
    """A partition that is fetched. ``high_watermark`` is what the client was told last."""

    __slots__ = ("high_watermark", "index", "key", "leader_epoch", "max_bytes", "offset", "topic")

    def __init__(self, topic: str | bytes, asked: FetchPartition) -> None:
        self.topic = topic
        self.key: Key = (topic, asked.partition)
        self.high_watermark = -1
        self.index, self.offset, self.max_bytes, self.leader_epoch, _, _ = asked

    def change(self, asked: FetchPartition) -> None:
        """Fetch from another offset, or another size."""
        _, self.offset, self.max_bytes, self.leader_epoch, _, _ = asked


class Session:
    """The partitions that one client fetches, in the order in which they are read."""

    __slots__ = ("by_id", "epoch", "partitions", "session_id")

    def __init__(self, session_id: int, *, by_id: bool) -> None:
        self.session_id = session_id
        self.by_id = by_id
        self.epoch = 1
        self.partitions: dict[Key, Wanted] = {}

    def update(self, request: FetchRequest) -> None:
        """Add, change and forget partitions as an incremental request says."""
        partitions = self.partitions
        for topic, asked_of in request.topics:
            for asked in asked_of:
                known = partitions.get((topic, asked.partition))
                if known is None:
                    partitions[topic, asked.partition] = Wanted(topic, asked)
                else:
                    known.change(asked)
        for topic, indexes in request.forgotten:
            for index in indexes:
                partitions.pop((topic, index), None)
        self.epoch = self.epoch + 1 if self.epoch < _HIGHEST else 1

    def move_back(self, served: Iterable[Wanted]) -> None:
        """Let the partitions that had data come last next time, so that all get their turn."""
        for wanted in served:
            if self.partitions.pop(wanted.key, None) is not None:
                self.partitions[wanted.key] = wanted


class Plan:
    """What a fetch asks for. Without a session, or in its first fetch, each partition is answered."""

    __slots__ = ("error", "is_incremental", "partitions", "session")

    def __init__(
        self, partitions: Iterable[Wanted], session: Session | None = None, *, is_incremental: bool = False,
        error: int = 0,
    ) -> None:  # fmt: skip
        self.partitions = partitions
        self.session = session
        self.is_incremental = is_incremental
        self.error = error


def plan(broker: "Broker", request: FetchRequest, *, by_id: bool) -> Plan:
    """Return what a request asks for, and keep its session."""
    sessions = broker.sessions
    if request.session_epoch in (_FINAL_EPOCH, _FIRST_EPOCH):
        if request.session_id:
            sessions.pop(request.session_id, None)
        wanted = {
            (topic, asked.partition): Wanted(topic, asked) for topic, of_topic in request.topics for asked in of_topic
        }
        if request.session_epoch == _FINAL_EPOCH or not wanted or len(sessions) >= broker.max_sessions:
            return Plan(wanted.values())
        session_id = broker.random.randint(1, _HIGHEST)
        while session_id in sessions:
            session_id = broker.random.randint(1, _HIGHEST)
        session = sessions[session_id] = Session(session_id, by_id=by_id)
        session.partitions = wanted
        return Plan(wanted.values(), session)
    found = sessions.get(request.session_id)
    if found is None:
        return Plan((), error=FETCH_SESSION_ID_NOT_FOUND)
    if found.epoch != request.session_epoch:
        return Plan((), error=INVALID_FETCH_SESSION_EPOCH)
    if found.by_id != by_id:
        return Plan((), error=FETCH_SESSION_TOPIC_ID_ERROR)
    found.update(request)
    if not found.partitions:
        del sessions[request.session_id]
        return Plan(())
    return Plan(found.partitions.values(), found, is_incremental=True)
