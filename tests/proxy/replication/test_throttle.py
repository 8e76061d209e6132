"""Tests which limits apply to a partition, by lists of replicas, brokers and the cluster's configuration."""

from collections.abc import Mapping

from kafka_quota_proxy.config.model import Address, KafkaSettings, Replication
from kafka_quota_proxy.config.throttled_replicas import ThrottledReplicas, parse
from kafka_quota_proxy.proxy.replication.cluster_view import ClusterView
from kafka_quota_proxy.proxy.replication.throttle import Throttle

NOW_MS = 86_400_000
ADDRESS = Address(host="127.0.0.1", port=9092)


def lists(**values: str) -> Mapping[str, ThrottledReplicas]:
    return {topic: parse(value) for topic, value in values.items()}


def limits_of(
    throttle: Throttle, topic: str, partition: int, *, leader: int | None = 1, follower: int = 3
) -> list[float | None]:
    """Return the limit of each quota that the bytes of a partition are charged to."""
    limits = throttle.leader(ADDRESS, leader).limits(follower, now_ms=NOW_MS)
    return [charge.quota.limit for charge in limits.charges(topic.encode(), partition, is_id=False)]


def throttle_of(view: ClusterView | None = None, **file: object) -> Throttle:
    throttle = Throttle(Replication(**file), KafkaSettings())  # type: ignore[arg-type]
    if view is not None:
        throttle.see(view, now_ms=NOW_MS)
    return throttle


def test_v21_only_listed_replicas_are_throttled() -> None:
    throttle = throttle_of(leader_rate=100.0, leader_replicas=lists(topic1="1:1,2:1,3:1"), follower_replicas={})
    assert [limits_of(throttle, "topic1", partition) for partition in (1, 2, 3, 4)] == [[100], [100], [100], []]


def test_v21_a_wildcard_is_for_all_partitions_of_its_topic() -> None:
    throttle = throttle_of(leader_rate=100.0, leader_replicas=lists(MyTopic="*"), follower_replicas={})
    assert limits_of(throttle, "MyTopic", 0) == [100]
    assert limits_of(throttle, "MyOtherTopic", 0) == []


def test_v42_list_holds_for_the_brokers_that_it_names() -> None:
    replicas = lists(topic="0:101,0:102,1:101,1:102")
    throttle = throttle_of(leader_rate=1.0, leader_replicas=replicas, follower_replicas={})
    assert [limits_of(throttle, "topic", partition, leader=102) for partition in (0, 1, 2)] == [[1], [1], []]
    assert limits_of(throttle, "topic", 0, leader=103) == []


SOURCES_AND_DESTINATIONS = {
    ("foo", 0): ({1, 2, 3}, {5}),
    ("foo", 1): ({4, 5, 6}, {7, 8}),
    ("foo", 2): ({1, 2}, {3, 4}),
    ("foo", 3): ({1, 2}, {5, 6}),
    ("foo", 4): ({1, 2}, {3}),
    ("foo", 5): ({1, 2}, {3, 4, 5, 6}),
    ("bar", 0): ({2, 3, 4}, {1}),
}


def test_v44_the_lists_of_a_reassignment_throttle_its_sources_and_its_destinations() -> None:
    view = ClusterView(
        leader_replicas=lists(
            foo="0:1,0:2,0:3,1:4,1:5,1:6,2:1,2:2,3:1,3:2,4:1,4:2,5:1,5:2",
            bar="0:2,0:3,0:4",
        ),
        follower_replicas=lists(foo="0:5,1:7,1:8,2:3,2:4,3:5,3:6,4:3,5:3,5:4,5:5,5:6", bar="0:1"),
        leader_rates=dict.fromkeys(range(1, 9), 10.0),
        follower_rates=dict.fromkeys(range(1, 9), 20.0),
    )
    throttle = throttle_of(view, from_cluster=True)
    for (topic, partition), (sources, destinations) in SOURCES_AND_DESTINATIONS.items():
        for broker in range(1, 9):
            assert (10 in limits_of(throttle, topic, partition, leader=broker, follower=99)) is (broker in sources)
            assert (20 in limits_of(throttle, topic, partition, leader=99, follower=broker)) is (broker in destinations)


def test_v47_each_broker_has_the_rate_that_was_set_last() -> None:
    rates = {0: 1_000.0, 1: 1_000.0, 2: 1_000.0} | {0: 100.0, 3: 100.0}
    view = ClusterView(
        leader_rates=rates,
        follower_rates=rates,
        leader_replicas=lists(foo="*", bar="*"),
        follower_replicas=lists(bar="*"),
    )
    throttle = throttle_of(view, from_cluster=True)
    for broker, rate in ((0, 100), (1, 1_000), (2, 1_000), (3, 100)):
        assert limits_of(throttle, "foo", 0, leader=broker, follower=broker) == [rate], "foo has no list of followers"
        assert limits_of(throttle, "bar", 0, leader=broker, follower=broker) == [rate, rate]
    assert limits_of(throttle, "foo", 0, leader=4) == [None], "listed, without a rate: measured, not limited"


