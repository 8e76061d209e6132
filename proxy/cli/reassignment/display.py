"""Writes reports: as lines, as JSON objects, or in place on a terminal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from shutil import get_terminal_size
from typing import Final, TextIO

from kafka_quota_proxy.proxy.cli.reassignment.as_text import Question, as_json, bar, lines
from kafka_quota_proxy.proxy.cli.reassignment.model import Report

_REST_OF_LINE: Final = "\x1b[K"
_REST_OF_SCREEN: Final = "\x1b[J"


class PlainDisplay:
    """Writes lines, with an empty one between reports."""

    def __init__(self, out: TextIO, errors: TextIO) -> None:
        self._out = out
        self._errors = errors
        self._has_shown = False

    def show(self, report: Report, *, now: datetime, question: Question, notes: Sequence[str]) -> None:
        """Write the report."""
        gap = "\n" if self._has_shown else ""
        text = "\n".join(lines(report, now=now, question=question, notes=notes))
        self._out.write(f"{gap}{now:%Y-%m-%d %H:%M:%S}\n{text}\n")
        self._out.flush()
        self._has_shown = True

    def end(self, state: str, text: str, *, now: datetime) -> None:
        """Write the last line."""
        self._out.write(f"{text}\n")

    def trouble(self, text: str) -> None:
        """Write to standard error."""
        self._errors.write(f"{text}\n")


class JsonDisplay:
    """Writes one JSON object per line and report."""

    def __init__(self, out: TextIO, errors: TextIO) -> None:
        self._out = out
        self._errors = errors

    def show(self, report: Report, *, now: datetime, question: Question, notes: Sequence[str]) -> None:
        """Write the report."""
        self._write(as_json(report, time_ms=_epoch_ms(now), question=question, notes=notes))

    def end(self, state: str, text: str, *, now: datetime) -> None:
        """Write an object without moves."""
        self._write({"time_ms": _epoch_ms(now), "state": state, "moves": [], "notes": [text]})

    def trouble(self, text: str) -> None:
        """Write to standard error."""
        self._errors.write(f"{text}\n")

    def _write(self, told: dict[str, object]) -> None:
        self._out.write(f"{json.dumps(told)}\n")
        self._out.flush()


class LiveDisplay:
    """Draws the report with a progress bar, in place."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._drawn = 0  # lines

    def show(self, report: Report, *, now: datetime, question: Question, notes: Sequence[str]) -> None:
        """Draw over the last report."""
        self._draw([bar(report), *lines(report, now=now, question=question, notes=notes)])

    def end(self, state: str, text: str, *, now: datetime) -> None:
        """Leave the last report, and write the outcome below it."""
        self._out.write(f"{text}\n")

    def trouble(self, text: str) -> None:
        """Draw it in place of the report."""
        self._draw([" ".join(text.split())])  # the text of a library may have several lines

    def _draw(self, wanted: Sequence[str]) -> None:
        columns, rows = get_terminal_size()
        # A line that wraps, or one that scrolls away, could not be drawn over.
        shown = list(wanted)
        if len(wanted) >= rows:
            shown = [*wanted[: rows - 2], f"… {len(wanted) - rows + 2} more lines"]
        back = f"\x1b[{self._drawn}A\r" if self._drawn else ""
        body = "".join(f"{line[:columns]}{_REST_OF_LINE}\n" for line in shown)
        self._out.write(f"{back}{body}{_REST_OF_SCREEN}")
        self._out.flush()
        self._drawn = len(shown)


def _epoch_ms(now: datetime) -> int:
    return round(now.timestamp() * 1_000)
