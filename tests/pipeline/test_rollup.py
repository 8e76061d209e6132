"""Tests the tables from which capacities are planned."""

from pyspark.sql import SparkSession

from kafka_quota_proxy.pipeline.record import BUCKET
from kafka_quota_proxy.pipeline.rollup import byte_usage, hours, minutes
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
