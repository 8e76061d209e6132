"""Bounds of a time span are local times, and days are UTC days."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline.time_span import DAY_MS, TimeSpan, day_of, utc_day
from tests.pipeline.support import START_MS, frame, record

BERLIN = ZoneInfo("Europe/Berlin")
HOUR_MS = 3_600_000


def hours(begin: str, end: str, zone: ZoneInfo = BERLIN) -> float:
    """Return the length of the span between two local times."""
    span = TimeSpan.local(datetime.fromisoformat(begin), datetime.fromisoformat(end), zone)
    assert span.from_ms is not None
    assert span.until_ms is not None
    return (span.until_ms - span.from_ms) / HOUR_MS


@pytest.mark.parametrize(
    ("begin", "end", "length"),
    [
        ("2026-03-29", "2026-03-30", 23),
        ("2026-10-25", "2026-10-26", 25),
        ("2026-09-07", "2026-09-08", 24),
        ("2026-10-25T02:00", "2026-10-25T03:00", 2),  # the hour occurs twice
        ("2026-03-29T01:00", "2026-03-29T03:00", 1),  # an hour is left out
        ("2026-03-29T02:30", "2026-03-29T03:30", 0),  # 02:30 does not occur
    ],
)
def test_a_local_day_has_as_many_hours_as_the_clock_shows(begin: str, end: str, length: float) -> None:
    assert hours(begin, end) == length


def test_spans_that_meet_at_a_repeated_time_share_no_moment() -> None:
    meeting = datetime(2026, 10, 25, 2, 30)  # noqa: DTZ001  (a local time)

    assert TimeSpan.local(None, meeting, BERLIN).until_ms == TimeSpan.local(meeting, None, BERLIN).from_ms


def test_a_local_day_touches_two_utc_days() -> None:
    span = TimeSpan.local(datetime(2026, 9, 7), datetime(2026, 9, 8), BERLIN)  # noqa: DTZ001  (local times)

    assert (span.first_day, span.last_day) == ("2026-09-06", "2026-09-07")


def test_a_utc_day_ends_before_the_next() -> None:
    span = TimeSpan(START_MS, START_MS + DAY_MS)

    assert (span.first_day, span.last_day) == ("2026-09-07", "2026-09-07")
    assert TimeSpan().is_all


def test_days_agree_with_the_calendar() -> None:
    times = (0, DAY_MS - 1, START_MS, START_MS - 1, 4_102_444_800_000)

    assert [day_of(at) for at in times] == [
        datetime.fromtimestamp(at / 1_000, UTC).strftime("%Y-%m-%d") for at in times
    ]


def test_the_filters_keep_the_first_millisecond_and_drop_the_end(spark: SparkSession) -> None:
    span = TimeSpan(START_MS, START_MS + DAY_MS)
    records = frame(spark, [record(at_s=at) for at in (-0.001, 0, 86_399.999, 86_400)]).withColumn("day", utc_day())

    assert [
        row["start_ms"] - START_MS for row in records.where(span.starts_within()).orderBy("start_ms").collect()
    ] == [
        0,
        DAY_MS - 1,
    ]
    assert records.where(span.days_within()).count() == 2
    assert records.where(TimeSpan().starts_within() & TimeSpan().days_within()).count() == 4
    assert records.where(TimeSpan(from_ms=START_MS).days_within()).agg(F.min("day")).collect()[0][0] == "2026-09-07"
