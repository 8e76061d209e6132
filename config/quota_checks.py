"""Checks ``quotas`` for faults that concern more than one key.

Such faults are keys that do not fit together, as a rule limits either an IP address or clients, and entities with two
rules. The module also warns of expired rules and of byte rates that seem to lack a unit.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from kafka_quota_proxy.config.document import Document, Finding, Location, error, warning
from kafka_quota_proxy.config.quota_kinds import (
    BYTE_RATES,
    CLIENT_LIMIT_KEYS,
    CONNECTION_CREATION_RATE,
    STATIC_DEFAULTS,
)
from kafka_quota_proxy.config.sections import Part
from kafka_quota_proxy.config.term_values import written_instant
from kafka_quota_proxy.config.units import ByteRate, written_number

_OF_CLIENTS: Final = frozenset({"user", "client-id", *CLIENT_LIMIT_KEYS, "enforcement", "shaping"})
_LIKELY_A_UNIT_IS_MISSING: Final = 1_000  # bytes per second; less than one small record


def warn_of_expired(top: Part, _: Document) -> Iterator[Finding]:
    """Warn of each rule that has expired by now."""
    now_ms = int(datetime.now(UTC).timestamp() * 1_000)
    for rule in top.parts("quotas"):
        expires_ms = rule.get("expires")
        if expires_ms is not None and expires_ms <= now_ms:
            message = f"expired at {written_instant(expires_ms)}: the rule has no effect; remove it, or write a later"
            yield warning((*rule.at, "expires"), f"{message} time")


def small_rate(rate: ByteRate | None) -> str | None:
    """Return a warning if a byte rate has no unit and is so low that the unit was probably forgotten."""
    # A rate with a unit, such as 500B, is not a mistake, and a rate of 0 is meant.
    if rate is None or rate.unit or not 0 < rate < _LIKELY_A_UNIT_IS_MISSING:
        return None
    given = written_number(rate)
    return f"{given} bytes per second is very little; is a unit missing, such as {given}MiB?"


def _check_ip_rules(top: Part, _: Document) -> Iterator[Finding]:
    for rule in top.parts("quotas"):
        if "ip" in rule:
            for key in filter(_OF_CLIENTS.__contains__, rule):
                message = f"cannot be given with ip, whose rule has {CONNECTION_CREATION_RATE} and its times alone"
                yield error((*rule.at, key), f"{message}; give it a rule of its own")
        elif CONNECTION_CREATION_RATE in rule:
            message = "is a limit of addresses; write a rule {ip: 10.0.0.7} or {ip: <default>} with no other limit in"
            yield error((*rule.at, CONNECTION_CREATION_RATE), f"{message} it")


def _check_entities(top: Part, document: Document) -> Iterator[Finding]:
    first_of: dict[tuple[object, ...], Location] = {}
    for rule in top.parts("quotas"):
        keys = ("ip",) if "ip" in rule else ("user", "client-id")
        entity = {key: rule[key] for key in keys if key in rule}
        if not entity or None in entity.values():
            continue
        first = first_of.setdefault(tuple(entity.items()), rule.at)
        if first != rule.at:
            words = ", ".join(f"{key} {name}" for key, name in entity.items())
            cure = "keep one of them" if "ip" in rule else "put all limits of it into one rule"
            yield error(rule.at, f"{words} has a rule in line {document.line(first)} already; {cure}")


def _warn_of_small_rates(top: Part, _: Document) -> Iterator[Finding]:
    places = [(rule, key) for rule in top.parts("quotas") for key in BYTE_RATES]
    places += [(top.find("kafka") or Part(()), key) for key in STATIC_DEFAULTS]
    for part, key in places:
        if message := small_rate(part.get(key)):
            yield warning((*part.at, key), message)


CHECKS: Final = (_check_ip_rules, _check_entities, _warn_of_small_rates)
