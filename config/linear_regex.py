r"""Matches the names of clients against regular expressions, in time linear in the length of the name.

Python's ``re`` backtracks. With the pattern ``(a+)+`` and a name of 27 characters, it blocks the event loop for
seconds. So this module uses RE2, which never backtracks. RE2 refuses look-around, back-references, and possessive and
atomic groups.

Source: https://github.com/google/re2/wiki/Syntax.
"""

import re
from typing import Final, cast

import re2

# Names in use are shorter. A longer name matches no pattern, because the time also grows with the length of the
# pattern.
MAX_NAME_LENGTH: Final = 4_096
_PIECE: Final = re.compile(r"\\(?:(?P<number>[1-9][0-9]?)|(?P<itself>\\))|(?P<text>[^\\]+)")


class LinearRegexError(ValueError):
    """A pattern is not valid, or cannot be matched in linear time. ``str`` gives the reason."""


# RE2's objects are typed as those of re, since they share the methods in use: fullmatch, search and groups of a
# pattern, and [], start, end and groups of a match.
Pattern = re.Pattern[str]
Match = re.Match[str]


def compile_linear(pattern: str) -> Pattern:
    """Compile a pattern in RE2's syntax. Raises LinearRegexError if RE2 refuses the pattern."""
    options = re2.Options()
    options.log_errors = False  # do not log errors to stderr
    try:
        return cast("Pattern", re2.compile(pattern, options))
    except re2.error as error:
        reason = error.args[0]
        raise LinearRegexError(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from error


def match_whole(pattern: Pattern, name: str) -> Match | None:
    """Match a whole name. Return None if it does not match, is too long, or contains an unpaired surrogate."""
    if len(name) > MAX_NAME_LENGTH:
        return None
    try:
        return pattern.fullmatch(name)
    except UnicodeEncodeError:
        return None


def read_replacement(text: str, pattern: Pattern) -> tuple[str | int, ...]:
    r"""Split the replacement text of a rule into parts, which are literal texts and numbers of groups.

    ``\1`` stands for the first group of the pattern. Raises LinearRegexError if there is no such group, and for any
    other use of a backslash.
    """
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        found = _PIECE.match(text, at)
        if found is None:
            raise LinearRegexError(rf"{text[at : at + 2]!r} is none of \1 to \99 and \\")
        at = found.end()
        number = int(found["number"]) if found["number"] else None
        if number is not None and number > pattern.groups:
            raise LinearRegexError(f"the pattern has no group {number}")
        parts.append((found["itself"] or found["text"]) if number is None else number)
    return tuple(parts)


def replaced(found: Match, replacement: tuple[str | int, ...]) -> str:
    """Return the text of a replacement in which each group is what it matched. A group that did not match is empty."""
    return "".join(part if isinstance(part, str) else found[part] or "" for part in replacement)
