"""A simulated member of a share group: it takes records from the leaders, and says what became of them (KIP-932)."""

from typing import TYPE_CHECKING, Final

from tests.simulation.clients.client import Client
from tests.simulation.wire import transfer
from tests.simulation.wire.common import WireError
from tests.simulation.wire.records import parse_batches
from tests.simulation.wire.transfer import ACCEPT, REJECT, RELEASE, AcknowledgedBatch, SharePartition, ShareTopic

if TYPE_CHECKING:
    from tests.simulation.clients.connection import Connection, Setting
    from tests.simulation.ledger import Exchange
    from tests.simulation.world import World

_LAST_EPOCH: Final = -1  # closes the session
_ACCEPTS: Final = 0.9  # of the batches
_ACKNOWLEDGES_APART: Final = 0.3  # instead of with the next fetch

Partition = tuple[str, int]


class _Session:
    """The share session with one broker. ``due`` are the records that are acknowledged with the next request."""

    __slots__ = ("due", "epoch", "is_busy", "known", "not_before_ms")

    def __init__(self) -> None:
        self.epoch = 0
        self.is_busy = False
        self.known: list[Partition] = []
        self.due: dict[Partition, list[AcknowledgedBatch]] = {}
        self.not_before_ms = 0.0


class ShareMember(Client):
    """Takes records of its topics, accepts most of them, and gives some back.

    Attributes:
        read: Topic, partition, offset and token of each batch that was acquired. A batch may come again.
        accepted: The same of each batch that it has accepted, whether or not the broker has heard of it.
        settled: How many acknowledgements a broker has confirmed.
    """

    def __init__(
        self,
        world: "World",
        setting: "Setting",
        topics: list[str],
        group: str,
        *,
        pause_ms: float = 0.0,
    ) -> None:
        super().__init__(world, setting, topics)
        self.group = group
        self.member_id = f"{setting.name}-member"
        self.read: list[tuple[str, int, int, str]] = []
        self.accepted: list[tuple[str, int, int, str]] = []
        self.settled = 0
        self._pause_ms = pause_ms
        self._sessions: dict[int, _Session] = {}

    def work(self) -> None:
        """Fetch from each leader that has no request to answer, or acknowledge what is due."""
        now_ms = self.world.clock.now_ms
        by_leader: dict[int, list[Partition]] = {}
        for partition, leader in self.leaders.items():
            if leader < 0:
                self.refresh_metadata()
            elif partition[0] in self.topic_ids:
                by_leader.setdefault(leader, []).append(partition)
        for leader, partitions in by_leader.items():
            session = self._sessions.get(leader)
            if session is None:
                session = self._sessions[leader] = _Session()
            if session.is_busy:
                continue
            if session.not_before_ms > now_ms:
                self.wake_in(session.not_before_ms - now_ms)
                continue
            connection = self.connection_to(leader)
            if connection is None:
                continue
            if session.due and session.epoch > 0 and self.random.random() < _ACKNOWLEDGES_APART:
                self._acknowledge(connection, session, session.epoch)
            else:
                self._fetch(connection, session, partitions)

    def farewell(self) -> bool:
        """Acknowledge what is due, and close the sessions."""
        is_leaving = False
        for leader, session in self._sessions.items():
            connection = self.connections.get(leader)
            if session.epoch > 0 and not session.is_busy and connection is not None and connection.can_send:
                self._acknowledge(connection, session, _LAST_EPOCH)
                is_leaving = True
        return is_leaving

    # -- requests --

    def _topics(self, partitions: list[Partition], session: _Session) -> list[ShareTopic]:
        by_topic: dict[str, list[SharePartition]] = {}
        for partition in partitions:
            topic, number = partition
            by_topic.setdefault(topic, []).append(SharePartition(number, tuple(session.due.pop(partition, ()))))
        return [ShareTopic(self.topic_ids[topic], parts) for topic, parts in by_topic.items()]

    def _fetch(self, connection: "Connection", session: _Session, partitions: list[Partition]) -> None:
        named = list(partitions)
        forgotten: list[transfer.ForgottenById] = []
        if session.epoch > 0:
            named = [each for each in partitions if each not in session.known or each in session.due]
            forgotten = [
                transfer.ForgottenById(self.topic_ids[topic], (number,))
                for topic, number in session.known
                if (topic, number) not in partitions
            ]
        session.known = partitions
        session.is_busy = True
        self.ask(
            connection, transfer.share_fetch, lambda result, exchange: self._fetched(result, exchange, session),
            lambda _exchange: self._restart(session), topics=self._topics(named, session), group_id=self.group,
            member_id=self.member_id, session_epoch=session.epoch, max_wait_ms=self.profile.fetch_wait_ms,
            max_bytes=self.profile.fetch_max_bytes, forgotten=forgotten,
        )  # fmt: skip

    def _acknowledge(self, connection: "Connection", session: _Session, epoch: int) -> None:
        session.is_busy = True
        if epoch == _LAST_EPOCH:
            session.epoch = 0
        self.ask(
            connection, transfer.share_acknowledge, lambda result, _: self._acknowledged(result, session, epoch),
            lambda _exchange: self._restart(session), topics=self._topics(list(session.due), session),
            group_id=self.group, member_id=self.member_id, session_epoch=epoch,
        )  # fmt: skip

    # -- responses --

    def _restart(self, session: _Session) -> None:
        """Begin another session. What was not acknowledged comes again: a first request must not acknowledge."""
        session.is_busy = False
        session.epoch = 0
        session.due.clear()
        session.not_before_ms = self.world.clock.now_ms + self.profile.retry_backoff_ms

    def _go_on(self, session: _Session) -> None:
        session.is_busy = False
        session.epoch = session.epoch % 0x7FFF_FFFF + 1

    def _acknowledged(self, result: transfer.ShareAcknowledgeResponse, session: _Session, epoch: int) -> None:
        if result.error_code or epoch == _LAST_EPOCH:
            self._restart(session)
        else:
            self._go_on(session)
        for topic in result.topics:
            self.settled += sum(not each.error_code for each in topic.partitions)

    def _fetched(self, result: transfer.ShareFetchResponse, exchange: "Exchange", session: _Session) -> None:
        if result.error_code:
            self._restart(session)
            self.refresh_metadata()
            return
        self._go_on(session)
        if self._pause_ms:
            session.not_before_ms = self.world.clock.now_ms + self._pause_ms
        for topic_id, partitions in result.topics:
            name = self.topic_names.get(topic_id)
            if name is None:
                self.world.fail("answers", f"{exchange!r} is answered for the topic {topic_id!r}, which is not in it")
            for shared in partitions:
                if shared.error_code:
                    session.not_before_ms = self.world.clock.now_ms + self.profile.retry_backoff_ms
                    if (name, shared.partition) in session.known:
                        session.known.remove((name, shared.partition))
                    self.refresh_metadata()
                elif shared.records:
                    self._take((name, shared.partition), shared, exchange, session)

    def _take(
        self, partition: Partition, shared: transfer.SharedPartition, exchange: "Exchange", session: _Session
    ) -> None:
        try:
            batches = parse_batches(shared.records or b"")
        except WireError as damage:
            self.world.fail("answers", f"{exchange!r} has damaged records of {partition}: {damage}")
        for first, last, _ in shared.acquired:
            draw = self.random.random()
            verdict = ACCEPT if draw < _ACCEPTS else RELEASE if draw < _ACCEPTS + 0.08 else REJECT
            session.due.setdefault(partition, []).append(AcknowledgedBatch(first, last, (verdict,)))
            for batch in batches:
                if first <= batch.base_offset <= last:
                    row = (*partition, batch.base_offset, batch.token)
                    self.read.append(row)
                    if verdict == ACCEPT:
                        self.accepted.append(row)
