r"""Reads Kafka's ``ssl.principal.mapping.rules``, which map the distinguished name of a certificate to a user.

The value is a list of rules, separated by commas. A rule is ``DEFAULT`` or ``RULE:pattern/replacement/``, optionally
with ``L`` (lower case) or ``U`` (upper case) after the last slash. A slash within a pattern or a replacement is written
``\/``. Empty rules are ignored.

``server.tls.principal`` applies the rules. This module also finds faults that Kafka finds only when a client connects,
such as a group that does not exist or a stray ``$``.

Kafka matches patterns with ``java.util.regex``, which backtracks. Names come from clients, so the proxy must match them
in linear time (``config.linear_regex``). A rule must give the same user as in Kafka. So this module takes only what
means the same in Java and in RE2: characters, punctuation after a backslash, ``.``, ``^``, ``$``, ``|``, classes such
as ``[a-z.]``, ``\d``, ``\w`` and ``\s``, groups ``(…)`` and ``(?:…)``, and repetitions, also lazy ones.

``.``, ``$`` and ``\s`` differ at some line ends. So a caller must not match a name that has one of ``LINE_ENDS``.

Source: ``org.apache.kafka.common.security.ssl.SslPrincipalMapper``, and ``java.util.regex`` of Java 17;
``tests/end_to_end/test_principal_mapping.py`` compares them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kafka_quota_proxy.config.linear_regex import LinearRegexError, Pattern, compile_linear

LINE_ENDS: Final = "\n\v\r\x85\u2028\u2029"
_SET: Final = r"\\[dDwWsS]"
_ESCAPED: Final = r"\\[ -/:-@\[-`{-~]"
_TOKEN: Final = re.compile(
    r"(?P<repetition>(?:[*+?]|\{[0-9]{1,9}(?:,(?:[0-9]{1,9})?)?\})\??)|(?P<open>\((?:\?:|(?!\?)))|(?P<close>\))"
    rf"|[\^$|.]|\[\^?+(?:{_SET}|{_ESCAPED}|(?!&&)[^\\\[\]])+\]|{_SET}|{_ESCAPED}|[^\\\[({{]"
)
_TAKEN: Final = r"a pattern may have characters, [a-z], ., ^, $, |, (…), (?:…), *, +, ?, {n,m}, \d, \w, \s and \."


_FORM: Final = "write DEFAULT or RULE:pattern/replacement/, with L or U behind the last slash for lower or upper case"
# A pattern or a replacement. A backslash escapes the next character.
_PART: Final = r"(?:\\[^\n\r\x85\u2028\u2029]|[^\\/])*"
_RULE: Final = re.compile(
    rf"(?P<rule>DEFAULT|RULE:(?P<pattern>{_PART})/(?P<replacement>{_PART})/(?P<case>[LU]?))\s*(?:,[\s,]*|\Z)", re.ASCII
)
# Blanks, which Kafka removes, and commas around empty rules, which it ignores.
_AROUND: Final = "".join(map(chr, range(0x21))) + ","


class MappingRuleError(ValueError):
    """Kafka would refuse the mapping rules or fail with them, or this proxy cannot apply them as Kafka does."""


def compile_java(pattern: str) -> Pattern:
    """Return a compiled pattern that matches names without ``LINE_ENDS`` as ``pattern`` does in Java.

    Raises MappingRuleError if the pattern is not valid or has a construct that is refused.
    """
    opened: list[int] = []
    at, group = 0, ""  # the group that ends at ``at``, if any
    try:
        while at < len(pattern):
            token = _TOKEN.match(pattern, at)
            if token is None:
                raise MappingRuleError(f"{pattern[at : at + 20]} is not supported; {_TAKEN}")
            # Java and RE2 end the repetition of a possibly empty group at different places.
            if group and token["repetition"] and token[0][0] != "?" and compile_linear(group).fullmatch(""):
                raise MappingRuleError(
                    f"{token[0]} repeats a group that can be empty; let it take one character at least"
                )
            if token["open"]:
                opened.append(at)
            at = token.end()
            group = pattern[opened.pop() : at] if token["close"] and opened else ""
        return compile_linear(pattern)
    except LinearRegexError as error:
        raise MappingRuleError(f"cannot be matched in time linear in a client's name: {error}; {_TAKEN}") from error


class LetterCase(Enum):
    """Whether a mapping rule leaves the user name that it produces as it is, or converts it to lower or upper case."""

    KEEP = ""
    LOWER = "L"
    UPPER = "U"


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingRule:
    """A mapping rule. If ``pattern`` is None, the rule is ``DEFAULT``: the user is the whole distinguished name."""

    source: str  # as written
    pattern: Pattern | None = None  # the Java pattern, translated to RE2
    replacement: tuple[str | int, ...] = ()  # literal texts, and numbers of groups to insert
    letter_case: LetterCase = LetterCase.KEEP


DEFAULT_RULES: Final = (MappingRule(source="DEFAULT"),)


def parse_rules(text: str) -> tuple[MappingRule, ...]:
    """Return the rules in a value of ``ssl.principal.mapping.rules``. Raises MappingRuleError if one is not valid."""
    rules: list[MappingRule] = []
    stripped = text.strip(_AROUND)
    at = 0
    while at < len(stripped):
        found = _RULE.match(stripped, at)
        if found is None:
            raise MappingRuleError(f"{stripped[at:]!r} does not begin with a rule; {_FORM}")
        rules.append(_rule(found))
        at = found.end()
    return tuple(rules)


def _rule(found: re.Match[str]) -> MappingRule:
    source = found["rule"]
    if found["pattern"] is None:
        return MappingRule(source=source)
    try:
        pattern = compile_java(found["pattern"])
    except MappingRuleError as error:
        raise MappingRuleError(f"{source!r}: the pattern {found['pattern']!r} cannot be used: {error}") from error
    try:
        replacement = _replacement(found["replacement"], pattern)
    except MappingRuleError as error:
        message = f"{source!r}: the replacement {found['replacement']!r} cannot be used"
        raise MappingRuleError(f"{message}: {error}") from error
    return MappingRule(source=source, pattern=pattern, replacement=replacement, letter_case=LetterCase(found["case"]))


def _replacement(text: str, pattern: Pattern) -> tuple[str | int, ...]:
    """Split a replacement into literal texts and numbers of groups, as ``Matcher.appendReplacement`` of Java does."""
    parts: list[str | int] = []
    literal = ""
    at = 0
    while at < len(text):
        character = text[at]
        at += 1
        if character == "$":
            group, at = _group(text, at, pattern)
            parts += [literal, group] if literal else [group]
            literal = ""
            continue
        if character == "\\":
            if at == len(text):
                raise MappingRuleError("a backslash at the end escapes nothing")
            character = text[at]
            at += 1
        literal += character
    return (*parts, literal) if literal else tuple(parts)


def _group(text: str, at: int, pattern: Pattern) -> tuple[int, int]:
    """Read the group that follows a ``$``. Return the number of the group, and the position after it."""
    digits = text[at : at + 1]
    if digits not in tuple("0123456789"):
        raise MappingRuleError(r"$ must be followed by a group's number; write \$ for the character")
    at += 1
    # As in Java, another digit belongs to the number only if a group with the longer number exists.
    while text[at : at + 1] in tuple("0123456789") and int(digits + text[at]) <= pattern.groups:
        digits += text[at]
        at += 1
    if int(digits) > pattern.groups:
        raise MappingRuleError(f"${digits} is a group that the pattern does not have; put round brackets around it")
    return int(digits), at
