"""A limit of the whole cluster is divided by demand into shares for its proxies."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from kafka_quota_proxy.config.model import DEFAULT, Enforcement, EntityName, ProxyConfig, QuotaRule, Shaping
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.pipeline.balance import ProxyLimit, limit_by_use, rules_of, shares, use_by_proxy
from kafka_quota_proxy.pipeline.candidate_quotas import CandidateQuotas
from kafka_quota_proxy.pipeline.whatif import entities, resolved
from kafka_quota_proxy.proxy.quota.rule_tables import RuleTable
from tests.pipeline.support import frame, record, rows


@given(
    limit=st.floats(1_000, 1e12),
    demands=st.dictionaries(st.sampled_from("abc"), st.integers(0, 10**12)),
    floor=st.floats(0, 1),
)
def test_shares_sum_to_at_most_the_limit_and_respect_the_floor(
    limit: float, demands: dict[str, int], floor: float
) -> None:
    found = limit_by_use(limit, demands, ["a", "b", "c"], floor=floor)

    assert sum(found.values()) <= limit + 2  # a share of 0 becomes 1 byte, because 0 is not a valid limit
    assert min(found.values()) >= max(1, int(limit * floor / 3 * (1 - 1e-9)) - 1)
    if sum(demands.values()):
        assert sum(found.values()) >= limit * (1 - 1e-9) - 3


def test_shares_follow_demand() -> None:
    assert limit_by_use(1_200.0, {"a": 300, "b": 100}, ["a", "b", "c"], floor=0.25) == {"a": 775, "b": 325, "c": 100}
    assert limit_by_use(900.0, {}, ["a", "b", "c"], floor=0.1) == {"a": 300, "b": 300, "c": 300}


@pytest.mark.kafka
def test_demand_is_added_up_by_bucket(spark: SparkSession) -> None:
    rules = CandidateQuotas(
        config=ProxyConfig(listeners=(), quotas=(QuotaRule(user="alice", producer_byte_rate=100.0),))
    )
    log = [record(at_s=at, proxy=proxy, client_id=f"c{at}") for at in range(10) for proxy in ("p1", "p2")]
    log += [record(at_s=9, user="bob"), record(at_s=9, kind="fetch")]
    records = frame(spark, log)

    found = rows(
        use_by_proxy(
            records,
            spark.createDataFrame(resolved(entities(records), rules)),
        ),
        "proxy",
    )

    assert [
        (row["proxy"], row["bucket_user"], row["bucket_client_id"], row["limit"], row["amount"]) for row in found
    ] == [
        ("p1", "alice", "", 100.0, 10_000),
        ("p2", "alice", "", 100.0, 10_000),
    ]


@pytest.mark.kafka
@pytest.mark.parametrize("name", ["<default>", "<shared>", "<other>"])
def test_collective_names_get_no_share(spark: SparkSession, name: str) -> None:
    """A client may call itself ``<default>``. A share for that client-id would limit all other clients."""
    rules = CandidateQuotas(
        config=ProxyConfig(listeners=(), quotas=(QuotaRule(user=DEFAULT, client_id=DEFAULT, producer_byte_rate=9.0),))
    )
    records = frame(spark, [record(client_id=name), record(user=name), record()])

    found = rows(use_by_proxy(records, spark.createDataFrame(resolved(entities(records), rules))))

    assert [(row["bucket_user"], row["bucket_client_id"]) for row in found] == [("alice", "etl")]


def test_an_entity_without_use_has_an_even_share_of_its_rule() -> None:
    rules = [
        QuotaRule(user=DEFAULT, producer_byte_rate=900.0),
        QuotaRule(user="bob", consumer_byte_rate=30.0, connections=5),
    ]
    given = shares(
        [
            {
                "proxy": "a",
                "kind": "produce",
                "bucket_user": "alice",
                "bucket_client_id": "",
                "limit": 900.0,
                "amount": 5,
            }
        ],
        ["a", "b", "c"],
        floor=0.1,
    )

    first, second = (rules_of(proxy, given, rules, 3) for proxy in ("a", "b"))

    assert given[0] == ProxyLimit("a", "produce", "alice", "", 840)
    assert [
        (rule.user, rule.limits.get("producer_byte_rate"), rule.limits.get("consumer_byte_rate")) for rule in first
    ] == [
        (DEFAULT, 300.0, None),
        ("alice", 840.0, None),
        ("bob", None, 10.0),
    ]
    assert [rule.limits.get("producer_byte_rate") for rule in second] == [300.0, 30.0, None]


def test_a_share_has_the_enforcement_and_shaping_of_its_rule() -> None:
    rules = [
        QuotaRule(user=DEFAULT, producer_byte_rate=900.0, enforcement=Enforcement.OBSERVE, shaping=Shaping.PACED),
        QuotaRule(user="bob", producer_byte_rate=90.0, enforcement=Enforcement.DELAY),
    ]
    given = [ProxyLimit("a", "produce", "alice", "", 840), ProxyLimit("a", "produce", "bob", "", 70)]

    found = rules_of("a", given, rules, 3)

    assert [(rule.user, rule.limits.get("producer_byte_rate"), rule.enforcement, rule.shaping) for rule in found] == [
        (DEFAULT, 300.0, Enforcement.OBSERVE, Shaping.PACED),
        ("alice", 840.0, Enforcement.OBSERVE, Shaping.PACED),
        ("bob", 70.0, Enforcement.DELAY, None),
    ]


def test_produce_and_fetch_with_different_shaping_keep_one_even_share() -> None:
    rules = [
        QuotaRule(user=DEFAULT, consumer_byte_rate=900.0, enforcement=Enforcement.OBSERVE),
        QuotaRule(user="alice", producer_byte_rate=90.0),
    ]
    given = [ProxyLimit("a", "fetch", "alice", "", 840), ProxyLimit("a", "produce", "alice", "", 70)]

    found = rules_of("a", given, rules, 3)

    assert [
        (rule.user, rule.limits.get("producer_byte_rate"), rule.limits.get("consumer_byte_rate"), rule.enforcement)
        for rule in found
    ] == [
        (DEFAULT, None, 300.0, Enforcement.OBSERVE),
        ("alice", 70.0, None, None),
    ]


@pytest.mark.parametrize("floor", [0.0, 1.0])
def test_a_floor_of_1_gives_even_shares_and_0_gives_none(floor: float) -> None:
    found = limit_by_use(1_000.0, {"a": 1}, ["a", "b"], floor=floor)

    assert found == ({"a": 500, "b": 500} if floor else {"a": 1_000, "b": 1})


USERS, CLIENTS, PROXIES = ("alice", "bob"), ("etl", "c1", ""), ("p1", "p2", "p3")
LIMITS = st.none() | st.integers(1_000, 10**6).map(float)


@st.composite
def clusters(draw: st.DrawFn) -> list[QuotaRule]:
    """Draw the rules of a cluster, some of which set ``enforcement``."""
    names: tuple[EntityName, ...] = (None, DEFAULT)
    entities = st.tuples(st.sampled_from([*names, *USERS]), st.sampled_from([*names, "etl", "c1"])).filter(any)
    return [
        QuotaRule(
            user=user, client_id=client_id, producer_byte_rate=draw(LIMITS), consumer_byte_rate=draw(LIMITS),
            enforcement=draw(st.sampled_from([None, None, Enforcement.OBSERVE])),
        )
        for user, client_id in draw(st.lists(entities, unique=True, max_size=6))
    ]  # fmt: skip


def seen(rules: Sequence[QuotaRule], users: Sequence[tuple[str, str, str]]) -> list[ProxyLimit]:
    """Return the shares of users that send everything through the first proxy."""
    found = []
    for label, user, client_id in users:
        tags, _, _, limit = RuleTable(QuotaKind[label.upper()], rules).resolve(user=user, client_id=client_id)
        if limit is not None:
            bucket = {"kind": label, "bucket_user": tags.user, "bucket_client_id": tags.client_id}
            found.append(bucket | {"proxy": PROXIES[0], "limit": limit, "amount": 1_000})
    return shares(found, PROXIES, floor=0.1)


@given(
    rules=clusters(),
    users=st.lists(
        st.tuples(st.sampled_from(["produce", "fetch"]), st.sampled_from(USERS), st.sampled_from(CLIENTS)), unique=True
    ),
)
def test_a_share_changes_only_its_own_bucket(rules: list[QuotaRule], users: list[tuple[str, str, str]]) -> None:
    """A client without usage records keeps its bucket, and gets an even share of the limit."""
    shared = seen(rules, users)

    files = {proxy: rules_of(proxy, shared, rules, len(PROXIES)) for proxy in PROXIES}

    for kind in (QuotaKind.PRODUCE, QuotaKind.FETCH):
        whole = RuleTable(kind, rules)
        tables = {proxy: RuleTable(kind, of_proxy) for proxy, of_proxy in files.items()}
        for user in (*USERS, "carol"):
            for client_id in (*CLIENTS, "c2"):
                expected = whole.resolve(user=user, client_id=client_id)
                own = {one.proxy: one.rate for one in shared if one[1:4] == (kind.label, *expected.tags)}
                found = {proxy: table.resolve(user=user, client_id=client_id) for proxy, table in tables.items()}
                assert {one.tags for one in found.values()} == {expected.tags}
                limits = {proxy: one.limit for proxy, one in found.items()}
                even = None if expected.limit is None else expected.limit // len(PROXIES)
                assert limits in (own, dict.fromkeys(PROXIES, even)), (kind, user, client_id)
                for one in found.values():
                    assert (one.rule and one.rule.enforcement) == (expected.rule and expected.rule.enforcement)


def test_a_share_of_a_default_user_keeps_rules_of_unseen_clients() -> None:
    rules = [
        QuotaRule(user=DEFAULT, producer_byte_rate=900.0),
        QuotaRule(user=DEFAULT, client_id="backup", producer_byte_rate=90.0, enforcement=Enforcement.OBSERVE),
        QuotaRule(user="alice", client_id="etl", producer_byte_rate=60.0),
    ]
    given = [ProxyLimit("a", "produce", "alice", "", 840)]

    found = rules_of("a", given, rules, 3)

    # A rule for the user alice takes precedence over one for default users with a client-id. So alice needs a rule of
    # her own with that client-id.
    assert [(rule.user, rule.client_id, rule.limits.get("producer_byte_rate"), rule.enforcement) for rule in found] == [
        (DEFAULT, None, 300.0, None),
        (DEFAULT, "backup", 30.0, Enforcement.OBSERVE),
        ("alice", None, 840.0, None),
        ("alice", "backup", 30.0, Enforcement.OBSERVE),
        ("alice", "etl", 20.0, None),
    ]


def test_no_share_for_a_default_user_that_would_override_other_rules() -> None:
    rules = [
        QuotaRule(user=DEFAULT, producer_byte_rate=900.0),
        QuotaRule(user=DEFAULT, client_id="backup", producer_byte_rate=90.0),
        # A rule has only one value of enforcement, so the consumer limit needs a rule of its own.
        QuotaRule(user="alice", client_id="backup", consumer_byte_rate=60.0, enforcement=Enforcement.OBSERVE),
    ]

    found = rules_of("a", [ProxyLimit("a", "produce", "alice", "", 840)], rules, 3)

    assert [(rule.user, rule.client_id, rule.limits.get("producer_byte_rate")) for rule in found] == [
        (DEFAULT, None, 300.0),
        (DEFAULT, "backup", 30.0),
        ("alice", "backup", None),
    ]
