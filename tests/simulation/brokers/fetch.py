"""Fetch: long polls that read logs from an offset, for consumers and for followers."""

from typing import TYPE_CHECKING, Final, NamedTuple

from tests.simulation.brokers import fetch_sessions
from tests.simulation.brokers.fetch_sessions import Plan, Wanted
from tests.simulation.brokers.log import Batch, joined
from tests.simulation.brokers.parked import Parked
from tests.simulation.brokers.partition import (
    FENCED_LEADER_EPOCH,
    NOT_LEADER,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from tests.simulation.wire import transfer
from tests.simulation.wire.common import NO_LEADER, NodeEndpoint, RequestHeader

if TYPE_CHECKING:
    from tests.simulation.brokers.connection import Connection
    from tests.simulation.brokers.partition import Partition

_FIRST_TOPIC_ID: Final = 13


class _Read(NamedTuple):
    """What was read of one partition: the first ``size`` bytes of ``batches``."""

    wanted: Wanted
    partition: "Partition | None"
    error: int
    batches: list[Batch]
    size: int


def handle(connection: "Connection", header: RequestHeader, frame: bytes) -> None:
    """Answer a fetch when it has enough bytes, or after its longest wait."""
    request = transfer.fetch.parse_request(frame)
    broker = connection.broker
    planned = fetch_sessions.plan(broker, request, by_id=header.api_version >= _FIRST_TOPIC_ID)
    throttle_ms = broker.draw_throttle() if request.follower < 0 else 0
    session_id = planned.session.session_id if planned.session is not None else 0
    if planned.error or throttle_ms:
        # Like Kafka, answer a fetch that the broker throttles with nothing in it.
        error = planned.error
        connection.answer(transfer.fetch, header, (), throttle_ms=throttle_ms, error_code=error, session_id=session_id)
        return
    _Fetch(connection, request, planned).begin()


class _Fetch(Parked):
    """A fetch, until it is answered."""

    __slots__ = ("_planned", "_request")

    def __init__(self, connection: "Connection", request: transfer.FetchRequest, planned: Plan) -> None:
        super().__init__(connection)
        self._request = request
        self._planned = planned

    def begin(self) -> None:
        """Answer if enough can be read, and wait for more otherwise."""
        if self._request.follower >= 0:
            self._note_replica(self._request.follower)
        reads, size, has_error = self._read()
        request = self._request
        if size >= request.min_bytes or has_error or request.max_wait_ms <= 0 or not reads:
            self._answer(reads)
            return
        self.park((read.partition for read in reads), request.max_wait_ms, self._time_out)

    def _note_replica(self, node_id: int) -> None:
        cluster = self._connection.broker.cluster
        lags = False
        for wanted in self._planned.partitions:
            partition, error = self._find(wanted)
            if partition is not None and not error:
                cluster.replica_fetched(partition, node_id, wanted.offset)
                lags = lags or wanted.offset < partition.high_watermark
        if lags:
            cluster.replica_lagged(node_id, self._connection.broker.node_id)

    def woken(self) -> None:
        """Answer if enough can be read now."""
        reads, size, has_error = self._read()
        if size >= self._request.min_bytes or has_error:
            self.cancel()
            self._answer(reads)

    def _time_out(self) -> None:
        self.cancel()
        self._answer(self._read()[0])

    def _read(self) -> tuple[list[_Read], int, bool]:
        """Read each partition, and return what was read, its bytes, and whether a partition has an error."""
        request = self._request
        room, size, has_error = request.max_bytes, 0, False
        reads = []
        for wanted in self._planned.partitions:
            partition, error = self._find(wanted)
            batches: list[Batch] = []
            found_bytes = 0
            if partition is not None and not error:
                log = partition.log
                limit = log.end_offset if request.follower >= 0 else partition.high_watermark
                if wanted.offset < limit:
                    batches, found_bytes = log.read(
                        wanted.offset, limit, min(wanted.max_bytes, room), at_least_one=not size, cuts=True
                    )
                    size += found_bytes
                    room = max(0, room - found_bytes)
            has_error = has_error or error != 0
            reads.append(_Read(wanted, partition, error, batches, found_bytes))
        return reads, size, has_error

    def _find(self, wanted: Wanted) -> "tuple[Partition | None, int]":
        broker = self._connection.broker
        cluster = broker.cluster
        topic = wanted.topic
        if isinstance(topic, bytes):
            found = cluster.topics_by_id.get(topic)
            if found is None:
                return None, UNKNOWN_TOPIC_ID
            topic = found.name
        partition = cluster.partitions.get((topic, wanted.index))
        if partition is None:
            return None, UNKNOWN_TOPIC_OR_PARTITION
        if partition.leader != broker.node_id:
            return partition, NOT_LEADER
        if wanted.leader_epoch >= 0 and wanted.leader_epoch != partition.leader_epoch:
            is_old = wanted.leader_epoch < partition.leader_epoch
            return partition, FENCED_LEADER_EPOCH if is_old else UNKNOWN_LEADER_EPOCH
        replica_id = self._request.follower
        if replica_id >= 0 and replica_id not in partition.states:
            return partition, UNKNOWN_TOPIC_OR_PARTITION
        log = partition.log
        if not 0 <= wanted.offset <= log.end_offset:
            return partition, OFFSET_OUT_OF_RANGE
        return partition, 0

    def _answer(self, reads: list[_Read]) -> None:
        connection, planned, request = self._connection, self._planned, self._request
        topics: dict[str | bytes, list[transfer.FetchedPartition]] = {}
        endpoints: dict[int, NodeEndpoint] = {}
        served: list[Wanted] = []
        for read in reads:
            wanted = read.wanted
            answer = self._answer_of(read, endpoints)
            if planned.session is not None:
                is_news = bool(read.batches or read.error) or answer.high_watermark != wanted.high_watermark
                wanted.high_watermark = answer.high_watermark
                if is_news:
                    served.append(wanted)
                elif planned.is_incremental:
                    continue
            topics.setdefault(wanted.topic, []).append(answer)
        session_id = 0
        if planned.session is not None:
            session_id = planned.session.session_id
            if planned.is_incremental:
                planned.session.move_back(served)
        answers = [transfer.FetchedTopic(topic, of_topic) for topic, of_topic in topics.items()]
        nodes = list(endpoints.values())
        connection.answer(transfer.fetch, request.header, answers, session_id=session_id, endpoints=nodes)

    def _answer_of(self, read: _Read, endpoints: dict[int, NodeEndpoint]) -> transfer.FetchedPartition:
        partition, index = read.partition, read.wanted.index
        if partition is None or read.error:
            leader = NO_LEADER
            if partition is not None and read.error in (NOT_LEADER, FENCED_LEADER_EPOCH):
                connection = self._connection
                leader, nodes = connection.broker.leader_of(partition, connection.listener)
                endpoints.update((node.node_id, node) for node in nodes)
            return transfer.FetchedPartition(index, b"", read.error, leader=leader)
        mark = partition.high_watermark
        data = joined(read.batches, read.size)
        return transfer.FetchedPartition(index, data, 0, mark, mark, 0)
