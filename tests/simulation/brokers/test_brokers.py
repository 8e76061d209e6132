"""The simulated brokers keep and serve logs as Kafka does, and fail as it does.

What clients can see of that is tested with the simulated clients.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.simulation.brokers.cluster import Cluster
from tests.simulation.ledger import Entity, Exchange
from tests.simulation.network import End, Handler
from tests.simulation.violation import Violation
from tests.simulation.wire import records, transfer
from tests.simulation.wire.common import correlation_id_of
from tests.simulation.wire.transfer import FetchPartition
from tests.simulation.world import World

FIRST, SECOND = [FetchPartition(0, 0)], [FetchPartition(0, 1)]


class Client(Handler):
    """Sends frames to the first of three brokers, and keeps what comes back."""

    def __init__(self, world: World, cluster: Cluster) -> None:
        self.world, self.cluster = world, cluster
        self.frames: list[bytes] = []
        self.arrived_ms: list[float] = []
        self.is_over = False
        self._data = b""
        self.end = world.network.connect("10.0.2.1", ("10.0.1.1", 9092), self)
        self.run(20)
        self.end.link.latency_ns = 1_000_000

    def received(self, end: End, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 4 and len(self._data) >= (size := int.from_bytes(self._data[:4]) + 4):
            self.frames.append(self._data[:size])
            self.arrived_ms.append(self.world.clock.now_ms)
            self._data = self._data[size:]

    def ended(self, end: End) -> None:
        self.is_over = True

    def lost(self, end: End, is_reset: bool) -> None:
        self.is_over = True

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

    def tokens(self) -> list[str]:
        """Return the tokens of the first partition's log."""
        return [batch.token for batch in self.cluster.partitions["t", 0].log.batches]


@pytest.fixture
def client() -> Client:
    world = World(1)
    cluster = Cluster(world, [1, 2, 3])
    cluster.start()
    cluster.create_topic("t", 2, replicas=[[1, 2], [1, 3]])
    return Client(world, cluster)


def produced(token: str, *, partition: int = 0, number: int = 7, acks: int = 1, size: int = 0, **batch: Any) -> bytes:
    """Return a Produce with a batch, which may be that of an idempotent producer."""
    data = records.write_batch(records.Batch(token, size, **batch))
    topics = [transfer.TopicData("t", [transfer.PartitionData(partition, data)])]
    return transfer.produce.request(number, 9, "tester", topics, acks=acks, timeout_ms=200)


def sequenced(number: int) -> bytes:
    return produced(f"b{number}", producer_id=5, epoch=0, base_sequence=number)


def outcome(frame: bytes) -> tuple[int, int]:
    answer = transfer.produce.parse_response(frame, 9).topics[0].partitions[0]
    return answer.error_code, answer.base_offset


def fetched(partitions: Sequence[FetchPartition], **more: Any) -> bytes:
    return transfer.fetch.request(
        9, 12, "tester", [transfer.FetchTopic("t", partitions)], **{"max_wait_ms": 100} | more
    )


def tokens(frame: bytes) -> list[list[str]]:
    """Return the tokens of each partition in a Fetch response."""
    return [
        [batch.token for batch in records.parse_batches(partition.records or b"", may_be_cut=True)]
        for topic in transfer.fetch.parse_response(frame, 12).topics
        for partition in topic.partitions
    ]


def test_consumers_see_only_what_all_in_sync_replicas_have(client: Client) -> None:
    client.cluster.route = lambda follower, leader: ("10.0.1.1", 9093)  # nobody copies
    replica = Client(client.world, client.cluster)
    assert outcome(client.ask(produced("a"))) == (0, 0)
    assert tokens(client.ask(fetched(FIRST, max_wait_ms=0))) == [[]]
    client.send(produced("b", acks=-1))
    assert tokens(replica.ask(fetched(FIRST, replica_id=2))) == [["a", "b"]]
    assert len(client.frames) == 2
    replica.send(fetched([FetchPartition(0, 2)], replica_id=2))
    assert outcome(client.frames[2]) == (0, 1)
    assert tokens(client.ask(fetched(FIRST))) == [["a", "b"]]
    client.send(produced("c", acks=-1), 220)
    assert outcome(client.frames[-1])[0] == 7  # it times out


def test_the_next_request_waits_for_a_long_poll(client: Client) -> None:
    client.end.write(fetched(FIRST, max_wait_ms=300))
    client.send(produced("a", partition=1), 290)
    assert client.frames == []
    client.run(30)
    assert tokens(client.frames[0]) == [[]]
    assert outcome(client.frames[1]) == (0, 0)


def test_a_duplicate_of_an_idempotent_producer_is_answered_and_not_appended(client: Client) -> None:
    for number in range(7):
        assert outcome(client.ask(sequenced(number))) == (0, number)
    assert outcome(client.ask(sequenced(3))) == (0, 3)
    assert outcome(client.ask(sequenced(1)))[0] == 45
    assert outcome(client.ask(sequenced(9)))[0] == 45
    assert client.tokens() == [f"b{number}" for number in range(7)]


