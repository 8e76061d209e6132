"""Finds the user of a TLS client, which is the name that Kafka derives from the subject of its certificate.

Source: ``DefaultKafkaPrincipalBuilder`` and ``SslPrincipalMapper`` in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from kafka_quota_proxy.config.certificate import CertificateError, subject_of
from kafka_quota_proxy.config.linear_regex import MAX_NAME_LENGTH, Match, Pattern
from kafka_quota_proxy.config.principal_mapping import LINE_ENDS, LetterCase, MappingRule
from kafka_quota_proxy.config.principals import ANONYMOUS
from kafka_quota_proxy.protocol.errors import MalformedCertificate, NoMatchingRule
from kafka_quota_proxy.proxy.server.tls.distinguished_name import rfc2253_name


def user_of_certificate(der: bytes | None, rules: Iterable[MappingRule]) -> str:
    """Return the user name that Kafka derives from a client's certificate, without the prefix ``User:``.

    Args:
        der: The certificate (X.509 in DER), or None if the client presented none. The user is then ``ANONYMOUS``.
        rules: The listener's mapping rules. The first rule whose pattern matches the whole subject applies.

    Raises:
        MalformedCertificate: If the certificate is not X.509, or if Java could not read its subject.
        NoMatchingRule: If no rule matches. Kafka refuses such a connection, and so should the caller.
    """
    if der is None:
        return ANONYMOUS
    try:
        name = rfc2253_name(subject_of(der))
    except CertificateError as error:
        raise MalformedCertificate(str(error)) from error
    return map_name(name, rules)


def map_name(distinguished_name: str, rules: Iterable[MappingRule]) -> str:
    """Return the user name to which the first matching rule maps a distinguished name.

    Raises:
        NoMatchingRule: If no rule matches, or if the name would have to be matched but cannot be matched safely.
    """
    for rule in rules:
        if rule.pattern is None:
            return distinguished_name
        if not _can_be_matched(distinguished_name):
            break  # a later rule could map the name to another user than Kafka does
        if rule.pattern.fullmatch(distinguished_name):
            return _in_case(_replaced(distinguished_name, rule.pattern, rule.replacement), rule.letter_case)
    raise NoMatchingRule(f"no rule applies to {distinguished_name[:200]!r}")


def _can_be_matched(name: str) -> bool:
    """Return whether a name can be matched safely, with the same result as in Java.

    A name that is too long would take too much time. Patterns mean something else in Java at line ends.
    """
    return len(name) <= MAX_NAME_LENGTH and set(name).isdisjoint(LINE_ENDS)


def _replaced(text: str, pattern: Pattern, replacement: tuple[str | int, ...]) -> str:
    """Replace every match as Java's ``String.replaceAll`` does.

    For example, ``.*`` matches twice: first the whole text, and then the empty string at its end.
    """
    parts: list[str] = []
    at = 0
    for found in _finds(text, pattern):
        parts.append(text[at : found.start()])
        parts += [part if isinstance(part, str) else found[part] or "" for part in replacement]
        at = found.end()
    return "".join(parts) + text[at:]


def _finds(text: str, pattern: Pattern) -> Iterator[Match]:
    """Yield the matches that Java's ``Matcher.find`` returns, one after the other."""
    at = 0
    while at <= len(text):
        found = pattern.search(text, at)
        if found is None:
            return
        yield found
        at = found.end() + (found.start() == found.end())


def _in_case(text: str, letter_case: LetterCase) -> str:
    match letter_case:
        case LetterCase.KEEP:
            return text
        case LetterCase.LOWER:
            return text.lower()
        case LetterCase.UPPER:
            return text.upper()
        case _:
            assert_never(letter_case)
