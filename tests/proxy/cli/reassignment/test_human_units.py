"""Tests sizes, rates and times in units that a person reads easily."""

from datetime import UTC, datetime

import pytest

from kafka_quota_proxy.proxy.cli.reassignment.human_units import clock_text, duration_text, rate_text, size_text

_NOW = datetime(2026, 3, 28, 22, 15, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (999_400, "999 kB"),
        (999_500, "1.0 MB"),
        (12_345_678, "12.3 MB"),
        (123_456_789, "123 MB"),
        (1.5e9, "1.5 GB"),
        (2e12, "2.0 TB"),
        (2e15, "2000 TB"),
    ],
)
def test_a_size_has_the_unit_that_fits(size_bytes: float, text: str) -> None:
    assert size_text(size_bytes) == text
    assert rate_text(size_bytes) == f"{text}/s"


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0 s"),
        (59_499, "59 s"),
        (59_500, "1 min 0 s"),
        (3_599_000, "59 min 59 s"),
        (12_000_000, "3 h 20 min"),
        (180_000_000, "2 d 2 h"),
        (1e300, "over a year"),
    ],
)
def test_a_duration_has_its_two_largest_units(duration_ms: float, text: str) -> None:
    assert duration_text(duration_ms) == text


def test_the_time_of_an_end_has_its_date_unless_today() -> None:
    assert clock_text(_NOW, 3_600_000) == "23:15:00"
    assert clock_text(_NOW, 7_200_000) == "2026-03-29 00:15"
    assert clock_text(_NOW, 1e300) == "no date"
