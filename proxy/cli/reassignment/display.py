"""Writes the reports on a reassignment, as lines of text, as JSON objects, or in place on a terminal."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from shutil import get_terminal_size
from typing import Final, TextIO

from kafka_quota_proxy.proxy.cli.reassignment.as_text import Question, as_json, bar, lines
from kafka_quota_proxy.proxy.cli.reassignment.model import Report

_REST_OF_LINE: Final = "\x1b[K"
_REST_OF_SCREEN: Final = "\x1b[J"


class Display(ABC):
    """Shows the reports on a reassignment, and finally how the reassignment ended."""

    def __init__(self, out: TextIO, errors: TextIO) -> None:
        self._out = out
        self._errors = errors

    @abstractmethod
    def show(self, report: Report, *, now: datetime, question: Question, notes: Sequence[str]) -> None:
        """Show a report, with the answers to the operator's ``question`` and with the warnings in ``notes``."""

    def end(self, state: str, text: str, *, now: datetime) -> None:
        """Show the outcome: ``state`` is "none", "done" or "given up", and ``text`` is a sentence about it."""
        self._out.write(f"{text}\n")

    def show_error(self, text: str) -> None:
        """Show an error after which the program will try again."""
        self._errors.write(f"{text}\n")


class PlainDisplay(Display):
    """Writes each report as lines of text, under the date and time, with an empty line between reports."""

    _gap = ""

    def show(self, report: Report, *, now: datetime, question: Question, notes: Sequence[str]) -> None:
        """Write the report."""
        text = "\n".join(lines(report, now=now, question=question, notes=notes))
        self._out.write(f"{self._gap}{now:%Y-%m-%d %H:%M:%S}\n{text}\n")
        self._out.flush()
        self._gap = "\n"


class JsonDisplay(Display):
    """Writes each report as one JSON object on one line."""

    def show(self, report: Report, *, now: datetime, question: Question, notes: Sequence[str]) -> None:
        """Write the report as one line."""
        self._write(as_json(report, time_ms=_epoch_ms(now), question=question, notes=notes))

    def end(self, state: str, text: str, *, now: datetime) -> None:
        """Write how the reassignment ended, as a JSON object whose list of replicas that are being copied is empty."""
        self._write({"time_ms": _epoch_ms(now), "state": state, "moves": [], "notes": [text]})

    def _write(self, fields: dict[str, object]) -> None:
        self._out.write(f"{json.dumps(fields)}\n")
        self._out.flush()


class LiveDisplay(Display):
    """Draws each report over the previous one on a terminal, below a progress bar."""

    _drawn_lines = 0

    def show(self, report: Report, *, now: datetime, question: Question, notes: Sequence[str]) -> None:
        """Draw the report over the previous report."""
        bars = [bar(report)] if report.rows else []
        self._draw([*bars, *lines(report, now=now, question=question, notes=notes)])

    def show_error(self, text: str) -> None:
        """Draw the error over the previous report."""
        self._draw([" ".join(text.split())])  # the text of a library may have several lines

    def _draw(self, all_lines: Sequence[str]) -> None:
        columns, rows = get_terminal_size()
        # A line that wraps, or one that scrolls away, could not be drawn over.
        drawn = list(all_lines)
        if len(all_lines) >= rows:
            drawn = [*all_lines[: rows - 2], f"… {len(all_lines) - rows + 2} more lines"]
        back = f"\x1b[{self._drawn_lines}A\r" if self._drawn_lines else ""
        body = "".join(f"{line[:columns]}{_REST_OF_LINE}\n" for line in drawn)
        self._out.write(f"{back}{body}{_REST_OF_SCREEN}")
        self._out.flush()
        self._drawn_lines = len(drawn)


def _epoch_ms(now: datetime) -> int:
    return round(now.timestamp() * 1_000)
