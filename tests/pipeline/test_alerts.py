"""Who is over, who is near, and that the order and the parts in which records come change nothing."""

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline.alerts import alerts, encoded, marked_ahead, once
from tests.pipeline.support import START_MS, frame, record, rows

MINUTE_MS = 60_000


def found(spark: SparkSession, *log: dict[str, Any], near: float = 0.8, window_ms: int = MINUTE_MS) -> DataFrame:
    """Return the alerts of a log."""
    return alerts(once(frame(spark, log), late_ms=1), window_ms=window_ms, near=near)


def levels(spark: SparkSession, *log: dict[str, Any], near: float = 0.8, window_ms: int = MINUTE_MS) -> dict[int, str]:
    """Return the levels of the alerts of one bucket, by the second in which their window starts."""
    every = rows(found(spark, *log, near=near, window_ms=window_ms))
    return {(row["start_ms"] - START_MS) // 1_000: row["level"] for row in every}


def test_over_is_above_the_limit_near_is_above_its_part_and_the_rest_is_silence(spark: SparkSession) -> None:
    log = [
        record(at_s=minute * 60 + at_s, limit=1_000.0, amount=amount)
        for minute, amount in enumerate((30_001, 30_000, 24_001, 24_000))
        for at_s in (0, 59)
    ]

    # 1,000 bytes a second allow 60,000 in a minute, and 0.8 of them are 48,000.
    assert levels(spark, *log) == {0: "over", 60: "near", 120: "near"}


def test_whoever_waited_is_over_whatever_he_used(spark: SparkSession) -> None:
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


def test_without_a_limit_nothing_is_too_much(spark: SparkSession) -> None:
    assert levels(spark, record(amount=10**15), record(at_s=1, limit=1_000.0, amount=1)) == {}


def test_where_the_limit_changes_the_highest_counts(spark: SparkSession) -> None:
    log = [record(at_s=0, limit=10.0, amount=5_000), record(at_s=1, limit=100.0), record(at_s=2, limit=50.0)]

    assert levels(spark, *log) == {0: "over"}
    assert levels(spark, *log[1:], record(at_s=3, limit=10.0, amount=3_000)) == {0: "near"}


def test_of_the_time_of_threads_a_second_has_a_thousand_milliseconds(spark: SparkSession) -> None:
    log = [record(at_s=at_s, kind="request", limit=50.0, amount=1_500_000) for at_s in (0, 1)]

    (seen,) = rows(found(spark, *log))

    # 50 % of a thread for a minute: 50 x 60,000 percent-milliseconds.
    assert (seen["level"], seen["use"]) == ("near", 1.0)


def test_an_interval_longer_than_the_window_is_allowed_what_it_covers(spark: SparkSession) -> None:
    stalled = record(limit=1_000.0, interval_ms=120_000, amount=90_000)

    assert levels(spark, stalled) == {}
    assert levels(spark, stalled | {"interval_ms": 60_000}) == {0: "over"}


def test_each_bucket_is_by_itself_and_has_one_alert_a_window(spark: SparkSession) -> None:
    names: list[dict[str, Any]] = [
        {}, {"proxy": "p2"}, {"broker": None}, {"kind": "fetch"}, {"user": "bob"}, {"client_id": ""}, {"listener": "x"},
    ]  # fmt: skip
    log = [record(at_s=at_s, limit=1.0, amount=31, **name) for name in names for at_s in (0, 1)]

    seen = rows(found(spark, *log))

    assert len(seen) == len(names)
    assert {(row["level"], row["amount"], row["requests"]) for row in seen} == {("over", 62, 2)}


def test_a_record_that_comes_again_counts_once(spark: SparkSession) -> None:
    log = [record(at_s=at_s, limit=1_000.0, amount=25_000, broker=None) for at_s in (0, 1)]

    assert levels(spark, *log, *log) == {0: "near"}


def test_order_changes_nothing_to_the_last_digit(spark: SparkSession) -> None:
    log = [record(at_s=at_s, limit=10.0 / 3, amount=at_s * 7) for at_s in range(60)]
    there, back = (
        rows(encoded(found(spark, *order))) for order in (log, sorted(log, key=lambda one: str(one["amount"])))
    )

    assert there == back
    assert len(there) == 1


def test_an_alert_is_compact_json_with_the_bucket_as_its_key(spark: SparkSession) -> None:
    seen = rows(encoded(found(spark, record(at_s=61, broker=None, limit=10.0, amount=500, client_id='"ü'))))

    assert seen == [
        {
            "key": '{"proxy":"p1","broker":null,"kind":"produce","user":"alice","client_id":"\\"ü","listener":null}',
            "value": f'{{"start_ms":{START_MS + 60_000},"window_ms":60000,"level":"near","proxy":"p1","broker":null,'
            '"kind":"produce","user":"alice","client_id":"\\"ü","listener":null,"limit":10.0,"amount":500,"use":0.8333,'
            '"requests":1,"throttled_requests":0,"throttle_time_ms":0,"enforced":true}',
            "start_ms": START_MS + 60_000,
        }
    ]


@pytest.mark.parametrize(("at_s", "is_ahead"), [(-9, False), (120, False), (120.001, True)])
def test_a_clock_may_be_ahead_by_as_much_as_records_may_be_late(
    spark: SparkSession, at_s: float, is_ahead: bool
) -> None:
    now = F.timestamp_millis(F.lit(START_MS))

    (row,) = rows(marked_ahead(frame(spark, [record(at_s=at_s)]), now, late_ms=120_000))

    assert row["is_ahead"] is is_ahead
