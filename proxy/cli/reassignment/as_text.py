"""Formats the report of a reassignment as lines of text for people and as a JSON object for scripts.

This module does no I/O and reads no clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from kafka_quota_proxy.proxy.cli.reassignment.human_units import clock_text, duration_text, rate_text, size_text
from kafka_quota_proxy.proxy.cli.reassignment.model import Estimate, Holder, Move, Report, Row, Side, Verdict

_BAR: Final = 24
_FILLED, _EMPTY = "█", "░"
_SHOWN_MOVES: Final = 5
_HEADINGS: Final = ("topic", "to", "left", "done", "rate", "limit", "incoming", "time left", "ends")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Holds what the operator asks with ``--throttle`` and ``--by``. A number is None if its option was not given."""

    throttle: float | None = None  # "when would it end with this throttle?", in bytes per second
    by_ms: float | None = None  # "which throttle ends it within this time from now?"
    by: str = ""  # the same time in the operator's words, such as "by 06:00" or "within 2h"


def lines(report: Report, *, now: datetime, question: Question, notes: Sequence[str] = ()) -> Iterator[str]:
    """Yield the lines of the report. ``now`` is the local time of the report's last sample."""
    if report.rows:
        yield from _table([_HEADINGS, *(_cells(row, now) for row in report.rows)])
        yield summary(report, now=now)
    yield from _waits(report)
    yield from _too_low(report)
    if report.rows:
        yield from _answers(report, now=now, question=question)
    yield from notes


def summary(report: Report, *, now: datetime) -> str:
    """Return one line about the whole reassignment: the bytes left, the rates, and when it ends."""
    rate = "…" if report.rate is None else rate_text(report.rate)
    what = "without what waits" if report.waiting else "in all"
    return (
        f"{what}: {size_text(report.left_bytes)} left of {size_text(report.size_bytes)} ({_percent(report)}), "
        f"{rate} copied, {rate_text(report.incoming_rate)} incoming, {_end(report.verdict, report.time_left_ms, now)}"
    )


def name_of(move: Move) -> str:
    """Return the name of a move: its partition, and the broker that it goes to."""
    return f"{move.topic}-{move.partition} to broker {move.follower}"


def bar(report: Report) -> str:
    """Draw a progress bar, with the percentage of the reassignment's bytes that have been copied."""
    filled = int(_done(report) * _BAR)
    return f"[{_FILLED * filled}{_EMPTY * (_BAR - filled)}] {_percent(report)}"


def as_json(report: Report, *, time_ms: int, question: Question, notes: Sequence[str] = ()) -> dict[str, Any]:
    """Return the report as a JSON object, in bytes, bytes per second and milliseconds.

    A null stands for "never", "unknown" or "no limit". ``time_ms`` is the Unix time of the report.
    """
    fields: dict[str, Any] = {
        "time_ms": time_ms,
        "sampled_ms": report.span_ms,
        "state": report.verdict.value,
        **_fields(report, time_ms),
        "moves": [
            {"topic": row.topic, "broker": row.follower, "partitions": row.partitions, "state": row.verdict.value}
            | _fields(row, time_ms)
            | {"limit": row.limit}
            for row in report.rows
        ],
        "throttles": [_throttle(estimate) for estimate in report.estimates if estimate.limit is not None],
        "smallest_rate": report.smallest_rate,
        "waiting": [
            {"topic": move.topic, "partition": move.partition, "broker": move.follower}
            | {"for_brokers": list(brokers), "reason": reason}
            for move, brokers, reason in report.waiting
        ],
        "notes": list(notes),
    }
    if question.throttle is not None:
        fields["what_if"] = {
            "throttle": question.throttle,
            "time_left_ms": _whole(report.time_left_at_ms(question.throttle)),
        }
    if question.by_ms is not None:
        fields["by"] = {"time_left_ms": _whole(question.by_ms), "rate": report.rate_to_end_in(question.by_ms)}
    return fields


def _throttle(estimate: Estimate) -> dict[str, Any]:
    load = estimate.load
    return {
        "side": load.holder.side.value,
        "leader": load.holder.leader,
        "follower": load.holder.follower,
        "path": load.holder.path or None,
        "source": estimate.source.value if estimate.source else None,
        "limit": estimate.limit,
        "rate": estimate.rate,
        "incoming_rate": load.incoming_rate,
        "in_sync_rate": load.in_sync_rate,
        "left_bytes": load.left_bytes,
        "state": estimate.verdict.value,
        "time_left_ms": _whole(estimate.time_left_ms),
        "smallest_rate": load.smallest_rate,
    }


def _fields(one: Report | Row, time_ms: int) -> dict[str, Any]:
    time_left_ms = _whole(one.time_left_ms)
    return {
        "left_bytes": one.left_bytes,
        "size_bytes": one.size_bytes,
        "done_percent": round(_done(one) * 100, 2),
        "rate": one.rate,
        "incoming_rate": one.incoming_rate,
        "time_left_ms": time_left_ms,
        "ends_at_ms": None if time_left_ms is None else time_ms + time_left_ms,
    }


