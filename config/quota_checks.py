"""Checks ``quotas`` for faults that concern more than one key.

Such faults are keys that do not fit together, as a rule limits either an IP address or clients, and entities with two
rules. The module also warns of expired rules and of byte rates that seem to lack a unit.
"""

from collections.abc import Mapping
from typing import Final

from kafka_quota_proxy.config.addresses import parse_ip
from kafka_quota_proxy.config.document import Location
from kafka_quota_proxy.config.model import DEFAULT
from kafka_quota_proxy.config.quota_kinds import (
    BYTE_RATES,
    CLIENT_LIMIT_KEYS,
    CONNECTION_CREATION_RATE,
    STATIC_DEFAULTS,
)
from kafka_quota_proxy.config.term_values import parse_instant_ms, written_instant
from kafka_quota_proxy.config.unvalidated import UncheckedFile, parsed, small_rate

_OF_CLIENTS: Final = frozenset({"user", "client-id", *CLIENT_LIMIT_KEYS, "enforcement", "shaping"})


def check_quotas(file: UncheckedFile) -> None:
    """Report faults of ``quotas`` that concern more than one key, and warn of byte rates that seem to lack a unit."""
    for at, rule in file.elements("quotas"):
        _check_ip_rule(file, at, rule)
    _check_entities(file)
    _warn_of_small_rates(file)


def warn_of_expired(file: UncheckedFile, *, now_ms: int) -> None:
    """Warn of each rule that has expired at the Unix time ``now_ms``."""
    for at, rule in file.elements("quotas"):
        location = (*at, "expires")
        expires_ms = parsed(parse_instant_ms, file.document.text(location)) if "expires" in rule else None
        if expires_ms is not None and expires_ms <= now_ms:
            message = f"expired at {written_instant(expires_ms)}: the rule has no effect; remove it, or "
            file.warn(location, f"{message}write a later time")


def _check_ip_rule(file: UncheckedFile, at: tuple[str | int, ...], rule: Mapping[str, object]) -> None:
    if "ip" in rule:
        for key in filter(_OF_CLIENTS.__contains__, rule):
            message = f"cannot be given with ip, whose rule has {CONNECTION_CREATION_RATE} and its times alone"
            file.error((*at, key), f"{message}; give it a rule of its own")
    elif CONNECTION_CREATION_RATE in rule:
        message = "is a limit of addresses; write a rule {ip: 10.0.0.7} or {ip: <default>} with no other limit in it"
        file.error((*at, CONNECTION_CREATION_RATE), message)


def _check_entities(file: UncheckedFile) -> None:
    first_of: dict[tuple[object, ...], Location] = {}
    for at, rule in file.elements("quotas"):
        entity = _ip(rule) if "ip" in rule else _client(rule)
        if entity is None:
            continue
        first = first_of.setdefault(tuple(entity.items()), at)
        if first != at:
            words = ", ".join(f"{key} {name}" for key, name in entity.items())
            cure = "keep one of them" if "ip" in rule else "put all limits of it into one rule"
            file.error(at, f"{words} has a rule in line {file.line(first)} already; {cure}")


def _client(rule: Mapping[str, object]) -> dict[str, object] | None:
    """Return the ``user`` and the ``client-id`` of a rule, without the one that it lacks.

    Return None if it has neither, or if one of them is not valid.
    """
    names = {key: rule[key] for key in ("user", "client-id") if rule.get(key) is not None}
    return names if names and all(isinstance(name, str) for name in names.values()) else None


def _ip(rule: Mapping[str, object]) -> dict[str, object] | None:
    ip = DEFAULT.value if rule["ip"] == DEFAULT.value else parsed(parse_ip, rule["ip"])
    return None if ip is None else {"ip": ip}


def _warn_of_small_rates(file: UncheckedFile) -> None:
    kafka = file.mapping_at("kafka") or {}
    places = [((*at, key), rule[key]) for at, rule in file.elements("quotas") for key in BYTE_RATES if key in rule]
    places += [(("kafka", key), kafka[key]) for key in STATIC_DEFAULTS if key in kafka]
    for location, rate in places:
        if warning := small_rate(rate):
            file.warn(location, warning)
