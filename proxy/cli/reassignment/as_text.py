"""Formats the report of a reassignment as lines of text for people and as a JSON object for scripts.

This module does no I/O and reads no clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from kafka_quota_proxy.config.units import short_size
from kafka_quota_proxy.proxy.cli.reassignment.progress import Load, Move, Report, Row

_LONGEST_MS: Final = 366 * 86_400_000


def size_text(size_bytes: float) -> str:
    """Return a size as text with a decimal unit, such as ``1.5 MB``."""
    return short_size(size_bytes, like="B")


def rate_text(rate: float) -> str:
    """Return a rate as text with a decimal unit, such as ``1.5 MB/s``."""
    return f"{size_text(rate)}/s"


def duration_text(duration_ms: float) -> str:
    """Return a duration as text, in its two largest units, such as ``3 h 20 min``."""
    if duration_ms > _LONGEST_MS:
        return "over a year"
    seconds = round(duration_ms / 1_000)
    days, hours, minutes = seconds // 86_400, seconds // 3_600 % 24, seconds // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    if minutes:
        return f"{minutes} min {seconds % 60} s"
    return f"{seconds} s"


def clock_text(now: datetime, duration_ms: float) -> str:
    """Return the time of day that is ``duration_ms`` after ``now``, with the date if it is on another day."""
    if duration_ms > _LONGEST_MS:
        return "no date"
    then = now + timedelta(milliseconds=duration_ms)
    return f"{then:%H:%M:%S}" if then.date() == now.date() else f"{then:%Y-%m-%d %H:%M}"


_SHOWN_MOVES: Final = 5
_HEADINGS: Final = ("topic", "to", "left", "rate", "incoming", "time left", "ends")


def lines(report: Report, *, now: datetime, by: datetime | None = None) -> Iterator[str]:
    """Yield the lines of the report. ``now`` is the local time of the report's last sample.

    ``by`` is the time by which the operator wants the reassignment to end, after ``now``.
    """
    if report.rows:
        yield from _table([_HEADINGS, *(_cells(row, now) for row in report.rows)])
        yield _summary(report, now)
        if by is not None:
            rate = report.rate_to_end_in((by - now) / timedelta(milliseconds=1))
            yield f"to end by {by:%Y-%m-%d %H:%M:%S} it takes {rate_text(rate)} at each broker"
    moves_by_reason: dict[tuple[tuple[int, ...], str], list[Move]] = {}
    for move, brokers, reason in report.waiting:
        moves_by_reason.setdefault((brokers, reason), []).append(move)
    for (brokers, reason), moves in moves_by_reason.items():
        names = ", ".join(map(str, moves[:_SHOWN_MOVES]))
        more = f" and {len(moves) - _SHOWN_MOVES} more" if len(moves) > _SHOWN_MOVES else ""
        whom = " or ".join(f"broker {broker}" for broker in brokers) or "a leader"
        yield f"{names}{more} {'waits' if len(moves) == 1 else 'wait'} for {whom}: {reason}"


def as_json(report: Report, *, now: datetime, by: datetime | None = None) -> dict[str, Any]:
    """Return the report as a JSON object, in bytes, bytes per second and milliseconds.

    A null stands for "never". The times are those of ``lines``.
    """
    time_ms = round(now.timestamp() * 1_000)
    fields: dict[str, Any] = {
        "time_ms": time_ms,
        "sampled_ms": report.span_ms,
        "state": _state(report),
        **_fields(report.total, report.time_left_ms, time_ms),
        "moves": [
            {"topic": row.topic, "broker": row.follower, "state": _state(row)}
            | _fields(row.load, row.time_left_ms, time_ms)
            for row in report.rows
        ],
        "waiting": [
            {"topic": move.topic, "partition": move.partition, "broker": move.follower}
            | {"for_brokers": list(brokers), "reason": reason}
            for move, brokers, reason in report.waiting
        ],
    }
    if by is not None:
        left_ms = (by - now) / timedelta(milliseconds=1)
        fields["by"] = {"time_left_ms": round(left_ms), "rate": report.rate_to_end_in(left_ms)}
    return fields


def _state(one: Report | Row) -> str:
    if one.never_ends:
        return "never ends"
    return "waits" if isinstance(one, Report) and one.waiting else "ends"


def _fields(load: Load, time_left_ms: float | None, time_ms: int) -> dict[str, Any]:
    left_ms = None if time_left_ms is None else round(time_left_ms)
    return {
        "left_bytes": load.left_bytes,
        "rate": load.rate,
        "incoming_rate": load.incoming_rate,
        "time_left_ms": left_ms,
        "ends_at_ms": None if left_ms is None else time_ms + left_ms,
    }


def _cells(row: Row, now: datetime) -> tuple[str, ...]:
    time_left, ends = "never ends", ""
    if row.time_left_ms is not None:
        time_left, ends = duration_text(row.time_left_ms), clock_text(now, row.time_left_ms)
    load = row.load
    return (
        row.topic,
        f"broker {row.follower}",
        size_text(load.left_bytes),
        rate_text(load.rate),
        rate_text(load.incoming_rate),
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


def _summary(report: Report, now: datetime) -> str:
    """Return one line about the whole reassignment: the bytes left, the rates, and when it ends."""
    total = report.total
    end = {"never ends": "never ends at this rate", "waits": "the rest waits"}
    left_ms = report.time_left_ms or 0.0
    return (
        f"{'without what waits' if report.waiting else 'in all'}: {size_text(total.left_bytes)} left, "
        f"{rate_text(total.rate)} copied, {rate_text(total.incoming_rate)} incoming, "
        + end.get(_state(report), f"ends in {duration_text(left_ms)}, at {clock_text(now, left_ms)}")
    )
