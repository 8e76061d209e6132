"""A cluster's limit, divided."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from config.model import DEFAULT, Enforcement, ProxyConfig, QuotaRule, Shaping
from pipeline.balance import Share, demand, divided, rules_of, shares, used_of_late
from pipeline.tried import Quotas
from pipeline.whatif import resolved
from tests.pipeline.support import frame, record, rows


@given(
    limit=st.floats(1_000, 1e12),
    demands=st.dictionaries(st.sampled_from("abc"), st.integers(0, 10**12)),
    floor=st.floats(0, 1),
)
def test_shares_are_never_more_than_the_limit_and_nobody_is_below_the_floor(
    limit: float, demands: dict[str, int], floor: float
) -> None:
    found = divided(limit, demands, ["a", "b", "c"], floor=floor)

    assert sum(found.values()) <= limit + 2  # a proxy whose share is nothing gets 1 byte, for 0 is no limit
    assert min(found.values()) >= max(1, int(limit * floor / 3 * (1 - 1e-9)) - 1)
    if sum(demands.values()):
        assert sum(found.values()) >= limit * (1 - 1e-9) - 3


def test_shares_follow_demand() -> None:
    assert divided(1_200.0, {"a": 300, "b": 100}, ["a", "b", "c"], floor=0.25) == {"a": 775, "b": 325, "c": 100}
    assert divided(900.0, {}, ["a", "b", "c"], floor=0.1) == {"a": 300, "b": 300, "c": 300}


def test_demand_is_that_of_the_last_of_the_log_by_the_bucket_that_a_rule_names(spark: SparkSession) -> None:
    rules = Quotas(config=ProxyConfig(listeners=(), quotas=(QuotaRule(user="alice", producer_byte_rate=100.0),)))
    log = [record(at_s=at, proxy=proxy, client_id=f"c{at}") for at in range(10) for proxy in ("p1", "p2")]
    log += [record(at_s=9, user="bob"), record(at_s=9, kind="fetch")]
    records = frame(spark, log)

    found = rows(demand(records, resolved(records, rules), last_ms=3_000), "proxy")

    assert [
        (row["proxy"], row["bucket_user"], row["bucket_client_id"], row["limit"], row["amount"]) for row in found
    ] == [
        ("p1", "alice", "", 100.0, 3_000),
        ("p2", "alice", "", 100.0, 3_000),
    ]


def test_who_was_not_seen_has_an_even_share_of_his_rule() -> None:
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

    assert given[0] == Share("a", "produce", "alice", "", 840)
    assert [(rule.user, rule.producer_byte_rate, rule.consumer_byte_rate) for rule in first] == [
        (DEFAULT, 300.0, None),
        ("alice", 840.0, None),
        ("bob", None, 10.0),
    ]
    assert [rule.producer_byte_rate for rule in second] == [300.0, 30.0, None]


def test_a_share_is_held_as_the_rule_that_it_is_of() -> None:
    rules = [
        QuotaRule(user=DEFAULT, producer_byte_rate=900.0, enforcement=Enforcement.OBSERVE, shaping=Shaping.PACED),
        QuotaRule(user="bob", producer_byte_rate=90.0, enforcement=Enforcement.DELAY),
    ]
    given = [Share("a", "produce", "alice", "", 840), Share("a", "produce", "bob", "", 70)]

    found = rules_of("a", given, rules, 3)

    assert [(rule.user, rule.producer_byte_rate, rule.enforcement, rule.shaping) for rule in found] == [
        (DEFAULT, 300.0, Enforcement.OBSERVE, Shaping.PACED),
        ("alice", 840.0, Enforcement.OBSERVE, Shaping.PACED),
        ("bob", 70.0, Enforcement.DELAY, None),
    ]


def test_one_rule_cannot_hold_produce_and_fetch_in_two_ways_so_that_one_of_them_stays_even() -> None:
    rules = [
        QuotaRule(user=DEFAULT, consumer_byte_rate=900.0, enforcement=Enforcement.OBSERVE),
        QuotaRule(user="alice", producer_byte_rate=90.0),
    ]
    given = [Share("a", "fetch", "alice", "", 840), Share("a", "produce", "alice", "", 70)]

    found = rules_of("a", given, rules, 3)

    assert [(rule.user, rule.producer_byte_rate, rule.consumer_byte_rate, rule.enforcement) for rule in found] == [
        (DEFAULT, None, 300.0, Enforcement.OBSERVE),
        ("alice", 70.0, None, None),
    ]


@pytest.mark.parametrize("floor", [0.0, 1.0])
def test_a_floor_of_one_is_an_even_share_and_of_nothing_none(floor: float) -> None:
    found = divided(1_000.0, {"a": 1}, ["a", "b"], floor=floor)

    assert found == ({"a": 500, "b": 500} if floor else {"a": 1_000, "b": 1})


def test_of_what_came_together_there_is_a_row_for_each_bucket_and_proxy(spark: SparkSession) -> None:
    log = [
        record(limit=1e6, amount=10, interval_ms=900, throttled_requests=1, throttle_time_ms=7),
        record(limit=1e6, amount=20, at_s=1, interval_ms=1_100, throttled_requests=2),
        record(limit=1e6, proxy="p2", amount=5, kind="fetch", broker=2),
        record(limit=1e6, proxy="p2", amount=5, kind="fetch", broker=3),
        record(limit=None),
        record(limit=1e6, kind="request"),
        record(limit=1e6, proxy="p9"),
        record(limit=1e6, client_id="<other>"),
        record(limit=1e6, user="<shared>", client_id=""),
    ]
    parsed = frame(spark, log).withColumn("fault", F.lit(None).cast("string"))
    bad = frame(spark, [record(limit=1e6)]).withColumn("fault", F.lit("is bad"))

    found = rows(used_of_late(parsed.unionByName(bad), ["p1", "p2"]), "proxy")

    assert found == [
        {
            "proxy": "p1", "kind": "produce", "user": "alice", "client_id": "etl", "amount": 30, "interval_ms": 2_000,
            "throttled_requests": 3, "throttle_time_ms": 7, "longest_interval_ms": 1_100, "broker": 1,
            "other_broker": 1,
        },
        {
            "proxy": "p2", "kind": "fetch", "user": "alice", "client_id": "etl", "amount": 10, "interval_ms": 2_000,
            "throttled_requests": 0, "throttle_time_ms": 0, "longest_interval_ms": 1_000, "broker": 2,
            "other_broker": 3,
        },
    ]  # fmt: skip
