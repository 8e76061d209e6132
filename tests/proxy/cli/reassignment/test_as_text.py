"""Tests reports of a reassignment, as text and as JSON objects."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kafka_quota_proxy.proxy.cli.reassignment.as_text import Question, as_json, bar, lines
from kafka_quota_proxy.proxy.cli.reassignment.model import (
    Holder,
    Limit,
    Move,
    Report,
    Sample,
    Side,
    Sizes,
    Source,
    Waiting,
)
from kafka_quota_proxy.proxy.cli.reassignment.progress import Progress

MB = 1_000_000
_NOW = datetime(2026, 3, 28, 22, 15, 0, tzinfo=UTC)
_NOTHING = Question()


def _report(
    *,
    copied: float,
    incoming: float,
    limit: float | None,
    in_sync_followers: int = 0,
    seconds: int = 12,
    waiting: tuple[Waiting, ...] = (),
) -> Report:
    move = Move("orders", 0, 4)
    progress = Progress()
    holders = (Holder(Side.LEADER, 1, None), Holder(Side.FOLLOWER, None, 4))
    limits = [
        Limit(
            source=Source.CLUSTER,
            holder=holder,
            rate=limit,
            moves=frozenset({move}),
            charges_in_sync=holder.side is Side.LEADER,
        )
        for holder in holders
        if limit is not None
    ]
    for second in range(seconds + 1):
        sizes = Sizes(
            leader=1,
            leader_bytes=1_000 * MB + round(second * incoming),
            follower_bytes=round(second * copied),
            in_sync_followers=in_sync_followers,
        )
        progress.add(Sample(time_ms=second * 1_000, moves={move: sizes}), limits)
    return progress.report(waiting)


def _said(report: Report, question: Question = _NOTHING, notes: tuple[str, ...] = ()) -> list[str]:
    return list(lines(report, now=_NOW, question=question, notes=notes))


def test_a_move_that_ends_has_rates_limit_and_end() -> None:
    assert _said(_report(copied=9 * MB, incoming=4 * MB, limit=10 * MB)) == [
        "topic   to          left    done      rate      limit  incoming  time left      ends",
        "orders  broker 4  940 MB  10.3 %  9.0 MB/s  10.0 MB/s  4.0 MB/s  3 min 8 s  22:18:08",
        "in all: 940 MB left of 1.0 GB (10.3 %), 9.0 MB/s copied, 4.0 MB/s incoming, ends in 3 min 8 s, at 22:18:08",
    ]


def test_what_waits_has_a_line_that_says_for_whom() -> None:
    waiting = (
        Waiting(Move("led", 0, 4), (7, 8), "the partition has no leader"),
        *(Waiting(Move("dead", number, 5), (5,), "Connect call failed") for number in range(7)),
    )
    report = _report(copied=9 * MB, incoming=4 * MB, limit=10 * MB, waiting=waiting)

    said = _said(report, Question(throttle=20 * MB))

    assert said[1:] == [
        "orders  broker 4  940 MB  10.3 %  9.0 MB/s  10.0 MB/s  4.0 MB/s  3 min 8 s  22:18:08",
        "without what waits: 940 MB left of 1.0 GB (10.3 %), 9.0 MB/s copied, 4.0 MB/s incoming, the rest waits",
        "led-0 to broker 4 waits for broker 7 or broker 8: the partition has no leader",
        "dead-0 to broker 5, dead-1 to broker 5, dead-2 to broker 5, dead-3 to broker 5, dead-4 to broker 5 and 2 more "
        "wait for broker 5: Connect call failed",
        "at 20.0 MB/s it would end in 1 min 7 s, at 22:16:07, without what waits",
    ]
    fields = as_json(report, time_ms=0, question=_NOTHING)
    assert (fields["state"], fields["time_left_ms"], len(fields["waiting"])) == ("waits", None, 8)
    assert fields["waiting"][0] == {
        "topic": "led", "partition": 0, "broker": 4, "for_brokers": [7, 8], "reason": "the partition has no leader",
    }  # fmt: skip


def test_a_throttle_that_is_too_low_counts_more_than_what_waits() -> None:
    waiting = (Waiting(Move("led", 0, 4), (), "the partition has no leader"),)
    report = _report(copied=8 * MB, incoming=12 * MB, limit=8 * MB, waiting=waiting)

    said = _said(report)

    assert said[3] == "led-0 to broker 4 waits for a leader: the partition has no leader"
    assert said[4].startswith("broker 4, leader 1: too low")
    assert as_json(report, time_ms=0, question=_NOTHING)["state"] == "too low"


def test_too_low_is_reported_with_the_rate_that_would_end() -> None:
    *_, last = _said(_report(copied=8 * MB, incoming=12 * MB, limit=8 * MB))

    assert last == (
        "broker 4, leader 1: too low: incoming 12.0 MB/s is above the throttle 8.0 MB/s of the cluster, "
        "this never ends; above 12.0 MB/s it would"
    )


def test_a_throttle_below_its_rate_is_reported_with_the_measured_rate() -> None:
    *_, last = _said(_report(copied=9 * MB, incoming=9.5 * MB, limit=10 * MB))

    assert last == (
        "broker 4, leader 1: too low: incoming 9.5 MB/s is above the 9.0 MB/s that come through the throttle "
        "10.0 MB/s of the cluster, this never ends; above 10.6 MB/s it would"
    )


def test_in_sync_followers_count_as_incoming() -> None:
    said = _said(_report(copied=2 * MB, incoming=3 * MB, limit=8 * MB, in_sync_followers=2))

    assert said[3:] == [
        "leader 1: too low: incoming 9.0 MB/s (6.0 MB/s of it to replicas in sync, which the throttle counts as well) "
        "is above the throttle 8.0 MB/s of the cluster, this never ends; above 9.0 MB/s it would",
    ]


def test_several_low_throttles_are_reported_with_one_rate_for_all() -> None:
    said = _said(_report(copied=7 * MB, incoming=8 * MB, limit=9 * MB, in_sync_followers=1))

    assert said[3].startswith("broker 4: too low: incoming 8.0 MB/s is above the 7.0 MB/s that come through")
    assert said[4].startswith("leader 1: too low: incoming 16.0 MB/s (8.0 MB/s of it to replicas in sync")
    assert said[5:] == ["with a throttle above 16.0 MB/s at all of them it would end"]


def test_too_slow_without_a_throttle_is_not_called_too_low() -> None:
    *_, last = _said(_report(copied=9 * MB, incoming=12 * MB, limit=None))

    assert last == (
        "broker 4: no throttle, yet too slow: incoming 12.0 MB/s is above the 9.0 MB/s that are copied, this never ends"
    )


def test_questions_are_answered() -> None:
    report = _report(copied=10 * MB, incoming=4 * MB, limit=10 * MB)

    answers = _said(report, Question(throttle=50 * MB, by_ms=60_000, by="by 06:00"), ("a note",))[-3:]

    # The remaining 928 MB take 20 s at a net 46 MB/s. To end in a minute takes 15.5 MB/s and the rate of new data.
    assert answers == ["at 50.0 MB/s it would end in 20 s, at 22:15:20", "to end by 06:00 it takes 19.5 MB/s", "a note"]
    assert _said(report, Question(throttle=3 * MB))[-1] == (
        "at 3.0 MB/s it would never end: any rate above 4.0 MB/s would"
    )


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (_report(copied=0, incoming=0, limit=10 * MB), "stalled: nothing is copied"),
        (_report(copied=9, incoming=1, limit=None, seconds=1), "not watched for long enough to say when it ends"),
        (_report(copied=1, incoming=2, limit=None), "never ends"),
    ],
)
def test_the_summary_line_has_the_outlook(report: Report, said: str) -> None:
    assert said in _said(report)[2]


def test_the_bar_is_full_only_when_all_is_copied() -> None:
    half = _report(copied=50 * MB, incoming=0, limit=None, seconds=10)
    nearly = _report(copied=99.99 * MB, incoming=0, limit=None, seconds=10)

    assert bar(half) == f"[{'█' * 12}{'░' * 12}] 50.0 %"
    assert bar(nearly) == f"[{'█' * 23}░] 99.9 %"
    assert bar(_report(copied=100 * MB, incoming=0, limit=None, seconds=10)) == f"[{'█' * 24}] 100.0 %"


def test_an_object_has_bytes_and_milliseconds_and_null_for_never() -> None:
    report = _report(copied=8 * MB, incoming=12 * MB, limit=8 * MB)

    fields = as_json(report, time_ms=1_000, question=Question(throttle=MB, by_ms=10_000), notes=["a note"])

    left = 1_000 * MB + 12 * 4 * MB
    assert {key: fields[key] for key in fields if key not in ("moves", "throttles")} == {
        "time_ms": 1_000,
        "sampled_ms": 12_000,
        "state": "too low",
        "left_bytes": left,
        "size_bytes": 1_144 * MB,
        "done_percent": 8.39,
        "rate": 8 * MB,
        "incoming_rate": 12 * MB,
        "time_left_ms": None,
        "ends_at_ms": None,
        "smallest_rate": 12 * MB,
        "waiting": [],
        "notes": ["a note"],
        "what_if": {"throttle": MB, "time_left_ms": None},
        "by": {"time_left_ms": 10_000, "rate": left / 10 + 12 * MB},
    }
    (move,) = fields["moves"]
    assert (move["topic"], move["broker"], move["partitions"], move["limit"]) == ("orders", 4, 1, 8 * MB)
    assert [(one["side"], one["leader"], one["follower"], one["source"]) for one in fields["throttles"]] == [
        ("follower", None, 4, "cluster"),
        ("leader", 1, None, "cluster"),
    ]
    ends = as_json(_report(copied=10 * MB, incoming=0, limit=None), time_ms=1_000, question=_NOTHING)
    assert (ends["time_left_ms"], ends["ends_at_ms"]) == (88_000, 89_000)
    assert "what_if" not in ends
