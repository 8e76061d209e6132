"""Produce: batches are appended, and acknowledged when those have them that the client has asked for."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.simulation.brokers.log import Batch
from tests.simulation.brokers.parked import Parked
from tests.simulation.brokers.partition import (
    NOT_ENOUGH_REPLICAS,
    NOT_LEADER,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from tests.simulation.wire import records, transfer
from tests.simulation.wire.common import NO_LEADER, NodeEndpoint, RequestHeader, Topic

if TYPE_CHECKING:
    from tests.simulation.brokers.connection import Connection
    from tests.simulation.brokers.partition import Partition

_ALL: Final = -1


@dataclass(slots=True)
class _Entry:
    """What becomes of the batch for one partition."""

    index: int
    partition: "Partition | None"
    error: int
    batch: Batch | None


def handle(connection: "Connection", header: RequestHeader, frame: bytes) -> None:
    """Append the batches of a request, and answer it at once or when the replicas have them."""
    request = transfer.produce.parse_request(frame)
    topics = [
        (topic, [_append(connection, topic, index, data, request.acks) for index, data in partitions])
        for topic, partitions in request.topics
    ]
    broker = connection.broker
    if not request.acks:
        if any(entry.error for _, entries in topics for entry in entries):
            connection.close()  # the only way to tell
        else:
            connection.finish(broker.draw_throttle())
        return
    _Waiting(connection, header, topics, request.acks).begin(request.timeout_ms, broker.draw_disk_ms())


def _append(connection: "Connection", topic: Topic, index: int, data: bytes | None, acks: int) -> _Entry:
    broker = connection.broker
    cluster = broker.cluster
    if isinstance(topic, bytes):
        found = cluster.topics_by_id.get(topic)
        if found is None:
            return _Entry(index, None, UNKNOWN_TOPIC_ID, None)
        topic = found.name
    content = records.parse_batch(data or b"")
    partition = cluster.partitions.get((topic, index))
    if partition is None:
        return _Entry(index, None, UNKNOWN_TOPIC_OR_PARTITION, None)
    error = NOT_LEADER if partition.leader != broker.node_id else broker.draw_refusal()
    if not error and acks == _ALL and len(partition.isr) < cluster.min_isr:
        error = NOT_ENOUGH_REPLICAS
    if error:
        return _Entry(index, partition, error, None)
    error, batch = partition.append(content)
    return _Entry(index, partition, error, batch)


class _Waiting(Parked):
    """A request whose batches are in the log, until it may be answered."""

    __slots__ = ("_acks", "_header", "_pending", "_topics")

    def __init__(
        self,
        connection: "Connection",
        header: RequestHeader,
        topics: list[tuple[Topic, list[_Entry]]],
        acks: int,
    ) -> None:
        super().__init__(connection)
        self._header = header
        self._topics = topics
        self._acks = acks
        self._pending: list[_Entry] = []

    def begin(self, timeout_ms: int, disk_ms: float) -> None:
        """Answer, or wait for the disk first and for the replicas then."""
        if disk_ms:
            self.park((), disk_ms, self.begin, timeout_ms, 0.0)
            return
        self._timer = None
        if self._acks == _ALL:
            self._pending = [entry for _, entries in self._topics for entry in entries if self._is_waiting(entry)]
            if self._pending:
                self.park((entry.partition for entry in self._pending), timeout_ms, self._time_out)
                return
        self._answer()

    def _is_waiting(self, entry: _Entry) -> bool:
        """Whether replicas still have to get this batch. It fails if another broker leads the partition now."""
        partition, batch = entry.partition, entry.batch
        if batch is None or partition is None or entry.error:
            return False
        if partition.leader != self._connection.broker.node_id:
            entry.error = NOT_LEADER
            return False
        return partition.high_watermark < batch.next_offset

    def woken(self) -> None:
        """Answer if all replicas have all batches."""
        self._pending = [entry for entry in self._pending if self._is_waiting(entry)]
        if not self._pending:
            self.cancel()
            self._answer()

    def _time_out(self) -> None:
        for entry in self._pending:
            entry.error = REQUEST_TIMED_OUT
        self.cancel()
        self._answer()

    def _answer(self) -> None:
        connection, header = self._connection, self._header
        throttle_ms = connection.broker.draw_throttle()
        acknowledged: list[Batch] = []
        endpoints: dict[int, NodeEndpoint] = {}
        answers = []
        for topic, entries in self._topics:
            of_topic = []
            for entry in entries:
                batch, error = entry.batch, entry.error
                if batch is not None and entry.partition is not None and not error:
                    acknowledged.append(batch)
                    of_topic.append(transfer.PartitionAnswer(entry.index, 0, batch.base_offset, -1, 0))
                    continue
                leader = NO_LEADER
                if error == NOT_LEADER and entry.partition is not None:
                    leader, nodes = connection.broker.leader_of(entry.partition, connection.listener)
                    endpoints.update((node.node_id, node) for node in nodes)
                of_topic.append(transfer.PartitionAnswer(entry.index, error, leader=leader))
            answers.append(transfer.TopicAnswer(topic, of_topic))
        response = transfer.produce.response(
            header.correlation_id, header.api_version, answers, throttle_ms=throttle_ms,
            endpoints=list(endpoints.values()),
        )  # fmt: skip
        connection.respond(header, response, throttle_ms=throttle_ms, acknowledges=acknowledged)
