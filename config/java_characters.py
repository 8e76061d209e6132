"""Sets of characters in Java's regular expressions, written as members of a class of RE2's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

# Members of a class, without its brackets.
SETS: Final = {
    "d": "0-9",
    "w": "a-zA-Z0-9_",
    "s": r"\t-\r\x20",
    "h": r"\t\x20\xa0\x{1680}\x{180e}\x{2000}-\x{200a}\x{202f}\x{205f}\x{3000}",
    "v": r"\n-\r\x85\x{2028}\x{2029}",
}
POSIX: Final = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": r"\x00-\x7f",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": r"\x20-~",
    "Blank": r"\t\x20",
    "Cntrl": r"\x00-\x1f\x7f",
    "XDigit": "0-9a-fA-F",
    "Space": r"\t-\r\x20",
}
CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags ``i`` and ``s`` at one place of a pattern."""

    ignore_case: bool = False
    dot_all: bool = False


def cased(character: str, flags: Flags) -> str:
    """Return a pattern for a character; under ``(?i)`` in both cases, for an ASCII letter."""
    members = character_range(character, character, flags)
    return _literal(character) if members == _literal(character) else f"[{members}]"


def character_range(first: str, last: str, flags: Flags) -> str:
    """Return a range as members of a class; under ``(?i)`` with the other case of its ASCII letters."""
    members = _literal(first) if first == last else f"{_literal(first)}-{_literal(last)}"
    for letters in ("az", "AZ") if flags.ignore_case else ():
        low, high = max(first, letters[0]), min(last, letters[1])
        if low <= high:
            members += f"{low.swapcase()}-{high.swapcase()}"
    return members


def _literal(character: str) -> str:
    # Safe within brackets and outside, after any digits.
    if not character.isascii() or character.isalnum():
        return character
    return f"\\x{ord(character):02x}"


def complement(members: str) -> str:
    """Return the members of the complement, without brackets."""
    ranges = sorted(_ranges(members))
    text, start = "", 0
    for first, last in ranges:
        if first > start:
            text += f"{_code(start)}-{_code(first - 1)}"
        start = max(start, last + 1)
    return f"{text}{_code(start)}-{_code(0x10FFFF)}"


def _ranges(members: str) -> list[tuple[int, int]]:
    one = r"(\\x\{[0-9a-f]+\}|\\x..|\\.|.)"
    found = re.findall(rf"{one}(?:-{one})?", members)
    return [(_code_point(first), _code_point(last or first)) for first, last in found]


def _code_point(member: str) -> int:
    if len(member) == 1:
        return ord(member)
    return int(member[2:].strip("{}"), 16) if member[1] == "x" else ord(CONTROLS.get(member[1], member[1]))


def _code(code_point: int) -> str:
    return f"\\x{{{code_point:x}}}"
