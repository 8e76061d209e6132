"""Tests sizes, rates and times in units that a person reads easily."""

from datetime import UTC, datetime

from kafka_quota_proxy.proxy.cli.reassignment.human_units import clock_text, duration_text, rate_text, size_text

_NOW = datetime(2026, 3, 28, 22, 15, 0, tzinfo=UTC)


def test_a_size_has_the_unit_that_fits() -> None:
    sizes = (0, 999, 1_000, 999_400, 999_500, 12_345_678, 123_456_789, 2e12, 2e15)

    assert [size_text(size) for size in sizes] == [
        "0 B", "999 B", "1.0 kB", "999 kB", "1.0 MB", "12.3 MB", "123 MB", "2.0 TB", "2000 TB",
    ]  # fmt: skip
    assert rate_text(999_500) == "1.0 MB/s"


def test_a_duration_has_its_two_largest_units() -> None:
    durations_ms = (0, 59_499, 59_500, 3_599_000, 12_000_000, 180_000_000, 1e300)

    assert [duration_text(duration_ms) for duration_ms in durations_ms] == [
        "0 s", "59 s", "1 min 0 s", "59 min 59 s", "3 h 20 min", "2 d 2 h", "over a year",
    ]  # fmt: skip


def test_the_time_of_an_end_has_its_date_unless_today() -> None:
    assert clock_text(_NOW, 3_600_000) == "23:15:00"
    assert clock_text(_NOW, 7_200_000) == "2026-03-29 00:15"
    assert clock_text(_NOW, 1e300) == "no date"
