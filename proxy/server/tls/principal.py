"""Who a TLS client is: the name that Kafka would give it, of its certificate's subject.

Source: ``DefaultKafkaPrincipalBuilder`` and ``SslPrincipalMapper`` in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from kafka_quota_proxy.config.certificate import CertificateError, subject_of
from kafka_quota_proxy.config.java_regex import LINE_TERMINATORS
from kafka_quota_proxy.config.linear_regex import MAX_NAME_LENGTH, Match, Pattern
from kafka_quota_proxy.config.principal_mapping import LetterCase, MappingRule
from kafka_quota_proxy.config.principals import ANONYMOUS
from kafka_quota_proxy.protocol.errors import MalformedCertificate, NoMatchingRule
from kafka_quota_proxy.proxy.server.tls.distinguished_name import rfc2253_name


def user_of_certificate(der: bytes | None, rules: Iterable[MappingRule]) -> str:
    """Return the user's name, without ``User:``, of the certificate that a client has shown.

    Args:
        der: The client's own certificate, X.509 in DER, as ``ssl.SSLSocket.getpeercert(True)`` returns it; None if it
            has shown none, which makes it ``ANONYMOUS`` whatever the rules say.
        rules: The listener's, of which the first that matches the whole name counts.

    Raises:
        MalformedCertificate: It is not X.509, or has a subject that Java could not read.
        NoMatchingRule: Kafka fails the connection, and so should the caller.
    """
    if der is None:
        return ANONYMOUS
    try:
        name = rfc2253_name(subject_of(der))
    except CertificateError as error:
        raise MalformedCertificate(str(error)) from error
    return map_name(name, rules)


def map_name(distinguished_name: str, rules: Iterable[MappingRule]) -> str:
    """Return what the first matching rule makes of a name.

    Raises:
        NoMatchingRule: None matches.
    """
    for rule in rules:
        if rule.pattern is None:
            return distinguished_name
        if not _can_be_matched(distinguished_name):
            break  # a later rule must not give it another user than Kafka does
        if rule.pattern.fullmatch(distinguished_name):
            return _in_case(_replaced(distinguished_name, rule.pattern, rule.replacement), rule.letter_case)
    raise NoMatchingRule(f"no rule applies to {distinguished_name[:200]!r}")


def _can_be_matched(name: str) -> bool:
    """Whether patterns do here what they do in Java: ``$`` is the end alone, and nothing is matched without a bound."""
    return len(name) <= MAX_NAME_LENGTH and not name.endswith(LINE_TERMINATORS)


def _replaced(text: str, pattern: Pattern, replacement: tuple[str | int, ...]) -> str:
    """Replace each place where the pattern is found, as ``String.replaceAll`` does.

    Though the whole text matches, the first find may be shorter, and ``.*`` is found twice: once more, empty, at the
    end. An anchored pattern is found once.
    """
    parts: list[str] = []
    at = 0
    for found in _finds(text, pattern):
        parts.append(text[at : found.start()])
        parts += [part if isinstance(part, str) else found[part] or "" for part in replacement]
        at = found.end()
    return "".join(parts) + text[at:]


def _finds(text: str, pattern: Pattern) -> Iterator[Match]:
    """Yield what ``Matcher.find`` finds."""
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
