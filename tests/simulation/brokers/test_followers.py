"""Simulated followers copy, and those that lag leave the in-sync replicas."""

from tests.simulation.brokers.cluster import Cluster
from tests.simulation.brokers.talk import Client, batch, outcome, produced
from tests.simulation.world import World


def test_followers_copy_and_let_consumers_see(world: World, cluster: Cluster, client: Client) -> None:
    cluster.start_followers(lambda follower, leader: (f"10.0.1.{leader}", 9093))
    client.run(100)
    for number in range(10):
        assert outcome(client.ask(produced(batch(f"b{number}", size=3_000), acks=-1), 200)) == (0, number)
    assert cluster.log_of("t", 0) == [f"b{number}" for number in range(10)]
    assert cluster.partitions["t", 0].high_watermark == 10
    copied = {follower.name: follower.copied_bytes for follower in cluster.followers if follower.copied_bytes}
    assert copied == {"follower-2-of-1": 30_000}
    assert cluster.isr_changes == []


def test_a_follower_that_is_cut_off_leaves_the_isr_and_comes_back(
    world: World, cluster: Cluster, client: Client
) -> None:
    cluster.start_followers(lambda follower, leader: (f"10.0.1.{leader}", 9093))
    client.run(100)
    cluster.brokers[2].crash()
    assert [(change.node_id, change.is_in_sync) for change in cluster.isr_changes] == [(2, False)]
    assert outcome(client.ask(produced(batch("a"), acks=-1))) == (0, 0)
    cluster.brokers[2].start()
    client.run(1_500)
    assert [(change.node_id, change.is_in_sync) for change in cluster.isr_changes] == [(2, False), (2, True)]
    for follower in cluster.followers:
        if follower.node_id == 2:
            follower.stop()
    client.send(produced(batch("b"), acks=-1), 20_000)
    assert cluster.isr_changes[2].reason.startswith("it lags for 1")
    assert outcome(client.frames[-1]) == (0, 1)


def test_followers_survive_leaders_that_move_crash_and_lose_topics(
    world: World, cluster: Cluster, client: Client
) -> None:
    cluster.start_followers(lambda follower, leader: (f"10.0.1.{leader}", 9093), version=13)
    cluster.create_topic("u", 3, replication=3)
    client.run(100)
    partition = cluster.partitions["t", 0]
    for number, leader in enumerate((2, 1, 2, 1)):
        client.send(produced(batch(f"b{number}"), acks=-1), 100)
        cluster.move_leader(partition, leader)
        if number == 2:
            cluster.delete_topic("u")
        client.run(2_000)
    cluster.brokers[2].crash()
    client.run(2_000)
    cluster.brokers[2].start()
    assert outcome(client.ask(produced(batch("last"), acks=-1), 2_000))[0] == 0
    client.run(2_000)
    assert partition.states[2].log_end == partition.log.end_offset
    assert partition.isr == [1, 2]


def test_a_follower_that_stalls_leaves_the_isr_for_that_reason(cluster: Cluster, client: Client) -> None:
    cluster.start_followers(lambda follower, leader: (f"10.0.1.{leader}", 9093))
    client.run(100)
    cluster.brokers[2].stall(30_000)
    client.send(produced(batch("a"), acks=-1), 40_000)
    assert [(change.is_in_sync, change.reason) for change in cluster.isr_changes] == [
        (False, "its broker has stalled"),
        (True, "it has caught up"),
    ]
