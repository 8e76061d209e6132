"""The simulated brokers keep and serve logs as Kafka does, and fail as it does."""

import pytest

from tests.simulation.brokers.cluster import Cluster
from tests.simulation.brokers.talk import Client, batch, fetched, outcome, produced, tokens
from tests.simulation.ledger import Entity, Exchange
from tests.simulation.violation import Violation
from tests.simulation.wire import (
    fetch,
    produce,
    records,
)
from tests.simulation.wire.common import correlation_id_of
from tests.simulation.world import World

_ENTITY = Entity("ANONYMOUS", "tester", "10.0.2.1")


def test_what_is_produced_is_fetched_to_the_byte(client: Client, cluster: Cluster) -> None:
    assert outcome(client.ask(produced(batch("a", count=3, size=5_000)))) == (0, 0)
    assert outcome(client.ask(produced(batch("b")))) == (0, 3)
    frame = client.ask(fetched([fetch.FetchPartition(0, 0)]))
    assert tokens(frame) == {0: ["a", "b"]}
    found = fetch.parse_response(frame, 12).topics[0].partitions[0].records
    assert found == b"".join(
        (records.appended(batch("a", count=3, size=5_000), 0, 0), records.appended(batch("b"), 3, 0))
    )
    assert cluster.log_of("t", 0) == ["a", "b"]
    assert tokens(client.ask(fetched([fetch.FetchPartition(0, 2)]))) == {0: ["a", "b"]}
    assert tokens(client.ask(fetched([fetch.FetchPartition(0, 3)]))) == {0: ["b"]}


def test_frames_are_put_together_and_answered_in_order(client: Client) -> None:
    stream = b"".join(produced(batch(f"b{number}"), correlation_id=number) for number in range(5))
    for byte in stream[:150]:
        client.end.write(bytes((byte,)))
    client.send(stream[150:])
    assert [correlation_id_of(frame) for frame in client.frames] == [0, 1, 2, 3, 4]
    assert [outcome(frame)[1] for frame in client.frames] == [0, 1, 2, 3, 4]


def test_the_next_request_waits_for_a_long_poll(client: Client) -> None:
    client.end.write(fetched([fetch.FetchPartition(0, 0)], wait_ms=300))
    client.send(produced(batch("a"), partition=1), 290)
    assert client.frames == []
    client.run(30)
    assert tokens(client.frames[0]) == {0: []}
    assert outcome(client.frames[1]) == (0, 0)


def test_a_long_poll_ends_when_there_is_enough(world: World, client: Client) -> None:
    other = Client(world, ("10.0.1.1", 9092))
    size = len(batch("a", size=500))
    client.send(fetched([fetch.FetchPartition(0, 0)], wait_ms=5_000, min_bytes=2 * size))
    other.ask(produced(batch("a", size=500)))
    assert client.frames == []
    other.ask(produced(batch("b", size=500)))
    assert tokens(client.frames[0]) == {0: ["a", "b"]}


def test_consumers_see_only_what_all_in_sync_replicas_have(world: World, client: Client, cluster: Cluster) -> None:
    cluster.route = lambda follower, leader: ("10.0.1.1", 9093)  # nobody copies
    replica = Client(world, ("10.0.1.1", 9093))
    assert outcome(client.ask(produced(batch("a"), acks=1))) == (0, 0)
    assert tokens(client.ask(fetched([fetch.FetchPartition(0, 0)], wait_ms=0))) == {0: []}
    client.send(produced(batch("b"), acks=-1))
    assert len(client.frames) == 2
    assert tokens(replica.ask(fetched([fetch.FetchPartition(0, 0)], replica_id=2))) == {0: ["a", "b"]}
    assert len(client.frames) == 2
    replica.send(fetched([fetch.FetchPartition(0, 2)], replica_id=2, wait_ms=100))
    assert outcome(client.frames[2]) == (0, 1)
    assert tokens(client.ask(fetched([fetch.FetchPartition(0, 0)]))) == {0: ["a", "b"]}


def test_acks_of_all_times_out_without_replicas(client: Client, cluster: Cluster) -> None:
    cluster.route = lambda follower, leader: ("10.0.1.1", 9093)
    client.send(produced(batch("a"), acks=-1, timeout_ms=200), 190)
    assert client.frames == []
    client.run(30)
    assert outcome(client.frames[0])[0] == 7
    assert cluster.log_of("t", 0) == []
    assert cluster.tokens_of("t", 0) == ["a"]


