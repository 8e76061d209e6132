"""A bucket has an alert for each window of time in which it was over its limit or near it."""

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from kafka_quota_proxy.pipeline.alerts import alerts, as_json
from tests.pipeline.support import START_MS, frame, record, rows

pytestmark = pytest.mark.kafka

MINUTE_MS = 60_000


def found(spark: SparkSession, *log: dict[str, Any], near: float = 0.8, window_ms: int = MINUTE_MS) -> DataFrame:
    """Return the alerts that a usage log causes."""
    return alerts(frame(spark, log), window_ms=window_ms, near=near)


def levels(spark: SparkSession, *log: dict[str, Any], near: float = 0.8, window_ms: int = MINUTE_MS) -> dict[int, str]:
    """Return the alert levels of one bucket by the start of the window, in seconds after ``START_MS``."""
    every = rows(found(spark, *log, near=near, window_ms=window_ms))
    return {(row["start_ms"] - START_MS) // 1_000: row["level"] for row in every}


def test_use_above_the_limit_is_over_and_above_its_part_is_near(spark: SparkSession) -> None:
    log = [
        record(at_s=minute * 60 + at_s, limit=1_000.0, amount=amount)
        for minute, amount in enumerate((30_001, 30_000, 24_001, 24_000))
        for at_s in (0, 59)
    ]

    # 1,000 bytes a second allow 60,000 in a minute, and 0.8 of them are 48,000.
    assert levels(spark, *log) == {0: "over", 60: "near", 120: "near"}


def test_a_throttled_bucket_is_over_whatever_its_use(spark: SparkSession) -> None:
    log = [
        record(at_s=0, limit=1e9, throttled_requests=1, throttle_time_ms=7),
        record(at_s=60, limit=1e9),
        record(at_s=120, throttled_requests=1, enforced=False),
    ]

    seen = rows(found(spark, *log), "start_ms")

    assert [(row["level"], row["enforced"], row["use"]) for row in seen] == [
        ("over", True, 0.0),
        ("over", False, None),
    ]


def test_use_without_a_limit_causes_no_alert(spark: SparkSession) -> None:
    assert levels(spark, record(amount=10**15), record(at_s=1, limit=1_000.0, amount=1)) == {}


def test_the_highest_limit_of_a_window_counts(spark: SparkSession) -> None:
    log = [record(at_s=0, limit=10.0, amount=5_000), record(at_s=1, limit=100.0), record(at_s=2, limit=50.0)]

    assert levels(spark, *log) == {0: "over"}
    assert levels(spark, *log[1:], record(at_s=3, limit=10.0, amount=3_000)) == {0: "near"}


def test_request_time_is_compared_in_milliseconds(spark: SparkSession) -> None:
    log = [record(at_s=at_s, kind="request", limit=50.0, amount=1_500_000) for at_s in (0, 1)]

    (seen,) = rows(found(spark, *log))

    # 50 % of a thread for a minute are 50 x 60,000 percent-milliseconds.
    assert (seen["level"], seen["use"]) == ("near", 1.0)


def test_a_long_interval_is_compared_with_its_own_length(spark: SparkSession) -> None:
    stalled = record(limit=1_000.0, interval_ms=120_000, amount=90_000)

    assert levels(spark, stalled) == {}
    assert levels(spark, stalled | {"interval_ms": 60_000}) == {0: "over"}


def test_each_bucket_has_one_alert_per_window(spark: SparkSession) -> None:
    names: list[dict[str, Any]] = [
        {}, {"proxy": "p2"}, {"broker": None}, {"kind": "fetch"}, {"user": "bob"}, {"client_id": ""}, {"listener": "x"},
    ]  # fmt: skip
    log = [record(at_s=at_s, limit=1.0, amount=31, **name) for name in names for at_s in (0, 1)]

    seen = rows(found(spark, *log))

    assert len(seen) == len(names)
    assert {(row["level"], row["amount"], row["requests"]) for row in seen} == {("over", 62, 2)}


def test_an_alert_is_compact_json(spark: SparkSession) -> None:
    seen = rows(as_json(found(spark, record(at_s=61, broker=None, limit=10.0, amount=500, client_id='"ü'))))

    assert [row["value"] for row in seen] == [
        f'{{"start_ms":{START_MS + 60_000},"window_ms":60000,"level":"near","proxy":"p1","broker":null,'
        '"kind":"produce","user":"alice","client_id":"\\"ü","listener":null,"limit":10.0,"amount":500,"use":0.8333,'
        '"requests":1,"throttled_requests":0,"throttle_time_ms":0,"enforced":true}'
    ]
