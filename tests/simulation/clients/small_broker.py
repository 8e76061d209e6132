"""A broker for the tests of the simulated clients: it answers at once, and does wrong when it is told to."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.clients import profiles
from tests.simulation.wire import api_versions, fetch, metadata, produce
from tests.simulation.wire.common import NodeEndpoint, parse_header
from tests.simulation.wire.records import appended, parse_batch

if TYPE_CHECKING:
    from tests.simulation.network import End
    from tests.simulation.world import World

Partition = tuple[str, int]
TOPIC_ID = bytes(range(16))


class SmallBroker:
    """Serves the topic "t". ``twist`` may change, drop or multiply the responses to a request.

    Attributes:
        requests: The API key, version and time in ms of each request that has come.
        logs: The batches of each partition, with their offsets.
        tokens: Their tokens.
        throttle_ms: The throttle time of each response.
    """

    def __init__(
        self, world: "World", node: int = 1, partitions: int = 1, leaders: dict[int, int] | None = None
    ) -> None:
        self.world = world
        self.node = node
        self.address = (f"10.0.1.{node}", 9092)
        self.peers = {node: self.address}
        self.leaders = leaders or dict.fromkeys(range(partitions), node)
        self.requests: list[tuple[int, int, float]] = []
        self.logs: dict[Partition, list[bytes]] = {}
        self.tokens: dict[Partition, list[str]] = {}
        self.throttle_ms = 0
        self.error_code = 0
        self.last_versions = dict(profiles.JAVA.versions)
        self.twist: Callable[[int, list[bytes]], list[bytes]] = lambda api_key, frames: frames
        self.ends: list[End] = []
        self._buffers: dict[tuple[str, int], bytearray] = {}
        self._listening = world.network.listen(self.address, self._accept)

    def _accept(self, end: "End") -> "SmallBroker":
        self.ends.append(end)
        self._buffers[end.remote] = bytearray()
        return self

    def connected(self, end: "End") -> None:
        """Wait for requests."""

    def drained(self, end: "End") -> None:
        """Go on."""

    def ended(self, end: "End") -> None:
        """Close too."""
        end.close()

    def lost(self, end: "End", is_reset: bool) -> None:
        """Forget the connection."""

    def received(self, end: "End", data: bytes) -> None:
        """Answer each whole request."""
        buffer = self._buffers[end.remote]
        buffer += data
        while len(buffer) >= 4 and len(buffer) >= 4 + int.from_bytes(buffer[:4]):
            size = 4 + int.from_bytes(buffer[:4])
            frame = bytes(buffer[:size])
            del buffer[:size]
            api_key = parse_header(frame).api_key
            for response in self.twist(api_key, self._answer(frame)):
                end.write(response)

    def _answer(self, frame: bytes) -> list[bytes]:
        header = parse_header(frame)
        key, version, correlation_id = header.api_key, header.api_version, header.correlation_id
        self.requests.append((key, version, self.world.clock.now_ms))
        self.world.ledger.at_broker(self.node, frame, correlation_id)
        if key == api_versions.API_KEY:
            apis = {api_key: (0, last) for api_key, last in self.last_versions.items()}
            return [api_versions.response(correlation_id, version, apis)]
        if key == metadata.API_KEY:
            partitions = [metadata.Partition(each, leader, [leader], [leader]) for each, leader in self.leaders.items()]
            return [
                metadata.response(
                    correlation_id, version,
                    [NodeEndpoint(node, *address) for node, address in self.peers.items()],
                    [metadata.Topic("t", partitions, TOPIC_ID if version >= 10 else bytes(16))],
                )
            ]  # fmt: skip
        if key == produce.API_KEY:
            return self._append(frame, version, correlation_id)
        return [self._read(frame, version, correlation_id)]

    def _append(self, frame: bytes, version: int, correlation_id: int) -> list[bytes]:
        request = produce.parse_request(frame)
        answers = []
        for topic, partitions in request.topics:
            rows = []
            for number, records in partitions:
                if self.error_code:
                    rows.append(produce.PartitionAnswer(number, self.error_code))
                    continue
                assert records is not None
                log = self.logs.setdefault(("t", number), [])
                self.tokens.setdefault(("t", number), []).append(parse_batch(records).token)
                rows.append(produce.PartitionAnswer(number, 0, len(log)))
                log.append(appended(records, len(log), 0))
            answers.append(produce.TopicAnswer(topic, rows))
        if request.acks == 0:
            return []
        return [produce.response(correlation_id, version, answers, throttle_ms=self.throttle_ms)]

    def _read(self, frame: bytes, version: int, correlation_id: int) -> bytes:
        request = fetch.parse_request(frame)
        topics = []
        for topic, partitions in request.topics:
            rows = []
            for asked in partitions:
                log = self.logs.get(("t", asked.partition), [])
                is_leader = self.leaders[asked.partition] == self.node
                records = b"".join(log[asked.offset : asked.offset + 3]) if is_leader else b""
                rows.append(fetch.FetchedPartition(asked.partition, records, 0 if is_leader else 6))
            topics.append(fetch.FetchedTopic(topic, rows))
        return fetch.response(correlation_id, version, topics, throttle_ms=self.throttle_ms)
