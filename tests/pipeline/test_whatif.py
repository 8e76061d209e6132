"""The forecast under other quotas, on data frames of a few rows."""

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from kafka_quota_proxy.config.model import DEFAULT, ProxyConfig, QuotaRule, Shaping
from kafka_quota_proxy.config.principals import Principals
from kafka_quota_proxy.pipeline.candidate_quotas import CandidateQuotas
from kafka_quota_proxy.pipeline.record import CANDIDATE_BUCKET
from kafka_quota_proxy.pipeline.whatif import LogReplay, entities, outcomes, resolved, total_demand
from tests.pipeline import many_clients
from tests.pipeline.literal_replay import Demand, LiteralReplay, beside, covered_ms, parts
from tests.pipeline.support import START_MS, frame, record, rows

ETL = QuotaRule(user="alice", client_id="etl", producer_byte_rate=1_000.0)


def quotas(*rules: QuotaRule, **given: Any) -> CandidateQuotas:  # noqa: ANN401  (fields of a configuration)
    """Return proposed quotas with these rules."""
    return CandidateQuotas(config=ProxyConfig(listeners=(), quotas=rules, **given))


class Forecast:
    """The forecast for a log under quotas. ``names`` are the clients with their limits, if other than those."""

    def __init__(
        self, records: DataFrame, given: CandidateQuotas, *, names: pd.DataFrame | None = None, is_small: bool = False
    ) -> None:
        demands: pd.DataFrame = total_demand(records).toPandas()
        names = resolved(entities(records), given) if names is None else names
        self.hours = LogReplay(records, demands, count=60, is_small=is_small).hours(names, given)
        self._found = (demands, names)

    def outcomes(self) -> list[dict[Hashable, Any]]:
        found: list[dict[Hashable, Any]] = outcomes(*self._found, self.hours).to_dict("records")
        return found


def load(seconds: int = 60, **given: Any) -> list[dict[str, Any]]:  # noqa: ANN401  (values of any column)
    """Return one record for each second."""
    return [record(at_s=at, amount=3_000, requests=3, **given) for at in range(seconds)]


def test_names_get_the_bucket_and_the_limit_that_a_proxy_gives_them(spark: SparkSession) -> None:
    names = [("alice", "etl"), ("alice", "other"), ("bob", "x"), ("", "x"), ("root", "x")]
    records = frame(spark, [record(user=user, client_id=client) for user, client in names] + load(1, kind="request"))
    given = quotas(
        QuotaRule(user="alice", client_id="etl", producer_byte_rate=5.0),
        QuotaRule(user=DEFAULT, producer_byte_rate=7.0),
        principals=Principals(exempt=frozenset({"root"})),
    )

    found = {
        (row["user"], row["client_id"]): row
        for row in resolved(entities(records), given).replace(np.nan, None).to_dict("records")
    }

    tags = {name: (row["bucket_user"], row["bucket_client_id"], row["limit"]) for name, row in found.items()}
    assert tags == {
        ("alice", "etl"): ("alice", "etl", 5.0),
        ("alice", "other"): ("alice", "", 7.0),
        ("bob", "x"): ("bob", "", 7.0),
        ("", "x"): ("", "x", None),
        ("root", "x"): ("root", "x", None),
    }
    assert found["bob", "x"]["rule"] == "user <default>, client-id None"


@pytest.mark.parametrize("is_small", [True, False])
def test_the_forecast_equals_a_replay_of_each_bucket(spark: SparkSession, is_small: bool) -> None:
    given = quotas(ETL)
    records = frame(spark, [*load(), *load(20, broker=2), *load(20, user="free")])

    hours = rows(Forecast(records, given, is_small=is_small).hours, *CANDIDATE_BUCKET)

    expected = LiteralReplay(given.bucket("produce", "alice", "etl"))
    for demand in beside([Demand(START_MS + at * 1_000, 1_000, 3_000, 3) for at in range(60)]):
        expected.take(demand)
    outcome = expected.end()
    (hour,) = outcome.hours.values()
    assert [(row["broker"], row["amount"]) for row in hours] == [(1, 180_000), (2, 60_000)]
    assert hours[0]["sent_ms"] == outcome.sent_ms
    assert hours[0]["throttle_time_ms"] == hour.throttle_time_ms > 0
    assert hours[0]["longest_delay_ms"] == hour.longest_delay_ms > 0


@pytest.mark.parametrize(("resolution_ms", "is_throttled"), [(None, True), (60_000, False)])
def test_an_imported_record_is_spread_evenly(
    resolution_ms: int | None, *, is_throttled: bool, spark: SparkSession
) -> None:
    """A proxy's record of one request arrives at once. An imported one does not know how many requests it had."""
    minutes = [
        record(at_s=60 * at, interval_ms=60_000, amount=54_000, requests=1, resolution_ms=resolution_ms)
        for at in range(3)
    ]

    (row,) = Forecast(frame(spark, minutes), quotas(ETL)).outcomes()

    assert (row["throttle_time_ms"] > 0) == is_throttled


