"""Tests how the members of a cluster are read from its Metadata responses."""

from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import Address, Cluster
from kafka_quota_proxy.proxy.server.brokers.cluster_members import (
    LEAVES_AFTER_MS,
    NO_CHANGES,
    ClusterMembers,
    MemberChanges,
)

ONE, TWO, ELSEWHERE = (Address(host=f"broker{number}", port=9092) for number in (1, 2, 3))


def _membership() -> ClusterMembers:
    return ClusterMembers(
        Cluster(bootstrap_servers=(ONE,), advertised_host="127.0.0.1", first_port=9193, last_port=9195)
    )


def test_brokers_that_join_are_reported_once_and_their_addresses_followed() -> None:
    membership = _membership()

    assert membership.see({1: ONE, 2: TWO}, is_all=True, now_ms=0) == MemberChanges(joined={1: ONE, 2: TWO})
    assert membership.see({1: ONE, 2: TWO}, is_all=True, now_ms=1) == NO_CHANGES
    assert membership.see({2: ELSEWHERE}, is_all=False, now_ms=2) == NO_CHANGES
    assert membership.brokers == {1: ONE, 2: ELSEWHERE}


def test_broker_missing_for_half_a_minute_has_left() -> None:
    membership = _membership()
    membership.see({1: ONE, 2: TWO}, is_all=True, now_ms=0)

    assert membership.see({1: ONE}, is_all=True, now_ms=1_000).left == ()
    assert membership.see({1: ONE}, is_all=True, now_ms=1_000 + LEAVES_AFTER_MS - 1).left == ()
    assert membership.see({1: ONE}, is_all=True, now_ms=1_000 + LEAVES_AFTER_MS).left == (2,)
    assert membership.brokers == {1: ONE}
    assert membership.see({2: TWO}, is_all=False, now_ms=90_000) == MemberChanges(joined={2: TWO})


def test_restarting_broker_has_not_left() -> None:
    membership = _membership()
    membership.see({1: ONE, 2: TWO}, is_all=True, now_ms=0)
    membership.see({1: ONE}, is_all=True, now_ms=1_000)
    membership.see({2: TWO}, is_all=False, now_ms=2_000)

    assert membership.see({1: ONE}, is_all=True, now_ms=LEAVES_AFTER_MS + 1_500).left == ()


def test_partial_broker_list_removes_no_broker() -> None:
    membership = _membership()
    membership.see({1: ONE, 2: TWO}, is_all=True, now_ms=0)
    membership.see({1: ONE}, is_all=True, now_ms=1)

    assert membership.see({1: ONE}, is_all=False, now_ms=2 * LEAVES_AFTER_MS).left == ()


def test_node_id_outside_the_ports_is_reported_once_and_not_added() -> None:
    membership = _membership()

    assert membership.see({0: ONE, 3: TWO, -1: TWO}, is_all=True, now_ms=0) == MemberChanges(
        joined={0: ONE}, without_port=(3, -1)
    )
    assert membership.see({0: ONE, 3: TWO, -1: TWO}, is_all=True, now_ms=1) == NO_CHANGES
    assert membership.brokers == {0: ONE}


_ANSWERS = st.lists(
    st.tuples(
        st.dictionaries(st.integers(-1, 5), st.sampled_from([ONE, TWO, ELSEWHERE])),
        st.booleans(),
        st.integers(0, LEAVES_AFTER_MS),
    )
)


@given(_ANSWERS)
def test_changes_add_up_to_the_current_members(answers: list[tuple[dict[int, Address], bool, int]]) -> None:
    membership, known, now_ms = _membership(), set[int](), 0
    for brokers, is_all, after_ms in answers:
        now_ms += after_ms
        changes = membership.see(brokers, is_all=is_all, now_ms=now_ms)
        assert not changes.joined.keys() & known
        assert set(changes.left) <= known
        assert not changes.left or is_all
        known = (known | changes.joined.keys()) - set(changes.left)
        assert known == membership.brokers.keys()
        assert all(membership.brokers[node_id] == brokers[node_id] for node_id in brokers if 0 <= node_id <= 2)
