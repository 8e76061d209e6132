"""Checks of ``quotas``: rules of addresses are separate from those of clients, and no entity has two rules."""

from collections.abc import Mapping
from typing import Final

from kafka_quota_proxy.config.addresses import parse_ip
from kafka_quota_proxy.config.document import Document
from kafka_quota_proxy.config.errors import TermsError, UnitError
from kafka_quota_proxy.config.model import DEFAULT
from kafka_quota_proxy.config.quota_kinds import (
    BYTE_RATES,
    CLIENT_LIMIT_KEYS,
    CONNECTION_CREATION_RATE,
    STATIC_DEFAULTS,
)
from kafka_quota_proxy.config.terms import parse_instant_ms, written_instant
from kafka_quota_proxy.config.unvalidated import Report, elements, is_small, mapping_at, small

_OF_CLIENTS: Final = ("user", "client-id", *CLIENT_LIMIT_KEYS, "enforcement", "shaping")


def check_quotas(document: Document, report: Report, warn: Report) -> None:
    """Report faults that concern more than one key, and rates that seem to lack a unit."""
    for index, rule in elements(document, "quotas"):
        _check_ip_rule(rule, index, report)
    _check_entities(document, report)
    _warn_of_small_rates(document, warn)


def warn_of_expired(document: Document, warn: Report, *, now_ms: int) -> None:
    """Warn of each rule that has expired."""
    for index, rule in elements(document, "quotas"):
        if "expires" not in rule:
            continue
        location = ("quotas", index, "expires")
        try:
            expires_ms = parse_instant_ms(document.text(location))
        except TermsError:
            continue
        if expires_ms <= now_ms:
            message = f"expired since {written_instant(expires_ms)}: it is as if the rule was not there; remove it, or "
            warn(location, f"{message}write a later time")


def _check_ip_rule(rule: Mapping[str, object], index: int, report: Report) -> None:
    if "ip" not in rule:
        if CONNECTION_CREATION_RATE in rule:
            message = (
                "is a limit of addresses; write a rule {ip: 10.0.0.7} or {ip: <default>} with no other limit in it"
            )
            report(("quotas", index, CONNECTION_CREATION_RATE), message)
        return
    for key in _OF_CLIENTS:
        if key in rule:
            allowed = f"{CONNECTION_CREATION_RATE} and its times alone"
            message = f"cannot be given with ip, whose rule has {allowed}; give it a rule of its own"
            report(("quotas", index, key), message)


def _check_entities(document: Document, report: Report) -> None:
    seen: dict[tuple[object, ...], int] = {}
    for index, rule in elements(document, "quotas"):
        entity = _ip(rule) if "ip" in rule else _client(rule)
        if entity is None:
            continue
        first = seen.setdefault(tuple(entity.items()), index)
        if first != index:
            line = document.line(("quotas", first))
            words = ", ".join(f"{key} {name}" for key, name in entity.items())
            cure = "keep one of them" if "ip" in rule else "put all limits of it into one rule"
            report(("quotas", index), f"{words} has a rule in line {line} already; {cure}")


def _client(rule: Mapping[str, object]) -> dict[str, object] | None:
    """Return the user and client-id of a rule; None if one is not a name, or both are missing."""
    names = {key: rule[key] for key in ("user", "client-id") if rule.get(key) is not None}
    return names if names and all(isinstance(name, str) for name in names.values()) else None


def _ip(rule: Mapping[str, object]) -> dict[str, object] | None:
    text = rule["ip"]
    try:
        return {"ip": text if text == DEFAULT.value else parse_ip(text)} if isinstance(text, str) else None
    except UnitError:
        return None


def _warn_of_small_rates(document: Document, warn: Report) -> None:
    for index, rule in elements(document, "quotas"):
        for key in BYTE_RATES:
            if is_small(rule.get(key)):
                warn(("quotas", index, key), small(rule[key]))
    kafka = mapping_at(document, "kafka") or {}
    for key in STATIC_DEFAULTS:
        if is_small(kafka.get(key)):
            warn(("kafka", key), small(kafka[key]))
