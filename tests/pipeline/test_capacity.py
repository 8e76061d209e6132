"""Tests of ``pipeline.capacity``."""

from math import ceil
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from kafka_quota_proxy.config.model import ProxyConfig
from kafka_quota_proxy.pipeline.candidate_quotas import CandidateQuotas
from kafka_quota_proxy.pipeline.capacity import (
    Suggestion,
    broker_minutes,
    brokers,
    byte_usage,
    entities,
    hours,
    minutes,
    oversubscription,
    percentiles,
    rates,
    rules,
    suggestion,
)
from kafka_quota_proxy.pipeline.limit_search import Entity
from kafka_quota_proxy.pipeline.quota_comparison import InForce
from kafka_quota_proxy.pipeline.record import BUCKET
from kafka_quota_proxy.pipeline.replay import Replay
from tests.pipeline.literal_replay import Demand, arrays
from tests.pipeline.support import frame, record, rows


def test_hours_are_those_of_minutes(spark: SparkSession) -> None:
    log = [record(at_s=at, interval_ms=10_000, amount=at) for at in range(3_500, 3_700, 10)]
    used = byte_usage(frame(spark, log))

    found = rows(hours(minutes(used)), *BUCKET, "hour_ms")

    assert found == rows(hours(used), *BUCKET, "hour_ms")
    assert [(row["amount"], row["peak"]) for row in found] == [
        (sum(range(3_500, 3_600, 10)), 359),
        (sum(range(3_600, 3_700, 10)), 369),
    ]


def suggested(**given: Any) -> Suggestion:  # noqa: ANN401  (fields)
    """Return a suggestion with defaults for the other fields."""
    values: dict[str, Any] = {
        "kind": "produce",
        "user": "alice",
        "client_id": "etl",
        "percentile": 1_000,
        "peak": 5_000,
        "part": 100,
    }
    return Suggestion(**(values | {"limit": 1_200, "why": ""} | given))


def measured(records: DataFrame, percentile: float) -> pd.DataFrame:
    """Return the percentiles of all buckets in a log."""
    found: pd.DataFrame = percentiles(rates(byte_usage(records)), percentile).toPandas()
    return found


def test_a_percentile_is_a_measured_rate_not_below_the_true_one(spark: SparkSession) -> None:
    amounts = [(at * 7_919) % 100_003 for at in range(1_000)]
    records = frame(spark, [record(at_s=at, amount=amount) for at, amount in enumerate(amounts)])

    (row,) = measured(records.repartition(5), 99.0).to_dict("records")

    true = sorted(amounts)[ceil(0.99 * 1_000) - 1]
    assert true <= row["percentile"] <= true * 1.011
    assert row["percentile"] in amounts
    assert row["peak"] == max(amounts)
    assert (row["amount"], row["intervals"], row["active_ms"]) == (sum(amounts), 1_000, 1_000_000)


def test_rates_use_the_measured_interval(spark: SparkSession) -> None:
    given = [
        record(amount=3_000, interval_ms=3_000),
        record(at_s=9, amount=50, interval_ms=0, client_id="b", broker=None),
    ]

    found = rows(byte_usage(frame(spark, [*given, record(kind="request")])), "client_id")

    assert [(row["client_id"], row["rate"], row["broker"]) for row in found] == [("b", 500, -1), ("etl", 1_000, 1)]


def test_an_entity_has_the_use_of_its_busiest_broker(spark: SparkSession) -> None:
    log = [record(at_s=at, broker=broker, amount=broker * 1_000) for at in range(10) for broker in (1, 2, 3)]

    (row,) = entities(measured(frame(spark, log), 90.0))

    assert (row["percentile"], row["peak"], row["brokers"], row["amount"]) == (3_000, 3_000, 3, 60_000)


def test_a_search_begins_at_the_percentile(spark: SparkSession) -> None:
    log = [record(at_s=at, amount=10_000) for at in range(3)]
    log += [
        record(at_s=at, user=user, client_id=name)
        for at, (user, name) in enumerate([("", ""), ("<other>", "<other>"), ("a", "<shared>")])
    ]
    log += [record(at_s=1, user="slow", amount=10, enforced=True, throttled_requests=3)]
    rows_of = entities(measured(frame(spark, log), 99.0))
    rows_of.sort(key=lambda row: (row["user"], row["client_id"]))

    nameless, other, shared, alice, slow = (suggestion(row) for row in rows_of)

    assert (alice.limit, alice.why) == (10_000, "")
    assert (nameless.limit, other.limit, shared.limit) == (None, None, None)
    assert "without a client-id" in nameless.why
    assert "max_buckets" in other.why == shared.why
    assert slow.limit == 1_000  # a lower limit would look like one without its unit
    assert "was throttled" in slow.why