def test_a_fetch_ends_where_its_limit_ends_also_within_a_batch_but_the_first(client: Client) -> None:
    for partition in (0, 1):
        for token in "abc":
            client.ask(produced(token, size=1_000, partition=partition))
    both = [FetchPartition(index, 0, max_bytes=2_500) for index in (0, 1)]
    for max_bytes, of_first, of_second in ((4_100, 2_500, 1_600), (3_000, 2_500, 0), (1_999, 1_999, 0), (1, 1_000, 0)):
        frame = client.ask(fetched(both, max_bytes=max_bytes))
        ((_, parts),) = transfer.fetch.parse_response(frame, 12).topics
        assert [len(part.records or b"") for part in parts] == [of_first, of_second]
        assert tokens(frame) == [["a", "b"][: of_first // 1_000], ["a", "b"][: of_second // 1_000]]


def test_offsets_epochs_and_sessions_out_of_range_are_errors(client: Client) -> None:
    partition = client.cluster.partitions["t", 0]
    for leader in (2, 1):
        client.cluster.move_leader(partition, leader)

    def error(asked: FetchPartition) -> int:
        return transfer.fetch.parse_response(client.ask(fetched([asked])), 12).topics[0].partitions[0].error_code

    wrong = (
        FetchPartition(0, 5),
        FetchPartition(9, 0),
        FetchPartition(0, 0, leader_epoch=0),
    )
    assert [error(asked) for asked in (*wrong, FetchPartition(0, 0, leader_epoch=9))] == [1, 3, 74, 75]
    client.cluster.move_leader(partition, 2)
    assert error(FIRST[0]) == 6
    frame = client.ask(fetched(FIRST, session_id=77, session_epoch=1))
    assert transfer.fetch.parse_response(frame, 12).error_code == 70


def test_a_crash_loses_what_nobody_was_promised(client: Client) -> None:
    cluster = client.cluster
    cluster.route = lambda follower, leader: ("10.0.1.1", 9093)
    client.ask(produced("kept"))
    client.send(produced("gone", acks=-1))
    cluster.brokers[1].crash(loses_tail=True)
    client.run(20)
    assert client.is_over
    assert client.tokens() == ["kept"]
    assert [lost.token for lost in cluster.lost] == ["gone"]
    client.run(1_000)
    assert cluster.partitions["t", 0].leader == 2
    assert [lost.token for lost in cluster.lost] == ["gone", "kept"]
    assert Client(client.world, cluster).is_over
    cluster.brokers[1].start()
    assert not Client(client.world, cluster).is_over


def test_a_stalled_broker_answers_later_and_in_order(client: Client) -> None:
    client.cluster.brokers[1].stall(200)
    client.end.write(produced("a", number=1))
    client.send(produced("b", number=2), 190)
    assert client.frames == []
    client.run(30)
    assert [correlation_id_of(frame) for frame in client.frames] == [1, 2]


def test_a_throttled_connection_is_muted_and_told_so(client: Client) -> None:
    broker = client.cluster.brokers[1]
    broker.throttle_share, broker.throttle_ms = 1.0, (250, 250)
    client.end.write(produced("a"))
    client.send(produced("b"), 300)
    assert transfer.produce.parse_response(client.frames[0], 9).throttle_ms == 250
    assert 245 <= client.arrived_ms[1] - client.arrived_ms[0] < 260


def test_a_frame_that_arrives_damaged_fails_the_world_if_a_client_has_sent_it(client: Client) -> None:
    stranger = Client(client.world, client.cluster)
    stranger.send(b"GET / HTTP/1.0\r\n\r\n")
    assert stranger.is_over
    ledger = client.world.ledger
    frame = produced("a", number=ledger.next_id())
    entity = Entity("ANONYMOUS", "tester", "10.0.2.1")
    more: dict[str, Any] = {"api_key": 0, "api_version": 9, "connection": 1}
    ledger.sent(Exchange(correlation_id_of(frame[4:]), frame, client="p", entity=entity, **more))
    with pytest.raises(Violation, match="broker frame"):
        client.send(frame[:-3] + b"\1" + frame[-2:])


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_response_that_is_cut_or_has_an_odd_number_acknowledges_nothing(client: Client, is_cut: bool) -> None:
    broker = client.cluster.brokers[1]
    broker.cuts_next_response, broker.misnumbers_next_response = is_cut, not is_cut
    client.send(produced("a"))
    assert [frame[4:8] for frame in client.frames] == ([] if is_cut else [b"\x7f\xff\xff\xff"])
    assert client.is_over
    assert [batch.is_acknowledged for batch in client.cluster.partitions["t", 0].log.batches] == [False]


def test_followers_survive_leaders_that_move_crash_and_lose_topics(client: Client) -> None:
    cluster, partition = client.cluster, client.cluster.partitions["t", 0]
    cluster.start_followers(lambda follower, leader: (f"10.0.1.{leader}", 9093), version=13)
    cluster.create_topic("u", 3, replication=3)
    client.run(100)
    for number, leader in enumerate((2, 1, 2, 1)):
        client.send(produced(f"b{number}", acks=-1), 100)
        cluster.move_leader(partition, leader)
        if number == 2:
            cluster.delete_topic("u")
        client.run(2_000)
    cluster.brokers[2].crash()
    client.run(2_000)
    cluster.brokers[2].start()
    client.run(2_000)
    assert (partition.states[2].log_end, partition.isr) == (partition.log.end_offset, [1, 2])
    cluster.isr_changes.clear()
    cluster.brokers[2].stall(30_000)
    client.send(produced("a", acks=-1), 40_000)
    for follower in cluster.followers:
        if follower.node_id == 2:
            follower.stop()
    client.send(produced("b", acks=-1), 20_000)
    reasons = [change.reason for change in cluster.isr_changes]
    assert reasons[:2] == ["its broker has stalled", "it has caught up"]
    assert reasons[2].startswith("it lags for 1")