def test_without_lists_every_topic_is_throttled_and_in_sync_replicas_are_not_charged() -> None:
    throttle = throttle_of(leader_rate=5.0)
    limits = throttle.leader(ADDRESS, 1).limits(3, now_ms=NOW_MS)
    charges = limits.charges(b"any", 7, is_id=False)
    assert [(charge.quota.limit, charge.counts_all) for charge in charges] == [(5, False), (None, False)]
    listed = throttle_of(leader_rate=5.0, leader_replicas=lists(any="*"), follower_replicas={})
    assert [
        charge.counts_all
        for charge in listed.leader(ADDRESS, 1).limits(3, now_ms=NOW_MS).charges(b"any", 7, is_id=False)
    ] == [True]


def test_unknown_topic_id_is_requested_and_throttled_where_all_topics_are() -> None:
    asked: list[bool] = []
    throttle = throttle_of(leader_rate=5.0, leader_replicas=lists(moving="*"), follower_replicas={})
    throttle.ask = lambda: asked.append(True)
    leader = throttle.leader(ADDRESS, 1)
    limits = leader.limits(3, now_ms=NOW_MS)
    assert limits.charges(b"0123456789abcdef", 0, is_id=True) == ()
    assert asked == [True]
    throttle.see(ClusterView(topic_names={b"0123456789abcdef": "moving"}), now_ms=NOW_MS)
    assert limits.generation != throttle.generation
    assert [
        charge.quota.limit for charge in leader.limits(3, now_ms=NOW_MS).charges(b"0123456789abcdef", 0, is_id=True)
    ] == [5]
    everything = throttle_of(leader_rate=5.0).leader(ADDRESS, 1).limits(3, now_ms=NOW_MS)
    assert len(everything.charges(b"fedcba9876543210", 0, is_id=True)) == 2


def test_a_name_of_sixteen_letters_is_no_id() -> None:
    throttle = throttle_of(leader_rate=5.0, leader_replicas=lists(sixteen_letters_="*"), follower_replicas={})
    assert limits_of(throttle, "sixteen_letters_", 0) == [5]


def test_partition_listed_for_any_broker_is_throttled_while_the_node_id_is_unknown() -> None:
    throttle = throttle_of(leader_rate=5.0, leader_replicas=lists(moving="0:8", all="*"), follower_replicas={})
    leader = throttle.leader(ADDRESS)
    assert len(leader.limits(3, now_ms=NOW_MS).charges(b"moving", 0, is_id=False)) == 1
    assert len(leader.limits(3, now_ms=NOW_MS).charges(b"all", 0, is_id=False)) == 1
    assert leader.limits(3, now_ms=NOW_MS).charges(b"moving", 1, is_id=False) == ()
    throttle.see(ClusterView(node_ids={ADDRESS: 1}), now_ms=NOW_MS)
    assert leader.limits(3, now_ms=NOW_MS).charges(b"moving", 0, is_id=False) == ()
    assert leader.name == "1"


def test_nothing_is_active_without_a_limit_or_without_a_replica() -> None:
    def is_active(view: ClusterView | None = None, **file: object) -> bool:
        return throttle_of(view, **file).leader(ADDRESS, 1).limits(3, now_ms=NOW_MS).is_active

    assert is_active(leader_rate=1.0)
    assert is_active(follower_rate=1.0)
    assert not is_active()
    assert not is_active(leader_rate=1.0, leader_replicas={}, follower_replicas={})
    assert not is_active(from_cluster=True)
    assert not is_active(ClusterView(leader_replicas=lists(t="*")), from_cluster=True)
    assert is_active(ClusterView(leader_replicas=lists(t="*"), leader_rates={1: 5.0}), from_cluster=True)
    assert not is_active(ClusterView(leader_replicas=lists(t="*"), leader_rates={2: 5.0}), from_cluster=True)


def test_a_followers_limit_is_one_for_all_leaders_of_this_proxy() -> None:
    throttle = throttle_of(follower_rate=5.0)
    first, second = throttle.leader(ADDRESS, 1), throttle.leader(Address(host="127.0.0.1", port=9093), 2)
    quotas = [leader.limits(3, now_ms=NOW_MS).charges(b"t", 0, is_id=False) for leader in (first, second)]
    assert quotas[0][1].quota is quotas[1][1].quota
    assert quotas[0][0].quota is not quotas[1][0].quota


def test_without_replication_in_the_file_nothing_is_throttled() -> None:
    throttle = Throttle(None, KafkaSettings())
    assert not throttle.leader(ADDRESS, 1).limits(3, now_ms=NOW_MS).is_active
