"""A simulated member of a consumer group: it joins, sends heartbeats, reads, and commits its offsets."""

from typing import TYPE_CHECKING, Final

from tests.simulation.clients.consumer import Consumer
from tests.simulation.clients.coordinator import LOADING, NOT_AVAILABLE, NOT_COORDINATOR, Coordinator
from tests.simulation.wire import groups

if TYPE_CHECKING:
    from tests.simulation.clients.connection import Connection, Setting
    from tests.simulation.ledger import Exchange
    from tests.simulation.world import World

_HEARTBEAT_MS: Final = 3_000.0
_COMMIT_MS: Final = 5_000.0
_SESSION_MS: Final = 45_000.0
# The coordinator may hold a JoinGroup for the rebalance time-out.
_JOIN_TIMEOUT_MS: Final = 305_000.0
_MEMBER_ID_REQUIRED: Final = 79
_LOST_COORDINATOR: Final = frozenset((LOADING, NOT_AVAILABLE, NOT_COORDINATOR))

_APART: Final = "apart"
_JOINING: Final = "joining"
_READING_OFFSETS: Final = "reading offsets"
_JOINED: Final = "joined"


class GroupMember(Consumer):
    """Reads all partitions of its topics as the one member of its group.

    Attributes:
        committed: The offsets that the coordinator has acknowledged, by topic and partition.
    """

    def __init__(
        self, world: "World", setting: "Setting", topics: list[str], group: str, *, pause_ms: float = 0.0
    ) -> None:
        super().__init__(world, setting, topics, pause_ms=pause_ms)
        self.group = group
        self.committed: dict[tuple[str, int], int] = {}
        self._coordinator = Coordinator(self, group)
        self._state = _APART
        self._member_id = ""
        self._generation = -1
        self._is_beating = self._is_committing = False
        self._next_beat_ms = self._next_commit_ms = self._not_before_ms = self._heard_ms = 0.0
        self._has_offsets = False

    def work(self) -> None:
        """Keep the membership, and fetch while it lasts."""
        now_ms = self.world.clock.now_ms
        if self._state == _JOINED:
            if now_ms - self._heard_ms > _SESSION_MS:
                self._leave()
            else:
                self._keep(now_ms)
                super().work()
                return
        if self._state != _APART:
            return
        if now_ms < self._not_before_ms:
            self.wake_in(self._not_before_ms - now_ms)
            return
        connection = self._coordinator.connection()
        if connection is not None:
            self._join(connection)

    def _keep(self, now_ms: float) -> None:
        is_beat_due = not self._is_beating and now_ms >= self._next_beat_ms
        is_commit_due = not self._is_committing and now_ms >= self._next_commit_ms and self.positions != self.committed
        if is_beat_due or is_commit_due:
            connection = self._coordinator.connection()
            if connection is not None and is_beat_due:
                self._beat(connection)
                connection = connection if connection.can_send else None
            if connection is not None and is_commit_due:
                self._commit(connection)
        if not self._is_beating:
            self.wake_in(max(self._next_beat_ms - now_ms, 100.0))

    def _leave(self) -> None:
        self._state = _APART
        self._not_before_ms = self.world.clock.now_ms + self.profile.retry_backoff_ms
        self.wake_in(self.profile.retry_backoff_ms)

    def _refused(self, error: int) -> None:
        if error in _LOST_COORDINATOR:
            self._coordinator.forget()
            if self._state != _JOINED:
                self._leave()
        else:
            self._leave()

    def _failed(self, _exchange: "Exchange") -> None:
        self._coordinator.forget()
        if self._state != _JOINED:
            self._leave()

    # -- joining --

    def _join(self, connection: "Connection") -> None:
        self._state = _JOINING
        self.ask(connection, groups.join_group, self._has_joined, self._failed, timeout_ms=_JOIN_TIMEOUT_MS,
                 group_id=self.group, member_id=self._member_id)  # fmt: skip

    def _has_joined(self, result: groups.JoinGroupResponse, _exchange: "Exchange") -> None:
        if result.error_code == _MEMBER_ID_REQUIRED:
            self._member_id = result.member_id
            self._state = _APART
        elif result.error_code:
            self._member_id = ""
            self._refused(result.error_code)
        else:
            self._member_id, self._generation = result.member_id, result.generation
            self._state = _READING_OFFSETS
            self._read_offsets()

    def _read_offsets(self) -> None:
        connection = self._coordinator.connection()
        if connection is None or self._has_offsets or not self.leaders:
            self._is_member()
            return
        numbers: dict[str, list[int]] = {}
        for topic, number in self.leaders:
            numbers.setdefault(topic, []).append(number)
        asked = [groups.AskedOffsets(topic, partitions) for topic, partitions in numbers.items()]
        self.ask(connection, groups.offset_fetch, self._have_offsets, self._failed, group_id=self.group, topics=asked)

    def _have_offsets(self, result: groups.OffsetFetchResponse, _exchange: "Exchange") -> None:
        if result.error_code:
            self._refused(result.error_code)
            return
        for topic in result.topics:
            for found in topic.partitions:
                if found.offset >= 0 and (topic.name, found.partition) not in self.positions:
                    self.positions[topic.name, found.partition] = found.offset
        self._has_offsets = True
        self._is_member()

    def _is_member(self) -> None:
        now_ms = self.world.clock.now_ms
        self._state = _JOINED
        self._heard_ms = now_ms
        self._next_beat_ms = now_ms + _HEARTBEAT_MS
        self._next_commit_ms = now_ms + _COMMIT_MS

    # -- staying --

    def _beat(self, connection: "Connection") -> None:
        self._is_beating = True
        self._next_beat_ms = self.world.clock.now_ms + _HEARTBEAT_MS
        self.ask(connection, groups.heartbeat, self._beaten, self._not_beaten, group_id=self.group,
                 generation=self._generation, member_id=self._member_id)  # fmt: skip

    def _beaten(self, result: groups.HeartbeatResponse, exchange: "Exchange") -> None:
        self._is_beating = False
        if result.error_code:
            self._refused(result.error_code)
        else:
            self._heard_ms = self.world.clock.now_ms

    def _not_beaten(self, exchange: "Exchange") -> None:
        self._is_beating = False
        self._failed(exchange)

    def _commit(self, connection: "Connection") -> None:
        self._is_committing = True
        offsets = dict(self.positions)
        by_topic: dict[str, list[groups.CommittedPartition]] = {}
        for (topic, number), offset in offsets.items():
            by_topic.setdefault(topic, []).append(groups.CommittedPartition(number, offset))
        topics = [groups.CommittedTopic(topic, partitions) for topic, partitions in by_topic.items()]
        self._next_commit_ms = self.world.clock.now_ms + _COMMIT_MS
        self.ask(connection, groups.offset_commit, lambda result, _: self._have_committed(result, offsets),
                 self._not_committed, group_id=self.group, topics=topics, generation=self._generation,
                 member_id=self._member_id)  # fmt: skip

    def _have_committed(self, result: groups.OffsetCommitResponse, offsets: dict[tuple[str, int], int]) -> None:
        self._is_committing = False
        for topic in result.topics:
            for partition, error_code in topic.partitions:
                if error_code:
                    self._refused(error_code)
                    return
                self.committed[topic.name, partition] = offsets[topic.name, partition]

    def _not_committed(self, exchange: "Exchange") -> None:
        self._is_committing = False
        self._failed(exchange)