def test_a_duplicate_of_an_idempotent_producer_is_answered_and_not_appended(client: Client, cluster: Cluster) -> None:
    for number in range(7):
        assert outcome(client.ask(produced(batch(f"b{number}", producer_id=5, sequence=number)))) == (0, number)
    assert outcome(client.ask(produced(batch("b3", producer_id=5, sequence=3)))) == (0, 3)
    assert outcome(client.ask(produced(batch("b1", producer_id=5, sequence=1))))[0] == 45
    assert outcome(client.ask(produced(batch("b9", producer_id=5, sequence=9))))[0] == 45
    assert cluster.log_of("t", 0) == [f"b{number}" for number in range(7)]


def test_the_first_batch_of_a_fetch_may_be_larger_than_its_limits(client: Client) -> None:
    for partition in (0, 1):
        for token in "ab":
            client.ask(produced(batch(token, size=1_000), partition=partition))
    both = [fetch.FetchPartition(0, 0, max_bytes=10), fetch.FetchPartition(1, 0, max_bytes=2_500)]
    assert tokens(client.ask(fetched(both))) == {0: ["a"], 1: ["a", "b"]}
    assert tokens(client.ask(fetched(both, max_bytes=2_100))) == {0: ["a"], 1: ["a"]}
    assert tokens(client.ask(fetched(both, max_bytes=5))) == {0: ["a"], 1: []}


