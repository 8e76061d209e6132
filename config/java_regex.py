r"""Translates the Java patterns of principal mapping rules into RE2's.

Kafka matches such patterns with ``java.util.regex``, which backtracks. Names come from clients, so the proxy must match
them in linear time (``config.linear_regex``). This module takes what mapping rules consist of: characters, punctuation
after a backslash, ``.``, ``^``, ``$``, ``|``, classes such as ``[a-z.]``, ``\d``, ``\w`` and ``\s``, groups ``(…)`` and
``(?:…)``, and repetitions, also lazy ones. It refuses everything else, because a rule must give the same user as in
Kafka.

The two languages differ. Java's ``.`` excludes six line terminators, RE2's excludes only the line feed. Java's ``$``
also matches before a line terminator at the end of the name, but the translated ``$`` does not. So a caller must not
match a name that ends with one of ``LINE_TERMINATORS``.

Source: ``java.util.regex.Pattern`` of Java 17; ``tests/end_to_end/test_principal_mapping.py`` compares the two.
"""

from __future__ import annotations

import re
from typing import Final

from kafka_quota_proxy.config.linear_regex import LinearRegexError, Pattern, compile_linear

LINE_TERMINATORS: Final = ("\n", "\r", "\x85", "\u2028", "\u2029")
# How RE2 writes what has another meaning there.
_TRANSLATED: Final = {"^": r"\A", "$": r"\z", ".": r"[^\n\r\x85\x{2028}\x{2029}]", "|": "|", "(": "(", "(?:": "(?:"}
_SETS: Final = {
    r"\s": r"\t-\r\x20",  # RE2's own \s lacks the vertical tab
    r"\S": r"\x00-\x08\x0e-\x1f!-\x{10ffff}",
}
_SET: Final = r"\\[dDwWsS]"
_ESCAPED: Final = r"\\[ -/:-@\[-`{-~]"
_MEMBER: Final = rf"{_ESCAPED}|[^\\\[\]]"
_TOKEN: Final = re.compile(
    r"(?P<repetition>(?:[*+?]|\{[0-9]{1,9}(?:,(?:[0-9]{1,9})?)?\})\??)|(?P<open>\((?:\?:|(?!\?)))|(?P<close>\))"
    rf"|(?P<place>[\^$|])|\[(?P<not>\^?+)(?P<class>(?:{_SET}|{_MEMBER})+)\]|(?P<any>\.)|(?P<set>{_SET})"
    rf"|(?P<character>{_ESCAPED}|[^\\\[({{])"
)
_MEMBERS: Final = re.compile(rf"(?P<set>{_SET})|(?P<first>{_MEMBER})(?:-(?P<last>{_SET}|{_MEMBER}))?")
_REFUSED: Final = re.compile(
    r"(?P<look_around>\(\?<?[=!])|(?P<atomic_group>\(\?>)|(?P<named_group>\(\?<)|(?P<flag>\(\?[a-z-]*)"
    r"|(?P<back_reference>\\[1-9k])|(?P<quotation>\\[QE])|(?P<Unicode_class>\\[pP])|(?P<escape>\\.?)"
)
_TAKEN: Final = r"a pattern may have characters, [a-z], ., ^, $, |, (…), (?:…), *, +, ?, {n,m}, \d, \w, \s and \."


class JavaRegexError(ValueError):
    """A pattern is not valid in Java, or is not supported here. ``str`` names the construct and gives the remedy."""


def compile_java(pattern: str) -> Pattern:
    """Return a compiled pattern that matches as ``pattern`` does in Java, except for ``$`` (see above).

    Groups keep their numbers. Raises JavaRegexError if the pattern is not valid or has a construct that is refused.
    """
    try:
        return compile_linear(_translated(pattern))
    except LinearRegexError as error:  # a repetition that is out of range, or too many of them in total
        raise JavaRegexError(f"cannot be matched in time linear in a client's name: {error}") from error


def _translated(pattern: str) -> str:
    parts: list[str] = []
    groups: list[int] = []  # where each open group begins in ``parts``
    atom: int | None = None  # where in ``parts`` that begins which a repetition would repeat
    at = 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            raise _refusal(pattern, at)
        kind, text, at = token.lastgroup, token[0], token.end()
        if kind == "repetition":
            _check_repetition(text, None if atom is None else "".join(parts[atom:]), follows=parts[-1:])
            atom = None
        elif kind == "close":
            if not groups:
                raise JavaRegexError(r"a ) closes no group; write \) for the character")
            atom = groups.pop()
        else:
            atom = None if kind in ("open", "place") else len(parts)
            if kind == "open":
                groups.append(len(parts))
            text = _re2(token)
        parts.append(text)
    if groups:
        raise JavaRegexError(r"a ( is not closed; write \( for the character")
    return "".join(parts)


def _check_repetition(text: str, atom: str | None, *, follows: list[str]) -> None:
    if atom is None and text[0] == "+" and follows and follows[0][0] in "*+?{":
        raise JavaRegexError(f"{follows[0]}+ is not supported (possessive); {_TAKEN}")
    if atom is None:
        raise JavaRegexError(f"{text} repeats no character, class or group; write \\{text[0]} for the character")
    # Java and RE2 end the repetition of a possibly empty group at different places.
    if text[0] != "?" and compile_linear(atom).fullmatch(""):
        raise JavaRegexError(f"{text} repeats a group that can be empty; let it take one character at least")


def _re2(token: re.Match[str]) -> str:
    members = token["set"] or token["class"]
    if members is None:
        return _TRANSLATED.get(token[0]) or _literal(token[0])
    if "&&" in members:
        raise JavaRegexError(rf"{token[0]} has &&, which is not supported (intersection); write \& for the character")
    return f"[{token['not'] or ''}{''.join(map(_member, _MEMBERS.finditer(members)))}]"


def _member(found: re.Match[str]) -> str:
    if found["set"]:
        return _SETS.get(found["set"], found["set"])
    first, last = found["first"], found["last"] or found["first"]
    if last[-1].isalnum() and last[0] == "\\":
        raise JavaRegexError(rf"{found[0]} is a range that ends with a set; write \- for the character -")
    return _literal(first) if last == first else f"{_literal(first)}-{_literal(last)}"


def _literal(text: str) -> str:
    character = text[-1]
    # The escaped form is safe within brackets and outside, and also after digits.
    return character if not character.isascii() or character.isalnum() else f"\\x{ord(character):02x}"


def _refusal(pattern: str, at: int) -> JavaRegexError:
    found = _REFUSED.match(pattern, at)
    if found is None:  # [ or {
        return JavaRegexError(f"{pattern[at : at + 20]} is not closed, or is not supported; {_TAKEN}")
    name = (found.lastgroup or "").replace("_", "-")
    return JavaRegexError(f"{found[0]} is not supported ({name}); {_TAKEN}")
