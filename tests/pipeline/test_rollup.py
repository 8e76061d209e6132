"""Sums of the parts of a log, such as days, are merged to the sums of the log."""

from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from kafka_quota_proxy.pipeline.record import BUCKET
from kafka_quota_proxy.pipeline.rollup import byte_usage, hours, merged_rates, minutes, rates
from tests.pipeline.support import frame, record, rows

LOG = [
    record(at_s=3_600 * at, broker=broker, amount=1_000 * (1 + at % 3), limit=limit, throttle_time_ms=at)
    for at, limit in enumerate((9_000.0, 5_000.0, 7_000.0, None, 6_000.0, 8_000.0))
    for broker in (1, None)
]


def test_histograms_of_parts_are_merged(spark: SparkSession) -> None:
    parts = [rates(byte_usage(frame(spark, LOG[first : first + 4]))) for first in range(0, len(LOG), 4)]

    merged = merged_rates(reduce(DataFrame.unionByName, parts))

    whole = rates(byte_usage(frame(spark, LOG)))
    assertDataFrameEqual(merged.select(*whole.columns), whole)
    # Each of the rates 1,000, 2,000 and 3,000 B/s comes twice on each broker.
    found = rows(merged.where("broker = 1"), "peak")
    assert [(row["peak"], row["intervals"], row["logged_limit"]) for row in found] == [
        (1_000, 2, None),
        (2_000, 2, 6_000.0),
        (3_000, 2, 8_000.0),
    ]


def test_hours_are_those_of_minutes(spark: SparkSession) -> None:
    log = [record(at_s=at, interval_ms=10_000, amount=at) for at in range(3_500, 3_700, 10)]
    used = byte_usage(frame(spark, log))

    found = rows(hours(minutes(used)), *BUCKET, "hour_ms")

    assert found == rows(hours(used), *BUCKET, "hour_ms")
    assert [(row["amount"], row["peak"]) for row in found] == [
        (sum(range(3_500, 3_600, 10)), 359),
        (sum(range(3_600, 3_700, 10)), 369),
    ]
