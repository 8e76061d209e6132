"""The simulated cluster is the same for the same seed. Its load varies by hour, day and client."""

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.testing import assertDataFrameEqual

from kafka_quota_proxy.pipeline.parsing import duplicate_keys
from kafka_quota_proxy.pipeline.record import COLUMNS, REQUIRED
from kafka_quota_proxy.pipeline.simulate import SimulatedCluster, simulated
from tests.pipeline.support import START_MS

CLUSTER = SimulatedCluster(entities=8, brokers=2, days=14, interval_ms=3_600_000, start_ms=START_MS, seed=1)


@pytest.mark.kafka
def test_the_same_seed_gives_the_same_log_whatever_the_partitions(spark: SparkSession) -> None:
    small = replace(CLUSTER, days=1)

    assertDataFrameEqual(simulated(spark, small, partitions=1), simulated(spark, small, partitions=7))
    other = simulated(spark, replace(small, seed=2))
    assert other.join(simulated(spark, small), on=["start_ms", "broker", "kind", "client_id", "amount"]).isEmpty()


def test_simulated_records_have_the_form_of_a_proxys_records(spark: SparkSession) -> None:
    records = simulated(spark, CLUSTER)

    assert records.columns == [*COLUMNS, "day"]
    assert duplicate_keys(records).isEmpty()
    assert records.where(" OR ".join(f"{name} IS NULL" for name in REQUIRED)).isEmpty()
    assert records.where("amount <= 0 OR requests <= 0 OR connections <= 0").isEmpty()
    assert records.where(f"start_ms < {START_MS} OR start_ms + interval_ms > {START_MS} + 14 * 86400000").isEmpty()


@pytest.mark.kafka
def test_simulated_days_and_weeks_differ_and_clients_appear_and_disappear(spark: SparkSession) -> None:
    records = simulated(spark, CLUSTER)

    hours = records.groupBy(F.expr("start_ms div 3600000 % 24").alias("hour")).agg(F.sum("amount").alias("bytes"))
    days = records.groupBy(F.dayofweek("day").isin(1, 7).alias("weekend")).agg(F.avg("amount").alias("bytes"))
    lives = records.groupBy("client_id").agg(F.min("start_ms").alias("first"), F.max("start_ms").alias("last"))

    by_hour = [row["bytes"] for row in hours.collect()]
    by_day = {row["weekend"]: row["bytes"] for row in days.collect()}
    by_client = {row["client_id"]: (row["first"], row["last"]) for row in lives.collect()}
    assert max(by_hour) > 2 * min(by_hour)
    assert by_day[True] < 0.8 * by_day[False]
    last_ms = START_MS + 14 * 86_400_000 - 3_600_000
    assert by_client["app-0001"] == (START_MS, last_ms)
    assert by_client["app-0006"][0] > START_MS + 3 * 86_400_000
    assert by_client["app-0007"][1] < last_ms - 3 * 86_400_000
