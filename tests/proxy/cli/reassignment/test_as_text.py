"""Tests of ``proxy.cli.reassignment.as_text``."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from kafka_quota_proxy.proxy.cli.reassignment.as_text import (
    as_json,
    clock_text,
    duration_text,
    lines,
)
from kafka_quota_proxy.proxy.cli.reassignment.progress import Move, Report, Sample, Sizes, Waiting, report_of

_NOW = datetime(2026, 3, 28, 22, 15, 0, tzinfo=UTC)
_EPOCH = datetime.fromtimestamp(1, UTC)


def test_a_duration_has_its_two_largest_units() -> None:
    durations_ms = (0, 59_499, 59_500, 3_599_000, 12_000_000, 180_000_000, 1e300)

    assert [duration_text(duration_ms) for duration_ms in durations_ms] == [
        "0 s", "59 s", "1 min 0 s", "59 min 59 s", "3 h 20 min", "2 d 2 h", "over a year",
    ]  # fmt: skip


def test_the_time_of_an_end_has_its_date_unless_today() -> None:
    assert clock_text(_NOW, 3_600_000) == "23:15:00"
    assert clock_text(_NOW, 7_200_000) == "2026-03-29 00:15"
    assert clock_text(_NOW, 1e300) == "no date"


MB = 1_000_000
_WAITING = (
    Waiting(Move("led", 0, 4), (7, 8), "the partition has no leader"),
    *(Waiting(Move("dead", number, 5), (5,), "Connect call failed") for number in range(7)),
    Waiting(Move("old", 0, 4), (), "the partition has no leader"),
)


def _report(*, copied: float, incoming: float) -> Report:
    samples = []
    for second in range(13):
        sizes = Sizes(
            leader=1, leader_bytes=1_000 * MB + round(second * incoming), follower_bytes=round(second * copied)
        )
        samples.append(Sample(time_ms=second * 1_000, moves={Move("orders", 0, 4): sizes}))
    return report_of(samples)


def _said(report: Report, by: datetime | None = None) -> list[str]:
    return list(lines(report, now=_NOW, by=by))


def test_a_move_that_ends_has_rates_and_end() -> None:
    assert _said(_report(copied=9 * MB, incoming=4 * MB), _NOW + timedelta(minutes=1)) == [
        "topic   to          left      rate  incoming  time left      ends",
        "orders  broker 4  940 MB  9.0 MB/s  4.0 MB/s  3 min 8 s  22:18:08",
        "in all: 940 MB left, 9.0 MB/s copied, 4.0 MB/s incoming, ends in 3 min 8 s, at 22:18:08",
        "to end by 2026-03-28 22:16:00 it takes 19.7 MB/s at each broker",
    ]


def test_what_waits_has_a_line_that_says_for_whom() -> None:
    report = replace(_report(copied=9 * MB, incoming=4 * MB), waiting=_WAITING)

    assert _said(report)[1:] == [
        "orders  broker 4  940 MB  9.0 MB/s  4.0 MB/s  3 min 8 s  22:18:08",
        "without what waits: 940 MB left, 9.0 MB/s copied, 4.0 MB/s incoming, the rest waits",
        "led-0 to broker 4 waits for broker 7 or broker 8: the partition has no leader",
        "dead-0 to broker 5, dead-1 to broker 5, dead-2 to broker 5, dead-3 to broker 5, dead-4 to broker 5 and 2 more "
        "wait for broker 5: Connect call failed",
        "old-0 to broker 4 waits for a leader: the partition has no leader",
    ]
    fields = as_json(report, now=_NOW)
    assert (fields["state"], fields["time_left_ms"], len(fields["waiting"])) == ("waits", None, 9)
    assert fields["waiting"][0] == {
        "topic": "led", "partition": 0, "broker": 4, "for_brokers": [7, 8], "reason": "the partition has no leader",
    }  # fmt: skip


@pytest.mark.parametrize(("copied", "incoming"), [(8 * MB, 12 * MB), (0, 0)])
def test_what_has_no_end_says_so(copied: int, incoming: int) -> None:
    report = _report(copied=copied, incoming=incoming)
    _, row, in_all = _said(report)

    assert row.endswith("never ends")
    assert in_all.endswith("never ends at this rate")
    assert as_json(report, now=_NOW)["state"] == "never ends"


def test_an_object_has_bytes_and_milliseconds_and_null_for_never() -> None:
    report = _report(copied=8 * MB, incoming=12 * MB)

    fields = as_json(report, now=_EPOCH, by=_EPOCH + timedelta(seconds=10))

    left = 1_000 * MB + 12 * 4 * MB
    of_all = {"state": "never ends", "left_bytes": left, "rate": 8 * MB, "incoming_rate": 12 * MB}
    of_all |= {"time_left_ms": None, "ends_at_ms": None}
    assert fields == {
        **of_all,
        "time_ms": 1_000,
        "sampled_ms": 12_000,
        "moves": [{"topic": "orders", "broker": 4, **of_all}],
        "waiting": [],
        "by": {"time_left_ms": 10_000, "rate": left / 10 + 12 * MB},
    }
    ends = as_json(_report(copied=10 * MB, incoming=0), now=_EPOCH)
    assert (ends["state"], ends["time_left_ms"], ends["ends_at_ms"]) == ("ends", 88_000, 89_000)
