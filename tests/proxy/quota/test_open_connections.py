"""Tests the limits on the number of open connections, by the eight levels."""

import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import DEFAULT, EntityName, QuotaRule
from kafka_quota_proxy.config.principals import Fold, Principals
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.quota.broker import PrincipalRules
from kafka_quota_proxy.proxy.quota.entity import LEVELS, RuleTable, Tags
from kafka_quota_proxy.proxy.quota.open_connections import Identity, OpenConnections

ALICE_ETL = Identity("alice", "etl")
BOB_ETL = Identity("bob", "etl")


def open_connections(*rules: QuotaRule, principals: Principals | None = None) -> OpenConnections:
    return OpenConnections(
        RuleTable(QuotaKind.CONNECTIONS, rules), PrincipalRules(principals or Principals()).charged_user
    )


def enter(connections: OpenConnections, *identities: Identity) -> list[bool]:
    """Open the connections that are allowed. Return for each identity whether its connection was opened."""
    came = []
    for identity in identities:
        standing = connections.check(identity)
        came.append(standing.exceeded is None)
        if came[-1]:
            connections.enter(identity, standing)
    return came


def test_limit_frees_a_connection_when_one_leaves() -> None:
    connections = open_connections(QuotaRule(user="alice", connections=2))

    assert enter(connections, ALICE_ETL, Identity("alice", ""), ALICE_ETL, BOB_ETL) == [True, True, False, True]
    connections.leave(ALICE_ETL)
    assert enter(connections, ALICE_ETL, ALICE_ETL) == [True, False]


def test_each_client_under_a_default_has_its_own_count() -> None:
    connections = open_connections(QuotaRule(user=DEFAULT, connections=1))

    assert enter(connections, ALICE_ETL, BOB_ETL, ALICE_ETL) == [True, True, False]


def test_exempt_principals_are_unlimited_and_folded_ones_share() -> None:
    principals = Principals(fold=(Fold(match="svc-.*", to="svc"),), exempt=frozenset({"alice"}))
    connections = open_connections(QuotaRule(user=DEFAULT, connections=2), principals=principals)
    services = [Identity(f"svc-{n}", "") for n in range(3)]

    assert enter(connections, *[ALICE_ETL] * 5, *services) == [True] * 5 + [True, True, False]
    assert connections.open_now() == {Tags("svc", ""): 2}


def test_new_rules_count_open_connections_and_close_none() -> None:
    connections = open_connections(QuotaRule(client_id="etl", connections=10))
    enter(connections, *[ALICE_ETL] * 3, BOB_ETL)

    connections.table.update([QuotaRule(user="alice", connections=2)])
    connections.rules_changed(PrincipalRules(Principals()).charged_user)

    assert connections.check(ALICE_ETL).open_now == 3
    assert enter(connections, ALICE_ETL) == [False]
    for _ in range(2):
        connections.leave(ALICE_ETL)
    assert enter(connections, ALICE_ETL, ALICE_ETL) == [True, False]


def test_closed_connections_take_no_memory() -> None:
    connections = open_connections(QuotaRule(user=DEFAULT, connections=5))
    names = [Identity(f"user-{n}", f"client-{n}") for n in range(1_000)]
    enter(connections, *names)

    for name in names:
        connections.leave(name)

    assert connections.open_now() == {}
    assert connections._by_identity == {}
    assert connections._found == {}


_NAMES = st.sampled_from(["", "a", "b"])


def _name(by_name: bool | None, name: str) -> EntityName:
    return None if by_name is None else name if by_name else DEFAULT


_RULES = st.lists(
    st.builds(
        lambda level, name, limit: QuotaRule(
            user=_name(level.user, name), client_id=_name(level.client_id, name), connections=limit
        ),
        st.sampled_from(LEVELS),
        st.sampled_from(["a", "b"]),
        st.integers(0, 3),
    ),
    max_size=6,
    unique_by=lambda rule: (rule.user, rule.client_id),
)


@given(_RULES, _RULES, st.lists(st.tuples(st.sampled_from(["a", "b"]), _NAMES), max_size=40), st.randoms())
@settings(max_examples=200)
def test_counts_match_open_connections_and_stay_within_limits(
    first: list[QuotaRule], then: list[QuotaRule], come: list[tuple[str, str]], chance: random.Random
) -> None:
    connections = open_connections(*first)
    inside: list[Identity] = []
    for turn, (user, client_id) in enumerate(come):
        if turn == len(come) // 2:
            connections.table.update(then)
            connections.rules_changed(PrincipalRules(Principals()).charged_user)
        if inside and chance.random() < 0.3:
            connections.leave(inside.pop(chance.randrange(len(inside))))
        identity = Identity(user, client_id)
        before = connections.check(identity)
        if enter(connections, identity) == [True]:
            inside.append(identity)
            assert before.found is not None
            assert before.found.limit is None or before.open_now < before.found.limit
        counted = Counter(connections.table.resolve(user=one[0], client_id=one[1]).tags for one in inside)
        assert connections.open_now() == counted