def _cells(row: Row, now: datetime) -> tuple[str, ...]:
    time_left = "…" if row.verdict is Verdict.UNKNOWN else row.verdict.value
    ends = ""
    if row.verdict is Verdict.ENDS and row.time_left_ms is not None:
        time_left, ends = duration_text(row.time_left_ms), clock_text(now, row.time_left_ms)
    elif row.verdict is Verdict.TOO_LOW:
        time_left = "never"
    return (
        row.topic,
        f"broker {row.follower}",
        size_text(row.left_bytes),
        _percent(row),
        "…" if row.rate is None else rate_text(row.rate),
        "none" if row.limit is None else rate_text(row.limit),
        rate_text(row.incoming_rate),
        time_left,
        ends,
    )


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield each row as a line of text. The first two columns are aligned on the left, the others on the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        words = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
        numbers = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        yield "  ".join([*words, *numbers]).rstrip()


def _apart(report: Report) -> str:
    return ", without what waits" if report.waiting else ""


def _waits(report: Report) -> Iterator[str]:
    """Yield a line for each reason why moves wait, with these moves and the brokers that they wait for."""
    moves_by_reason: dict[tuple[tuple[int, ...], str], list[Move]] = {}
    for move, brokers, reason in report.waiting:
        moves_by_reason.setdefault((brokers, reason), []).append(move)
    for (brokers, reason), moves in moves_by_reason.items():
        names = ", ".join(map(name_of, moves[:_SHOWN_MOVES]))
        more = f" and {len(moves) - _SHOWN_MOVES} more" if len(moves) > _SHOWN_MOVES else ""
        whom = " or ".join(f"broker {broker}" for broker in brokers) or "a leader"
        yield f"{names}{more} {'waits' if len(moves) == 1 else 'wait'} for {whom}: {reason}"


def _too_low(report: Report) -> Iterator[str]:
    """Yield a line for each reason why the reassignment never ends, such as a throttle that is too low.

    Each line begins with the brokers, or the pairs of brokers or racks, to which the reason applies. If there are
    several reasons, a last line says which throttle would let the reassignment end if all of them had it.
    """
    holders_by_reason: dict[str, list[str]] = {}
    for estimate in report.estimates:
        if estimate.verdict is Verdict.TOO_LOW:
            holders_by_reason.setdefault(_reason(estimate), []).append(_holder_name(estimate.load.holder))
    for reason, holders in holders_by_reason.items():
        yield f"{', '.join(holders)}: {reason}"
    if len(holders_by_reason) > 1:
        yield f"with a throttle above {rate_text(report.smallest_rate)} at all of them it would end"


def _reason(estimate: Estimate) -> str:
    load = estimate.load
    incoming = load.incoming_rate + load.in_sync_rate
    parts = f"incoming {rate_text(incoming)}"
    if load.in_sync_rate:
        parts += f" ({rate_text(load.in_sync_rate)} of it to replicas in sync, which the throttle counts as well)"
    if estimate.limit is None:
        return f"no throttle, yet too slow: {parts} is above the {_rate(estimate)} that are copied, this never ends"
    if incoming >= estimate.limit:
        than = f"the throttle {rate_text(estimate.limit)}"
    else:
        than = f"the {_rate(estimate)} that come through the throttle {rate_text(estimate.limit)}"
    source = f" of the {estimate.source.value}" if estimate.source else ""
    return f"too low: {parts} is above {than}{source}, this never ends; above {rate_text(load.smallest_rate)} it would"


def _rate(estimate: Estimate) -> str:
    return rate_text((estimate.rate or 0.0) + estimate.load.in_sync_rate)


def _answers(report: Report, *, now: datetime, question: Question) -> Iterator[str]:
    if question.throttle is not None:
        time_left_ms = report.time_left_at_ms(question.throttle)
        outlook = (
            f"never end: any rate above {rate_text(report.smallest_rate)} would"
            if time_left_ms is None
            else f"end in {duration_text(time_left_ms)}, at {clock_text(now, time_left_ms)}"
        )
        yield f"at {rate_text(question.throttle)} it would {outlook}{_apart(report)}"
    if question.by_ms is not None:
        yield f"to end {question.by} it takes {rate_text(report.rate_to_end_in(question.by_ms))}{_apart(report)}"


def _holder_name(holder: Holder) -> str:
    match holder.side:
        case Side.LEADER:
            return f"leader {holder.leader}"
        case Side.FOLLOWER:
            return f"broker {holder.follower}"
        case Side.PATH:
            return f"path {holder.path}"


def _end(verdict: Verdict, time_left_ms: float | None, now: datetime) -> str:
    match verdict:
        case Verdict.ENDS:
            left = time_left_ms or 0.0
            return f"ends in {duration_text(left)}, at {clock_text(now, left)}"
        case Verdict.TOO_LOW:
            return "never ends"
        case Verdict.STANDS_STILL:
            return "stalled: nothing is copied"
        case Verdict.UNKNOWN:
            return "not watched for long enough to say when it ends"
        case Verdict.WAITS:
            return "the rest waits"


def _done(one: Report | Row) -> float:
    """Return the fraction of the bytes of a report, or of one of its rows, that has been copied, from 0 to 1."""
    return 1.0 if one.size_bytes == 0 else min(1.0, max(0.0, 1 - one.left_bytes / one.size_bytes))


def _percent(one: Report | Row) -> str:
    return f"{int(_done(one) * 1_000) / 10:.1f} %"  # rounded down, so that 100 means that all is copied


def _whole(number: float | None) -> int | None:
    return None if number is None else round(number)