@pytest.mark.parametrize("names", [("<default>", "etl"), ("alice", "<default>")])
def test_collective_names_get_no_limit(names: tuple[str, str]) -> None:
    """A client may call itself ``<default>``. A rule for that name would apply to all clients."""
    sums = {"percentile": 9_000, "peak": 9_000, "part": 9_000, "throttled_requests": 0}

    found = suggestion({"kind": "produce", "user": names[0], "client_id": names[1], **sums})

    assert found.limit is None
    assert "means all others" in found.why


@given(
    amounts=st.lists(st.integers(0, 100_000), min_size=1, max_size=60),
    interval_ms=st.sampled_from([100, 1_000, 10_000, 60_000]),
    requests=st.integers(1, 100),
    kind=st.sampled_from(["produce", "fetch"]),
)
def test_no_client_is_throttled_under_the_limit_that_never_waits(
    amounts: list[int], interval_ms: int, requests: int, kind: str
) -> None:
    demands = [Demand(at * interval_ms, interval_ms, amount, requests) for at, amount in enumerate(amounts)]
    peak = max(amount * 1_000 // interval_ms for amount in amounts) + 1
    one = suggested(kind=kind, peak=peak, part=max(amounts))
    one = one._replace(limit=max(1, one.never_waits))
    config = ProxyConfig(listeners=(), quotas=tuple(rule for rule, _ in rules([one])))
    replay = Replay(CandidateQuotas(config=config).bucket(kind, "alice", "etl"))
    replay.take(arrays(demands))

    (outcome,) = replay.end()
    assert sum(hour.throttle_time_ms for hour in outcome.hours.values()) == 0


def test_an_entity_has_one_rule_for_both_kinds() -> None:
    ((rule, why),) = rules(
        [
            suggested(why="remark", decided_by="delay"),
            suggested(kind="fetch", limit=7_000, decided_by="percentile"),
            suggested(user="x", limit=None),
        ]
    )

    assert (rule.user, rule.client_id) == ("alice", "etl")
    assert (rule.limits.get("producer_byte_rate"), rule.limits.get("consumer_byte_rate")) == (1_200.0, 7_000.0)
    assert why == "produce: delay, remark; fetch: percentile"


def test_the_last_limit_and_the_throttle_time_of_the_log_are_kept(spark: SparkSession) -> None:
    log = [record(at_s=at, limit=limit, throttle_time_ms=100 * at) for at, limit in enumerate((9_000.0, 5_000.0))]
    log += [record(at_s=at, broker=2, limit=7_000.0, throttle_time_ms=300, amount=at) for at in range(4)]
    log += [record(client_id="free", limit=3_000.0), record(at_s=1, client_id="free")]

    found = sorted(entities(measured(frame(spark, log), 99.0)), key=lambda row: str(row["client_id"]))

    assert [(row["client_id"], row["logged_limit"], row["logged_share"]) for row in found] == [
        ("etl", 5_000.0, 0.3),
        ("free", None, 0.0),
    ]


def test_the_sum_of_limits_is_compared_with_the_capacity(spark: SparkSession) -> None:
    log = [
        record(broker=1),
        record(broker=1, client_id="b", amount=59_000),
        record(broker=1, client_id="c", amount=0),
        record(broker=2),
        record(broker=2, kind="fetch"),
    ]
    records = frame(spark, log)
    names: list[Entity] = [("produce", "alice", "etl"), ("produce", "alice", "b"), ("produce", "alice", "c")]
    in_force = {name: InForce((of, ""), 700.0) for name, of in zip(names, ("alice", "alice", "c"), strict=True)}
    limits = dict(zip([*names, ("fetch", "alice", "etl")], (1_500, None, None, 500), strict=True))
    used: pd.DataFrame = brokers(broker_minutes(minutes(byte_usage(records)))).toPandas()

    sums = oversubscription(used, measured(records, 99.0), limits, in_force, {(1, "produce"): 1_000.0})

    found = sums.sort_values(["kind", "broker"]).replace(np.nan, None).to_dict("records")
    columns = ("kind", "broker", "current", "limits", "limited", "oversubscription")
    assert [tuple(row[name] for name in columns) for row in found] == [
        ("fetch", 2, 0.0, 500, 1, None),
        # Two clients share a limit.
        ("produce", 1, 1_400.0, 1_500, 1, 1.5),
        ("produce", 2, 700.0, 1_500, 1, None),
    ]
    assert found[1]["peak"] == 1_000  # 60,000 in a minute
