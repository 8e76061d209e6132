r"""Regular expressions for clients' names, matched in time linear in the name.

``re`` backtracks: ``(a+)+`` takes seconds for a name of 27 characters, and the event loop with it. RE2 never does. What
it cannot do without backtracking (look-around, back-references, possessive and atomic groups) it refuses.

Source: https://github.com/google/re2/wiki/Syntax.
"""

import re
from typing import Final, cast

import re2

# Above any name in use. Longer names match nothing, because time also grows with the pattern.
MAX_NAME_LENGTH: Final = 4_096
_PIECE: Final = re.compile(r"\\(?:(?P<number>[1-9][0-9]?)|g<(?P<group>[a-zA-Z_0-9]+)>|(?P<itself>\\))|(?P<text>[^\\]+)")


class LinearRegexError(ValueError):
    """Not a regular expression, or not one that can be matched in linear time. ``str`` gives the reason."""


# RE2's objects have these methods of re's: fullmatch, search, groups and groupindex; [], start, end and groups.
Pattern = re.Pattern[str]
Match = re.Match[str]


def compile_linear(pattern: str) -> Pattern:
    """Return a compiled pattern in RE2's syntax. Raises LinearRegexError: RE2 refuses it."""
    options = re2.Options()
    options.log_errors = False  # to stderr
    try:
        return cast("Pattern", re2.compile(pattern, options))
    except re2.error as error:
        reason = error.args[0]
        raise LinearRegexError(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from error


def match_whole(pattern: Pattern, name: str) -> Match | None:
    """Match a whole name; None also for a name that is too long or has an unpaired surrogate."""
    if len(name) > MAX_NAME_LENGTH:
        return None
    try:
        return pattern.fullmatch(name)
    except UnicodeEncodeError:
        return None


def read_replacement(text: str, pattern: Pattern) -> tuple[str | int, ...]:
    r"""Return a replacement as texts and group numbers: ``\1``, ``\g<1>`` and ``\g<name>`` are groups.

    Raises LinearRegexError: it has another backslash, or names a group that the pattern does not have.
    """
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        found = _PIECE.match(text, at)
        if found is None:
            raise LinearRegexError(rf"{text[at : at + 2]!r} is none of \1, \g<1>, \g<name> and \\")
        at = found.end()
        name = found["number"] or found["group"]
        parts.append(_group(name, pattern) if name else found["itself"] or found["text"])
    return tuple(parts)


def replaced(found: Match, replacement: tuple[str | int, ...]) -> str:
    """Return a replacement with the texts of its groups; "" for a group that did not match."""
    return "".join(part if isinstance(part, str) else found[part] or "" for part in replacement)


def _group(name: str, pattern: Pattern) -> int:
    number = int(name) if name.isdigit() else pattern.groupindex.get(name, -1)
    if not 0 <= number <= pattern.groups:
        raise LinearRegexError(f"the pattern has no group {name}")
    return number
