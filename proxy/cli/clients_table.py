"""Draws the clients of a proxy as a table, on a terminal or in a file.

A page is what ``GET /clients`` answers, and its rows are those of ``clients``. Colours and the other screen are escapes
that every terminal knows.
"""

import os
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from shutil import get_terminal_size
from typing import Any, Final, NamedTuple

from kafka_quota_proxy.config.quota_kinds import BUCKET_KINDS, QuotaKind
from kafka_quota_proxy.config.units import short_size

Row = Mapping[str, Any]
Page = Mapping[str, Any]

KINDS: Final = {kind.label: kind for kind in BUCKET_KINDS}
_WIDE: Final = 118  # from this width on, there are more columns
_NEAR: Final = 0.8
_OPEN: Final = "\x1b[?1049h\x1b[?25l"  # another screen, without a cursor
_CLOSE: Final = "\x1b[?25h\x1b[?1049l"
_BOLD: Final = "1"
_RED: Final = "31"
_YELLOW: Final = "33"


@contextmanager
def screen() -> Iterator[Callable[[Sequence[str]], None]]:
    """Yield a function that draws lines on another screen of the terminal, as many as it has room for."""

    def draw(shown: Sequence[str]) -> None:
        room = get_terminal_size().lines - 1
        sys.stdout.write("\x1b[H" + "".join(f"\x1b[K{line}\n" for line in shown[:room]) + "\x1b[J")
        sys.stdout.flush()

    sys.stdout.write(_OPEN)
    try:
        yield draw
    finally:
        sys.stdout.write(_CLOSE)


def lines(page: Page, query: Mapping[str, str], *, width: int) -> list[str]:
    """Return a line about all clients, the headings, and a line for each row, at most ``width`` cells wide."""
    rows: list[Row] = page["clients"]
    throttled = sum(bool(row["throttled"]) for row in rows)
    order = f"ordered by {query['sort']}" + (f", {query['kind']} only" if "kind" in query else "")
    past = [f"past the proxy: {one['broker']} sends clients to {one['advertises']}" for one in page.get("bypassed", ())]
    head = [*past, f"{len(rows)} of {page['total']} clients, {throttled} throttled, {order}"]
    return [*(cut(printable(text), width) for text in head), *_table(rows, width)]


class _Column(NamedTuple):
    heading: str
    narrow: int  # the width on a narrow terminal; 0 leaves the column out
    wide: int
    cell: Callable[[Row], str]
    is_name: bool = False  # gets a part of the width that is left, in proportion to its own


def _table(rows: list[Row], width: int) -> list[str]:
    sized = ((one, one.wide if width >= _WIDE else one.narrow) for one in _COLUMNS)
    columns = [(one, size) for one, size in sized if size]
    left = max(0, width - len(columns) + 1 - sum(size for one, size in columns if not one.is_name))
    shares = sum(size for one, size in columns if one.is_name)
    widths = {one: left * size // shares if one.is_name else size for one, size in columns}
    found = [_styled(_line([(one, size, one.heading) for one, size in widths.items()], width), _BOLD)]
    for row in rows:
        style = _RED if row["throttled"] else _YELLOW if (row["utilisation"] or 0.0) >= _NEAR else ""
        found.append(_styled(_line([(one, size, one.cell(row)) for one, size in widths.items()], width), style))
    return found


def _line(cells: list[tuple[_Column, int, str]], width: int) -> str:
    parts = []
    for column, size, text in cells:
        fitting = cut(text, size, keeps_end=column.heading == "rule")
        room = " " * (size - cells_of(fitting))
        parts.append(fitting + room if column.is_name else room + fitting)
    return cut(" ".join(parts).rstrip(), width)


def _styled(line: str, style: str) -> str:
    """Return a line with the escapes of its style: none without a terminal or with NO_COLOR (https://no-color.org)."""
    has_style = style and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return f"\x1b[{style}m{line}\x1b[0m" if has_style else line


def cut(text: str, width: int, *, keeps_end: bool = False) -> str:
    """Return ``text``, or as much of it as ``width`` cells of a terminal hold, with an ellipsis where it is cut."""
    if cells_of(text) <= width:
        return text
    while text and cells_of(text) >= width:
        text = text[1:] if keeps_end else text[:-1]
    return "" if width < 1 else f"…{text}" if keeps_end else f"{text}…"


def cells_of(text: str) -> int:
    """Return how many cells of a terminal a text takes. A Chinese character takes two, and a combining one none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def printable(text: str) -> str:
    """Return ``text`` with characters that a terminal may act on written as escapes, because clients choose names."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def rate(row: Row, key: str) -> str:
    """Return the ``rate`` or ``limit`` of a row in few characters, in the kind of unit of the limit as written."""
    value, kind = row[key], KINDS[row["kind"]]
    if value is None:
        return "-"
    if kind is QuotaKind.REQUEST:
        return f"{value:.1f} %"
    if kind not in (QuotaKind.PRODUCE, QuotaKind.FETCH):
        return f"{value:.1f}"
    return short_size(value, like=row["limit_written"] or "iB")


def duration(milliseconds: float) -> str:
    """Return a time as text in few characters, such as ``12 s`` or ``3 min``."""
    seconds = milliseconds / 1_000
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7_200 else f"{seconds / 3_600:.1f} h"


def _percent(part: float | None) -> str:
    return f"{min(part, 9.99):.0%}" if part else ""


def _name(name: str | None) -> str:
    return "(several)" if name is None else printable(name) or "(none)"


def _client(row: Row) -> str:
    """Return both names in one cell. A user that did not log in, or a missing client-id, is left out."""
    user, client_id = row["user"], row["client_id"]
    if user == "ANONYMOUS":
        return _name(client_id)
    return _name(user) if not client_id else f"{_name(user)} {_name(client_id)}"


def _source(row: Row) -> str:
    """Return the file and line of the rule, without the file's folder."""
    return "" if row["rule"] is None else printable(row["rule"]["source"].rpartition("/")[2])


_COLUMNS: Final = (
    _Column("kind", 8, 12, lambda row: row["kind"], is_name=True),
    _Column("client", 13, 0, _client, is_name=True),
    _Column("user", 0, 14, lambda row: _name(row["user"]), is_name=True),
    _Column("client-id", 0, 18, lambda row: _name(row["client_id"]), is_name=True),
    _Column("broker", 6, 6, lambda row: "" if row["broker"] is None else str(row["broker"])),
    _Column("rate/s", 8, 8, lambda row: rate(row, "rate")),
    _Column("limit/s", 8, 8, lambda row: rate(row, "limit")),
    _Column("used", 4, 4, lambda row: _percent(row["utilisation"])),
    _Column("throttled", 9, 9, lambda row: duration(row["throttled_for_ms"]) if row["throttled"] else ""),
    _Column("1min", 4, 4, lambda row: _percent(row["throttle_seconds_last_minute"] / 60)),
    _Column("rule", 12, 18, _source, is_name=True),
    _Column("conn", 0, 5, lambda row: str(row["connections"])),
    _Column("addresses", 0, 16, lambda row: printable(", ".join(row["addresses"])), is_name=True),
)
