"""A simulated consumer: fetches each partition from its leader, with or without sessions, in the order of offsets."""

from typing import TYPE_CHECKING, Final

from tests.simulation.clients.client import Client
from tests.simulation.wire import transfer
from tests.simulation.wire.common import WireError
from tests.simulation.wire.records import parse_batches

if TYPE_CHECKING:
    from tests.simulation.clients.connection import Connection, Setting
    from tests.simulation.ledger import Exchange
    from tests.simulation.world import World

_OFFSET_OUT_OF_RANGE: Final = 1
_SESSION_NOT_FOUND: Final = 70
_INVALID_SESSION_EPOCH: Final = 71
_FIRST_SESSION: Final = 7
_FIRST_TOPIC_ID: Final = 13

Partition = tuple[str, int]


class _Session:
    """The fetch session with one broker."""

    __slots__ = ("epoch", "id", "is_fetching", "known", "not_before_ms")

    def __init__(self) -> None:
        self.id = 0
        self.epoch = 0
        self.is_fetching = False
        self.not_before_ms = 0.0
        self.known: dict[Partition, int] = {}  # the offsets that the broker knows


class Consumer(Client):
    """Reads all partitions of its topics from their first offsets.

    Attributes:
        read: Topic, partition, offset and token of each batch that it has read, in this order.
        positions: The next offset of each partition.
        pause_ms: How long it works on a response before the next fetch from the same broker.
    """

    def __init__(
        self,
        world: "World",
        setting: "Setting",
        topics: list[str],
        *,
        max_wait_ms: int = -1,
        pause_ms: float = 0.0,
    ) -> None:
        super().__init__(world, setting, topics)
        self.read: list[tuple[str, int, int, str]] = []
        self.positions: dict[Partition, int] = {}
        self.pause_ms = pause_ms
        self._max_wait_ms = self.profile.fetch_wait_ms if max_wait_ms < 0 else max_wait_ms
        self._blocked_until_ms: dict[Partition, float] = {}
        self._sessions: dict[int, _Session] = {}

    def work(self) -> None:
        """Fetch from each leader that has no fetch to answer."""
        now_ms = self.world.clock.now_ms
        by_leader: dict[int, list[Partition]] = {}
        for partition, leader in self.leaders.items():
            if leader < 0:
                self.refresh_metadata()
                continue
            blocked_until_ms = self._blocked_until_ms.get(partition, 0.0)
            if blocked_until_ms > now_ms:
                self.wake_in(blocked_until_ms - now_ms)
            else:
                by_leader.setdefault(leader, []).append(partition)
        for leader, partitions in by_leader.items():
            session = self._sessions.get(leader)
            if session is None:
                session = self._sessions[leader] = _Session()
            if session.is_fetching:
                continue
            if session.not_before_ms > now_ms:
                self.wake_in(session.not_before_ms - now_ms)
                continue
            connection = self.connection_to(leader)
            if connection is not None:
                self._fetch(connection, session, partitions)

    # -- requests --

    def _fetch(self, connection: "Connection", session: _Session, partitions: list[Partition]) -> None:
        version = self.version(connection, transfer.fetch)
        if version >= _FIRST_TOPIC_ID and len(self.topic_ids) < len(self.topics):
            version = _FIRST_TOPIC_ID - 1
        positions = self.positions
        wanted = {partition: positions.get(partition, 0) for partition in partitions}
        forgotten: list[Partition] = []
        named = wanted
        has_session = self.profile.has_fetch_sessions and version >= _FIRST_SESSION
        if has_session and session.epoch > 0:
            known = session.known
            named = {partition: offset for partition, offset in wanted.items() if known.get(partition) != offset}
            forgotten = [partition for partition in known if partition not in wanted]
        session.known = wanted
        session.is_fetching = True
        fields = {
            "topics": self._by_topic(named, version),
            "max_wait_ms": self._max_wait_ms,
            "max_bytes": self.profile.fetch_max_bytes,
            "session_id": session.id if has_session else 0,
            "session_epoch": session.epoch if has_session else -1,
            "forgotten": self._forgotten(forgotten, version),
        }
        connection.ask(
            transfer.fetch, version, lambda result, exchange: self._fetched(result, exchange, session),
            lambda exchange: self._not_fetched(session), fields=fields,
        )  # fmt: skip

    def _by_topic(self, offsets: dict[Partition, int], version: int) -> list[transfer.FetchTopic]:
        by_topic: dict[str | bytes, list[transfer.FetchPartition]] = {}
        limit = self.profile.partition_max_bytes
        for (topic, number), offset in offsets.items():
            key = self.topic_ids[topic] if version >= _FIRST_TOPIC_ID else topic
            by_topic.setdefault(key, []).append(transfer.FetchPartition(number, offset, limit))
        return [transfer.FetchTopic(*each) for each in by_topic.items()]

    def _forgotten(self, partitions: list[Partition], version: int) -> list[transfer.ForgottenTopic]:
        by_topic: dict[str | bytes, list[int]] = {}
        for topic, number in partitions:
            by_topic.setdefault(self.topic_ids[topic] if version >= _FIRST_TOPIC_ID else topic, []).append(number)
        return [transfer.ForgottenTopic(*each) for each in by_topic.items()]

    # -- responses --

    def _not_fetched(self, session: _Session) -> None:
        session.is_fetching = False
        session.epoch = 0  # the next fetch closes the session and opens another
        session.known = {}

    def _fetched(self, result: transfer.FetchResponse, exchange: "Exchange", session: _Session) -> None:
        session.is_fetching = False
        now_ms = self.world.clock.now_ms
        if self.pause_ms:
            session.not_before_ms = now_ms + self.pause_ms
        if result.error_code:
            session.epoch = 0
            session.known = {}
            if result.error_code == _SESSION_NOT_FOUND:
                session.id = 0
            elif result.error_code != _INVALID_SESSION_EPOCH:
                session.not_before_ms = now_ms + self.profile.retry_backoff_ms
                self.refresh_metadata()
            return
        if self.profile.has_fetch_sessions and exchange.api_version >= _FIRST_SESSION:
            self._keep_session(result, exchange, session)
        for topic, partitions in result.topics:
            name = topic if isinstance(topic, str) else self.topic_names.get(topic)
            if name is None:
                self.world.fail("answers", f"{exchange!r} is answered for the topic {topic!r}, which is not in it")
            for fetched in partitions:
                self._take((name, fetched.partition), fetched, exchange, session)

    def _keep_session(self, result: transfer.FetchResponse, exchange: "Exchange", session: _Session) -> None:
        if result.session_id == 0:
            session.id = session.epoch = 0
            session.known = {}
        elif session.epoch == 0:
            session.id, session.epoch = result.session_id, 1
        elif result.session_id != session.id:
            self.world.fail("answers", f"{exchange!r} of session {session.id} is answered for {result.session_id}")
        else:
            session.epoch = session.epoch % 0x7FFF_FFFF + 1

    def _take(
        self, partition: Partition, fetched: transfer.FetchedPartition, exchange: "Exchange", session: _Session
    ) -> None:
        error = fetched.error_code
        if error:
            self._blocked_until_ms[partition] = self.world.clock.now_ms + self.profile.retry_backoff_ms
            if error == _OFFSET_OUT_OF_RANGE:
                self.positions[partition] = max(fetched.log_start_offset, 0)
            session.known.pop(partition, None)
            self.refresh_metadata()
            return
        if not fetched.records:
            return
        try:
            batches = parse_batches(fetched.records, may_be_cut=True)
        except WireError as damage:
            self.world.fail("answers", f"{exchange!r} has damaged records of {partition}: {damage}")
        position = self.positions.get(partition, 0)
        for batch in batches:
            if batch.base_offset + batch.record_count <= position:
                continue  # a broker may begin with the batch that has the offset
            if batch.base_offset < position:
                self.world.fail(
                    "answers", f"{exchange!r} has offset {batch.base_offset} of {partition}, not {position}"
                )
            self.read.append((*partition, batch.base_offset, batch.token))
            position = batch.base_offset + batch.record_count
        self.positions[partition] = position