def test_a_fetch_ends_where_its_limit_ends_also_within_a_batch(client: Client) -> None:
    for partition in (0, 1):
        for token in "abc":
            client.ask(produced(batch(token, size=1_000), partition=partition))
    both = [fetch.FetchPartition(0, 0, max_bytes=2_500), fetch.FetchPartition(1, 0, max_bytes=2_500)]
    for max_bytes, of_first, of_second in ((4_100, 2_500, 1_600), (3_000, 2_500, 0), (1_999, 1_999, 0), (1, 1_000, 0)):
        frame = client.ask(fetched(both, max_bytes=max_bytes))
        ((_, parts),) = fetch.parse_response(frame, 12).topics
        assert [len(part.records or b"") for part in parts] == [of_first, of_second]
        whole = {0: ["a", "b"][: of_first // 1_000], 1: ["a", "b"][: of_second // 1_000]}
        assert tokens(frame) == whole


def test_a_session_tells_only_what_is_new(client: Client) -> None:
    both = [fetch.FetchPartition(0, 0), fetch.FetchPartition(1, 0)]
    first = client.ask(fetched(both, session=(0, 0), wait_ms=0))
    session_id = fetch.parse_response(first, 12).session_id
    assert session_id
    assert tokens(first) == {0: [], 1: []}
    assert tokens(client.ask(fetched([], session=(session_id, 1), wait_ms=10))) == {}
    client.ask(produced(batch("a"), partition=1))
    assert tokens(client.ask(fetched([], session=(session_id, 2)))) == {1: ["a"]}
    moved = client.ask(fetched([fetch.FetchPartition(1, 1)], session=(session_id, 3), wait_ms=10))
    assert tokens(moved) == {}
    stale = client.ask(fetched([], session=(session_id, 3)))
    assert fetch.parse_response(stale, 12).error_code == 71
    unknown = client.ask(fetched([], session=(session_id + 1, 1)))
    assert fetch.parse_response(unknown, 12).error_code == 70


def test_offsets_and_epochs_out_of_range_are_errors(client: Client, cluster: Cluster) -> None:
    cluster.move_leader(cluster.partitions["t", 0], 2)
    cluster.move_leader(cluster.partitions["t", 0], 1)

    def error(partition: fetch.FetchPartition) -> int:
        response = fetch.parse_response(client.ask(fetched([partition])), 12)
        return response.topics[0].partitions[0].error_code

    assert error(fetch.FetchPartition(0, 5)) == 1
    assert error(fetch.FetchPartition(9, 0)) == 3
    assert error(fetch.FetchPartition(0, 0, leader_epoch=0)) == 74
    assert error(fetch.FetchPartition(0, 0, leader_epoch=9)) == 75
    cluster.move_leader(cluster.partitions["t", 0], 2)
    assert error(fetch.FetchPartition(0, 0)) == 6


def test_a_crash_loses_what_nobody_was_promised(client: Client, cluster: Cluster) -> None:
    cluster.route = lambda follower, leader: ("10.0.1.1", 9093)
    client.ask(produced(batch("kept"), acks=1))
    client.send(produced(batch("gone"), acks=-1))
    cluster.brokers[1].crash(loses_tail=True)
    client.run(20)
    assert client.is_lost
    assert cluster.tokens_of("t", 0) == ["kept"]
    assert [(lost.token, lost.was_acknowledged) for lost in cluster.lost] == [("gone", False)]
    client.run(1_000)
    assert cluster.partitions["t", 0].leader == 2
    assert [(lost.token, lost.was_acknowledged) for lost in cluster.lost[1:]] == [("kept", True)]
    refused = Client(client.world, ("10.0.1.1", 9092))
    assert refused.is_lost
    cluster.brokers[1].start()
    assert not Client(client.world, ("10.0.1.1", 9092)).is_lost


def test_a_stalled_broker_answers_later_and_in_order(client: Client, cluster: Cluster) -> None:
    cluster.brokers[1].stall(200)
    client.end.write(produced(batch("a"), correlation_id=1))
    client.send(produced(batch("b"), correlation_id=2), 190)
    assert client.frames == []
    client.run(30)
    assert [correlation_id_of(frame) for frame in client.frames] == [1, 2]


def test_a_throttled_connection_is_muted_and_told_so(client: Client, cluster: Cluster) -> None:
    broker = cluster.brokers[1]
    broker.throttle_share, broker.throttle_ms = 1.0, (250, 250)
    client.end.write(produced(batch("a"), correlation_id=1))
    client.send(produced(batch("b"), correlation_id=2), 240)
    assert [produce.parse_response(frame, 9).throttle_ms for frame in client.frames] == [250]
    client.run(30)
    assert len(client.frames) == 2
    assert 245 <= client.arrived_ms[1] - client.arrived_ms[0] < 260


def test_a_frame_that_arrives_damaged_fails_the_world(world: World, client: Client) -> None:
    frame = produced(batch("a"), correlation_id=world.ledger.next_id())
    exchange = Exchange(
        world.ledger.next_id() - 1, frame, api_key=0, api_version=9, client="p", connection=1, entity=_ENTITY
    )
    world.ledger.sent(exchange)
    with pytest.raises(Violation, match="broker frame"):
        client.send(frame[:-3] + b"\1" + frame[-2:])


def test_bytes_of_strangers_close_their_connection_only(client: Client) -> None:
    client.send(b"GET / HTTP/1.0\r\n\r\n")
    assert client.has_ended or client.is_lost


def test_a_response_that_is_cut_acknowledges_nothing(client: Client, cluster: Cluster) -> None:
    cluster.brokers[1].cuts_next_response = True
    client.send(produced(batch("a")))
    assert client.frames == []
    assert client.is_lost or client.has_ended
    assert cluster.log_of("t", 0) == []
    assert cluster.tokens_of("t", 0) == ["a"]


def test_response_with_an_odd_number_acknowledges_nothing(client: Client, cluster: Cluster) -> None:
    cluster.brokers[1].misnumbers_next_response = True
    client.send(produced(batch("a")))
    assert [frame[4:8] for frame in client.frames] == [b"\x7f\xff\xff\xff"]
    assert cluster.log_of("t", 0) == []


def test_expired_batches_are_out_of_range_and_remembered(client: Client, cluster: Cluster) -> None:
    for token in "abc":
        client.ask(produced(batch(token, count=2), acks=-1))
    cluster.expire(cluster.partitions["t", 0], 3)
    response = fetch.parse_response(client.ask(fetched([fetch.FetchPartition(0, 0)])), 12)
    assert response.topics[0].partitions[0].error_code == 1
    frame = client.ask(fetched([fetch.FetchPartition(0, 2)]))
    assert tokens(frame) == {0: ["b", "c"]}
    assert fetch.parse_response(frame, 12).topics[0].partitions[0].log_start_offset == 2
    assert cluster.log_of("t", 0) == ["a", "b", "c"]
    cluster.expire(cluster.partitions["t", 0], 6)
    assert tokens(client.ask(fetched([fetch.FetchPartition(0, 6)], wait_ms=0))) == {0: []}
    assert outcome(client.ask(produced(batch("d")))) == (0, 6)
    assert tokens(client.ask(fetched([fetch.FetchPartition(0, 6)], wait_ms=100), 120)) == {0: ["d"]}
