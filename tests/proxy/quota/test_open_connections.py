"""Tests the limits on the number of open connections, by the eight levels."""

from kafka_quota_proxy.config.model import DEFAULT, QuotaRule
from kafka_quota_proxy.config.principals import Fold, Principals
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.quota.broker import PrincipalRules
from kafka_quota_proxy.proxy.quota.entity import Tags
from kafka_quota_proxy.proxy.quota.open_connections import Identity, OpenConnections
from kafka_quota_proxy.proxy.quota.rule_tables import RuleTable

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

    connections.table.put((None, "etl"), None)
    connections.table.put(("alice", None), QuotaRule(user="alice", connections=2))
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