@pytest.mark.parametrize("is_small", [True, False])
def test_clients_that_share_a_rule_wait_together(spark: SparkSession, is_small: bool) -> None:
    """20 clients of one user ask for twice the limit for a minute, and none of them alone exceeds it."""
    limit, names = 50_000.0, [f"app-{at:02}" for at in range(20)]
    demands = {
        name: beside([Demand(START_MS + at * 1_000, 1_000, 5_000, 5) for at in range(number % 4, 60)])
        for number, name in enumerate(names)
    }
    columns = ("start_ms", "interval_ms", "amount", "requests")
    log = [
        # The number of connections of a record must make no difference.
        record(client_id=name, connections=1 + at % 3, **dict(zip(columns, demand, strict=False)))
        for name in names
        for at, demand in enumerate(demands[name])
    ]
    given = quotas(QuotaRule(user="alice", producer_byte_rate=limit))
    records = frame(spark, log)
    (row,) = Forecast(records, given, is_small=is_small).outcomes()

    happened = many_clients.passed(
        {name: [part for demand in demands[name] for part in parts(demand)] for name in names}, limit
    )
    silent = [(one.out_ms, one.out_ms + one.wait_ms) for one in happened]
    logged = [(one["start_ms"], one["start_ms"] + one["interval_ms"]) for one in log]
    assert (row["clients"], row["amount"]) == (20, sum(one["amount"] for one in log))
    assert row["throttle_time_ms"] == sum(one.wait_ms for one in happened) > 30_000
    assert row["throttled_requests"] == sum(one.wait_ms > 0 for one in happened)
    assert row["throttled_share"] == row["throttle_time_ms"] / covered_ms([*silent, *logged]) <= 1
    # No client waits for longer than the rule throttles them all, and together they wait for much longer.
    waits_ms = [sum(one.out_ms - one.ready_ms for one in happened if one.client == name) for name in names]
    assert max(waits_ms) <= row["throttle_time_ms"]
    assert sum(waits_ms) >= 15 * row["throttle_time_ms"]


@pytest.mark.kafka
def test_partitions_and_batches_do_not_change_the_forecast(spark: SparkSession) -> None:
    given = quotas(ETL, QuotaRule(client_id="shared", producer_byte_rate=2_000.0))
    log = [*load(), *load(30, user="x", client_id="shared"), *load(40, user="y", client_id="shared")]
    one = frame(spark, log).coalesce(1)
    whole = Forecast(one, given).hours
    whole.cache().count()
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "7")
    try:
        many = frame(spark, log[::-1]).repartition(5)
        assertDataFrameEqual(Forecast(many, given).hours, whole)
        assertDataFrameEqual(Forecast(many, given, is_small=True).hours, whole)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
        whole.unpersist()


@pytest.mark.kafka
def test_only_buckets_that_may_exceed_a_limit_are_replayed(spark: SparkSession) -> None:
    below, above = (
        QuotaRule(user="alice", producer_byte_rate=6_000.0),
        QuotaRule(user="alice", producer_byte_rate=3_000.0),
    )
    records = frame(spark, load(30))

    assert Forecast(records, quotas(below)).hours.isEmpty()
    assert not Forecast(records, quotas(above)).hours.isEmpty()


@pytest.mark.kafka
def test_the_outcome_has_all_of_the_demand(spark: SparkSession) -> None:
    given = quotas(ETL)
    records = frame(spark, [*load(30), *load(30, broker=None, client_id="etl", proxy="p2")])

    first, second = Forecast(records, given).outcomes()

    assert (first["amount"], first["limit"], first["broker"], second["broker"]) == (90_000, 1_000.0, 1, -1)
    assert first["asked_rate"] == 3_000
    # 90,000 take 90 s, less the amount that passes at once.
    assert first["achieved_rate"] == pytest.approx(1_100, rel=0.1)
    # The replay takes 90 s, less at most the ten seconds that pass at once, and less the 30 s that the log covers.
    assert 50_000 <= first["late_ms"] <= 60_000
    assert 0.9 < first["throttled_share"] <= 1


@pytest.mark.kafka
def test_an_even_flow_is_forecast_for_paced_quotas(spark: SparkSession) -> None:
    records = frame(spark, load(30))
    even = CandidateQuotas(config=replace(quotas(ETL).config, shaping=Shaping.PACED))
    waits = {}
    for name, given in (("sampled", quotas(ETL)), ("paced", even)):
        (row,) = Forecast(records, given).outcomes()
        waits[name] = row["delayed_amount"]

    # Kafka's windows let the amount of the first ten seconds pass at once, a token bucket that of one second.
    assert waits["paced"] > waits["sampled"] > 0


@pytest.mark.kafka
def test_several_limits_at_once_equal_one_by_one(spark: SparkSession) -> None:
    records = frame(spark, [*load(40), *load(40, broker=2)])
    both = [quotas(replace(ETL, limits={**ETL.limits, "producer_byte_rate": limit})) for limit in (1_000.0, 2_000.0)]
    names = pd.concat([resolved(entities(records), given) for given in both])

    hours = rows(Forecast(records, both[0], names=names).hours, "broker", "limit")

    waits = []
    for given in both:
        literal = LiteralReplay(given.bucket("produce", "alice", "etl"))
        for at in range(40):
            literal.take(Demand(START_MS + at * 1_000, 1_000, 3_000, 3))
        waits += [hour.throttle_time_ms for hour in literal.end().hours.values()]
    assert [(row["broker"], row["limit"]) for row in hours] == [(1, 1_000), (1, 2_000), (2, 1_000), (2, 2_000)]
    assert [row["throttle_time_ms"] for row in hours] == waits * 2


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("limit", "burst_ms", "is_replayed"), [(3_000, 2_000, False), (2_999, 9_000, True), (3_000, 1_000, True)]
)
def test_a_rate_below_the_tokens_needs_no_replay(
    spark: SparkSession, limit: float, burst_ms: int, is_replayed: bool
) -> None:
    given = quotas(
        replace(ETL, limits={**ETL.limits, "producer_byte_rate": limit}), shaping=Shaping.PACED, burst_ms=burst_ms
    )
    records = frame(spark, load(3))

    assert Forecast(records, given).hours.isEmpty() is not is_replayed
