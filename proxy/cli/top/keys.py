"""Reads the keys that the user presses, one by one and without showing them."""

import os
import select
import sys
import termios
import time
import tty
from types import TracebackType
from typing import Any, Final, Self

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
