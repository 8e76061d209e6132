"""Tests which upstreams are one broker: those with equal ids, or with equal addresses while ids are unknown."""

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.proxy.server.broker_identity import BrokerIdentity, UpstreamLocation, group_by_broker, node_at


def at(host: str, port: int = 9092) -> Address:
    return Address(host=host, port=port)


def way(host: str, port: int = 9092, *peers: str, node: int | None = None, cluster: str = "c") -> UpstreamLocation:
    identity = None if node is None else BrokerIdentity(cluster, node)
    return UpstreamLocation(at(host, port), frozenset(at(peer, port) for peer in peers), identity)


def test_upstreams_of_one_node_share_a_broker_under_any_name() -> None:
    ways = [way("a", node=1), way("b", node=2), way("c", 19092, node=1)]
    assert group_by_broker(ways) == [[0, 2], [1]]


def test_equal_node_ids_of_two_clusters_are_two_brokers() -> None:
    assert group_by_broker([way("a", node=1), way("b", node=1, cluster="d")]) == [[0], [1]]
    # The ids count more than an equal address.
    assert group_by_broker([way("a", node=1), way("a", node=1, cluster="d"), way("a", node=2)]) == [[0], [1], [2]]


def test_two_spellings_that_led_to_one_place_are_one() -> None:
    assert group_by_broker([way("127.0.0.1", 19092, "127.0.0.1"), way("localhost", 19092, "127.0.0.1")]) == [[0, 1]]
    assert group_by_broker([way("127.0.0.1", 19092), way("localhost", 19092)]) == [[0], [1]]
    # Another port is another broker.
    assert group_by_broker([way("127.0.0.1", 19092, "127.0.0.1"), way("localhost", 19093, "127.0.0.1")]) == [[0], [1]]


def test_a_final_dot_makes_no_other_broker() -> None:
    assert group_by_broker([way("a.example"), way("a.example.")]) == [[0, 1]]
    assert group_by_broker([way("a.example.", node=1), way("a.example"), way("b.", node=2)]) == [[0, 1], [2]]
    assert node_at({1: at("a.example."), 2: at("b")}, way("a.example").places, {}) == 1
    assert node_at({1: at("a.example"), 2: at("b")}, way("a.example.").places, {}) == 1


def test_a_way_of_which_nothing_is_known_belongs_to_the_broker_at_its_place() -> None:
    assert group_by_broker([way("localhost", 9092, "127.0.0.1"), way("127.0.0.1", 9092, node=1)]) == [[0, 1]]
    # This also holds if only another upstream with unknown ids has the address of the broker.
    ways = [way("x", 9092, "10.0.0.1"), way("y", 9092, "10.0.0.1"), way("y", node=1)]
    assert group_by_broker(ways) == [[0, 1, 2]]


def test_a_place_shared_by_two_brokers_identifies_neither() -> None:
    balancer = way("balancer", 9092, "10.0.0.9")
    ways = [balancer, way("10.0.0.9", node=1), way("10.0.0.9", node=2), way("balancer")]
    assert group_by_broker(ways) == [[0, 3], [1], [2]]


def test_a_name_that_led_to_two_places_joins_no_strangers() -> None:
    ways = [way("all", 9092, "10.0.0.1", "10.0.0.2"), way("10.0.0.1"), way("10.0.0.2")]
    assert group_by_broker(ways) == [[0], [1], [2]]


WAYS = st.lists(
    st.builds(
        lambda host, peers, node, cluster: way(host, 9092, *peers, node=node, cluster=cluster),
        st.sampled_from("abcd"),
        st.sets(st.sampled_from("abcdx"), max_size=2),
        st.none() | st.integers(1, 2),
        st.sampled_from("cd"),
    ),
    max_size=5,
)


@given(ways=WAYS)
def test_each_way_has_one_broker_and_no_broker_two_identities(ways: list[UpstreamLocation]) -> None:
    found = group_by_broker(ways)

    assert sorted(index for group in found for index in group) == list(range(len(ways)))
    for group in found:
        assert len({ways[index].identity for index in group} - {None}) <= 1
    of_identity = [{ways[index].identity for index in group} - {None} for group in found]
    known = [one for identities in of_identity for one in identities]
    assert len(known) == len(set(known))
    # Upstreams with the same address and ids are always one broker.
    for one, other in permutations(range(len(ways)), 2):
        if ways[one].address == ways[other].address and ways[one].identity == ways[other].identity:
            assert any(one in group and other in group for group in found)


@given(ways=WAYS)
def test_the_order_of_the_ways_changes_nothing(ways: list[UpstreamLocation]) -> None:
    together = {frozenset(group) for group in group_by_broker(ways)}
    count = len(ways)
    backwards = {frozenset(count - 1 - index for index in group) for group in group_by_broker(ways[::-1])}
    assert together == backwards


BROKERS = {1: at("one.example", 9092), 2: at("two.example", 9092), 3: at("10.0.0.3", 9093)}


def test_the_broker_advertised_at_the_place_is_found() -> None:
    assert node_at(BROKERS, frozenset({at("10.0.0.3", 9093)}), {}) == 3
    assert node_at(BROKERS, frozenset({at("two.example", 9092)}), {}) == 2
    assert node_at(BROKERS, frozenset({at("10.0.0.2", 9092)}), {}) is None
    hosts = {"one.example": ("10.0.0.1",), "two.example": ("10.0.0.2", "::ffff:10.0.0.22")}
    assert node_at(BROKERS, frozenset({at("10.0.0.2", 9092)}), hosts) == 2
    assert node_at(BROKERS, frozenset({at("10.0.0.22", 9092)}), hosts) == 2
    assert node_at(BROKERS, frozenset({at("10.0.0.2", 9093)}), hosts) is None


def test_two_brokers_advertised_at_one_place_are_ambiguous() -> None:
    hosts = {"one.example": ("10.0.0.1",), "two.example": ("10.0.0.1",)}
    assert node_at(BROKERS, frozenset({at("10.0.0.1", 9092)}), hosts) is None
