"""What the tests of the brokers say to them, and how they read the answers."""

from collections.abc import Sequence

from tests.simulation.network import End
from tests.simulation.wire import fetch, produce, records
from tests.simulation.wire.produce import PartitionData, TopicData
from tests.simulation.world import World


class Client:
    """Sends frames to a broker and keeps what comes back."""

    def __init__(self, world: World, address: tuple[str, int]) -> None:
        self.world = world
        self.frames: list[bytes] = []
        self.arrived_ms: list[float] = []
        self.is_lost = False
        self.has_ended = False
        self._data = b""
        self.end = world.network.connect("10.0.2.1", address, self)
        self.run(20)
        self.end.link.latency_ns = 1_000_000

    def connected(self, end: End) -> None:
        """The connection is open."""

    def received(self, end: End, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 4 and len(self._data) >= (size := int.from_bytes(self._data[:4], "big") + 4):
            self.frames.append(self._data[:size])
            self.arrived_ms.append(self.world.clock.now_ms)
            self._data = self._data[size:]

    def ended(self, end: End) -> None:
        self.has_ended = True

    def lost(self, end: End, is_reset: bool) -> None:
        self.is_lost = True

    def drained(self, end: End) -> None:
        """All is sent."""

    def run(self, for_ms: float) -> None:
        self.world.scheduler.run_until(self.world.clock.now_ns + int(for_ms * 1_000_000))

    def send(self, frame: bytes, for_ms: float = 20) -> None:
        self.end.write(frame)
        self.run(for_ms)

    def ask(self, frame: bytes, for_ms: float = 20) -> bytes:
        """Send a request and return the one response that comes in this time."""
        before = len(self.frames)
        self.send(frame, for_ms)
        assert len(self.frames) == before + 1
        return self.frames[-1]


def batch(token: str, *, sequence: int = -1, count: int = 1, producer_id: int = -1, size: int = 0) -> bytes:
    epoch = -1 if producer_id < 0 else 0
    return records.write_batch(records.Batch(token, size, count, producer_id, epoch, sequence))


def produced(
    data: bytes, *, acks: int = 1, correlation_id: int = 7, partition: int = 0, timeout_ms: int = 30_000
) -> bytes:
    return produce.request(
        correlation_id,
        9,
        "tester",
        [TopicData("t", [PartitionData(partition, data)])],
        acks=acks,
        timeout_ms=timeout_ms,
    )


def outcome(frame: bytes) -> tuple[int, int]:
    answer = produce.parse_response(frame, 9).topics[0].partitions[0]
    return answer.error_code, answer.base_offset


def fetched(
    partitions: Sequence[fetch.FetchPartition], *, wait_ms: int = 500, min_bytes: int = 1, max_bytes: int = 1 << 20,
    session: tuple[int, int] = (0, -1), replica_id: int = -1,
) -> bytes:  # fmt: skip
    topics = [fetch.FetchTopic("t", partitions)] if partitions else []
    return fetch.request(
        9, 12, "tester", topics, max_wait_ms=wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, session_id=session[0],
        session_epoch=session[1], replica_id=replica_id,
    )  # fmt: skip


def tokens(frame: bytes) -> dict[int, list[str]]:
    """Return the tokens of each partition in a Fetch response."""
    response = fetch.parse_response(frame, 12)
    return {
        partition.partition: [batch.token for batch in records.parse_batches(partition.records or b"", may_be_cut=True)]
        for topic in response.topics
        for partition in topic.partitions
    }
