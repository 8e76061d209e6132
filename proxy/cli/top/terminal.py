"""Draws lines of styled text on a terminal, with the escapes that every terminal knows. It needs no other package.

Also reads the keys that the user presses, one by one and without showing them.
"""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from shutil import get_terminal_size
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

# The columns and lines of a file or a pipe, in which names are whole.
_IN_A_FILE: Final = (200, 24)
_COLORS: Final = {"red": "31", "green": "32", "yellow": "33"}
_STYLES: Final = {"bold": "1", "dim": "2", "reverse": "7"}
_OPEN: Final = "\x1b[?1049h\x1b[?25l"  # another screen, without a cursor
_CLOSE: Final = "\x1b[?25h\x1b[?1049l"


class Text(NamedTuple):
    """A text of printable characters. ``style`` has words of ``bold dim reverse red green yellow``."""

    text: str
    style: str = ""


Line = Sequence[Text]


class Column(NamedTuple):
    """A column of a table. One that ``grows`` gets a part of the width that is left, in proportion to its ``width``."""

    heading: str
    width: int
    is_number: bool = False
    grows: bool = False


def table(columns: Sequence[Column], rows: Iterable[Sequence[Text]], *, width: int) -> list[Line]:
    """Return a line with the headings, and one for each row. Texts that are too long for their columns are cut."""
    left = max(0, width - (len(columns) - 1) - sum(column.width for column in columns if not column.grows))
    shares = sum(column.width for column in columns if column.grows)
    widths: list[int] = []
    for column in columns:
        if column.grows:
            part = round(left * column.width / shares)
            left, shares = left - part, shares - column.width
        widths.append(part if column.grows else column.width)
    headings = [Text(column.heading, "bold") for column in columns]
    return [_row(columns, widths, cells) for cells in (headings, *rows)]


def _row(columns: Sequence[Column], widths: Sequence[int], cells: Sequence[Text]) -> Line:
    line: list[Text] = []
    for column, width, (text, style) in zip(columns, widths, cells, strict=True):
        fitting = cut(text, width)
        room = Text(" " * (width - cells_of(fitting)))
        line += [room, Text(fitting, style)] if column.is_number else [Text(fitting, style), room]
        line.append(Text(" "))
    return line[:-1]


def cut(text: str, width: int) -> str:
    """Return ``text``, or as much of it as ``width`` cells of a terminal hold, with an ellipsis at its end."""
    if cells_of(text) <= width:
        return text
    text = text[: max(width, 0)]
    while text and cells_of(text) >= width:
        text = text[:-1]
    return f"{text}…" if width > 0 else ""


def cells_of(text: str) -> int:
    """Return how many cells of a terminal a text takes. A Chinese character takes two, and a combining one none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def codes(*, is_terminal: bool) -> Mapping[str, str]:
    """Return the escape codes of styles: none without a terminal, and no colors with NO_COLOR (https://no-color.org)."""
    if not is_terminal:
        return {}
    return _STYLES if os.environ.get("NO_COLOR") else _STYLES | _COLORS


def drawn(line: Line, *, width: int, codes: Mapping[str, str]) -> str:
    """Return a line of at most ``width`` cells, with the escapes of ``codes``."""
    found: list[str] = []
    for text, style in line:
        fitting = cut(text, width)
        width -= cells_of(fitting)
        own = [codes[word] for word in style.split() if word in codes]
        found.append(f"\x1b[{';'.join(own)}m{fitting}\x1b[0m" if own and fitting else fitting)
    return "".join(found)


def write_lines(lines: Callable[[int], Iterable[Line]]) -> None:
    """Write lines to standard output. ``lines`` returns those for a width."""
    width, of_style = get_terminal_size(_IN_A_FILE).columns, codes(is_terminal=sys.stdout.isatty())
    sys.stdout.writelines(f"{drawn(line, width=width, codes=of_style).rstrip()}\n" for line in lines(width))


class Screen:
    """Fills the terminal during a ``with`` block. Afterwards the terminal is as before."""

    def __init__(self) -> None:
        self._shown: object = None

    def __enter__(self) -> Self:
        self._write(_OPEN)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._write(_CLOSE)

    def show(self, lines: Callable[[int, int], Sequence[Line]]) -> None:
        """Draw lines in place of the last ones. ``lines`` returns those for a width and a height."""
        size = width, height = get_terminal_size()
        of_style = codes(is_terminal=True)
        texts = [drawn(line, width=width, codes=of_style) for line in lines(width, height)[:height]]
        if (size, texts) != self._shown:
            self._shown = size, texts
            # Each line is erased before it is drawn. Afterwards, the last cell of a full line would be erased, too.
            below = "\n\x1b[J" if len(texts) < height else ""
            self._write("\x1b[H" + "\n".join(f"\x1b[K{text}" for text in texts) + below)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


_SEQUENCES: Final = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
}
_NAMES: Final = {"\x1b": "esc", "\r": "enter", "\n": "enter", "\x7f": "backspace", "\x08": "backspace"}
_READ_BYTES: Final = 1_024


class Keys:
    """Reads keys from standard input within a ``with`` block. If that is no terminal, there are none."""

    def __init__(self) -> None:
        self._fd: int | None = None
        self._before: list[Any] = []

    def __enter__(self) -> Self:
        if sys.stdin.isatty():
            self._fd = sys.stdin.fileno()
            self._before = termios.tcgetattr(self._fd)
            tty.setcbreak(self._fd)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._fd is not None:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def read(self, timeout_s: float) -> list[str]:
        """Wait for keys for at most ``timeout_s``, and return their names. Ends as ``q`` if the terminal is gone."""
        if self._fd is None:
            time.sleep(timeout_s)
            return []
        if not select.select([self._fd], [], [], timeout_s)[0]:
            return []
        data = os.read(self._fd, _READ_BYTES)
        return split_keys(data.decode(errors="replace")) if data else ["q"]


def split_keys(text: str) -> list[str]:
    """Return the names of the keys that a terminal has sent as ``text``. Unknown sequences are left out."""
    found: list[str] = []
    while text:
        sequence = next((one for one in _SEQUENCES if text.startswith(one)), None)
        if sequence is not None:
            found.append(_SEQUENCES[sequence])
            text = text[len(sequence) :]
        elif text[:2] in ("\x1b[", "\x1bO"):
            end = next((at for at, char in enumerate(text) if at > 1 and "@" <= char <= "~"), len(text))
            text = text[end + 1 :]
        else:
            name = _NAMES.get(text[0], text[0])
            if len(name) > 1 or name.isprintable():
                found.append(name)
            text = text[1:]
    return found
