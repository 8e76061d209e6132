"""Checks the rules in ``quotas``, and warns of rules that apply to no client and of clients without any rule.

A rule applies to no client if no client can have its name, or if another rule always takes precedence. Kafka looks up
the rule for a client on eight levels, which ``docs/reference/quotas.md`` lists. Two facts about these levels matter
here:

* A rule for a client-id without a user is looked up only if no rule for the user exists. So a rule for ``user:
  <default>`` hides such rules from every client.
* An empty client-id is never looked up.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from kafka_quota_proxy.config.document import Document, Finding, Location, error, warning
from kafka_quota_proxy.config.linear_regex import match_whole, read_replacement, replaced
from kafka_quota_proxy.config.model import DEFAULT
from kafka_quota_proxy.config.quota_kinds import (
    BYTE_RATES,
    CLIENT_LIMIT_KEYS,
    CONNECTION_CREATION_RATE,
    STATIC_DEFAULTS,
)
from kafka_quota_proxy.config.replication_checks import RATES as REPLICATION_RATES
from kafka_quota_proxy.config.sections import Part
from kafka_quota_proxy.config.term_values import written_instant
from kafka_quota_proxy.config.units import ByteRate, written_number

_USER: Final = "user"
_CLIENT_ID: Final = "client-id"
_KAFKAS_TYPE: Final = "user:"
_OF_CLIENTS: Final = frozenset({_USER, _CLIENT_ID, *CLIENT_LIMIT_KEYS, "enforcement", "shaping"})
_LIKELY_A_UNIT_IS_MISSING: Final = 1_000  # bytes per second; less than one small record


def _warn_of_expired(top: Part, _: Document) -> Iterator[Finding]:
    """Warn of each rule that has expired by now."""
    now_ms = int(datetime.now(UTC).timestamp() * 1_000)
    for rule in top.parts("quotas"):
        expires_ms = rule.get("expires")
        if expires_ms is not None and expires_ms <= now_ms:
            message = f"expired at {written_instant(expires_ms)}: the rule has no effect; remove it, or write a later"
            yield warning((*rule.at, "expires"), f"{message} time")


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
        keys = ("ip",) if "ip" in rule else (_USER, _CLIENT_ID)
        entity = {key: rule[key] for key in keys if key in rule}
        if not entity or None in entity.values():
            continue
        first = first_of.setdefault(tuple(entity.items()), rule.at)
        if first != rule.at:
            words = ", ".join(f"{key} {name}" for key, name in entity.items())
            message = f"{words} has a rule in line {document.line(first)} already; put all limits of it into one rule"
            yield error(rule.at, message)


def _warn_of_small_rates(top: Part, _: Document) -> Iterator[Finding]:
    """Warn of byte rates without a unit that are so low that the unit was probably forgotten."""
    places = [(rule, key) for rule in top.parts("quotas") for key in BYTE_RATES]
    places += [(top.find("kafka") or Part(()), key) for key in STATIC_DEFAULTS]
    places += [(top.find("replication") or Part(()), key) for key in REPLICATION_RATES]
    for part, key in places:
        rate: ByteRate | None = part.get(key)
        # A rate with a unit, such as 500B, is not a mistake, and a rate of 0 is meant.
        if rate is not None and not rate.unit and 0 < rate < _LIKELY_A_UNIT_IS_MISSING:
            given = written_number(rate)
            message = f"{given} bytes per second is very little; is a unit missing, such as {given}MiB?"
            yield warning((*part.at, key), message)


def _warn_of_names(top: Part, _: Document) -> Iterator[Finding]:
    """Warn of names in rules and in the lists of ``principals`` that are no names of clients."""
    places = [
        ((*rule.at, key), rule.get(key), "write <default>")
        for rule in top.parts("quotas")
        for key in (_USER, _CLIENT_ID)
    ]
    places += [
        (("principals", key, index), name, "list each user")
        for key in ("exempt", "brokers", "admins")
        for index, name in enumerate(top.find("principals", key) or ())
    ]
    for at, name, for_all_others in places:
        if not isinstance(name, str):
            continue
        if name.lower().startswith(_KAFKAS_TYPE) and at[-1] != _CLIENT_ID:
            message = f"no user has the name {name!r}: write it without the type that Kafka writes before a principal"
            yield warning(at, message)
        elif "*" in name or name.strip("<>()[]{}-").lower() in ("default", "entity-default"):
            yield warning(at, f"{name!r} matches only exactly this name; for all others {for_all_others}")


def _warn_of_users(top: Part, document: Document) -> Iterator[Finding]:
    """Warn of rules for users that are exempt, or charged under another name."""
    exempt = top.find("principals", "exempt") or []
    folds = [fold for fold in top.parts("principals", "fold") if fold.made is not None]
    for rule in top.parts("quotas"):
        user = rule.get(_USER)
        if not isinstance(user, str):
            continue
        if user in exempt:
            line = document.line(("principals", "exempt", exempt.index(user)))
            message = f"never applies: line {line} exempts {user} from all quotas; remove one of the two"
            yield warning((*rule.at, _USER), message)
        for fold in folds:
            found = match_whole(fold["match"], user)
            name = user if found is None else replaced(found, read_replacement(fold["to"], fold["match"]))
            if name != user:
                message = f"never applies to {user}, whom the fold in line {document.line(fold.at)} charges as {name}"
                yield warning((*rule.at, _USER), f"{message}; write it for {name}")
            if found is not None:
                break


def _warn_of_hidden(top: Part, document: Document) -> Iterator[Finding]:
    """Warn of rules for a client-id alone that never apply, because a rule for the default user takes precedence."""
    rules = top.parts("quotas")
    hiding: dict[str, Location] = {}
    for rule in rules:
        is_for_all = rule.get(_USER) is DEFAULT and rule.get(_CLIENT_ID, DEFAULT) is DEFAULT
        if is_for_all and rule.keys().isdisjoint(("expires", "schedule")):
            hiding |= {key: rule.at for key in CLIENT_LIMIT_KEYS if key in rule}
    for rule in rules:
        for key in CLIENT_LIMIT_KEYS if _USER not in rule else ():
            if key in rule and key in hiding:
                message = f"never wins: the rule for {{user: <default>}} in line {document.line(hiding[key])} has a"
                message += f" {key} too, and a rule for users comes before one for a client-id alone"
                yield warning((*rule.at, key), f"{message}; add user: <default> to this rule, or remove it")


def _warn_of_nameless_clients(top: Part, _: Document) -> Iterator[Finding]:
    """Warn if clients without a client-id are unlimited, although rules limit each client-id."""
    if {"quotas_from", "store"} & top.keys():
        return  # there are rules in other places too
    of_users: dict[object, set[str]] = {}
    for rule in top.parts("quotas"):
        if _USER in rule and _CLIENT_ID not in rule:
            of_users.setdefault(rule[_USER], set()).update(rule)
    for rule in top.parts("quotas"):
        user = rule.get(_USER, DEFAULT)
        limited = of_users.get(DEFAULT, set()) | of_users.get(user, set())
        unlimited = [key for key in CLIENT_LIMIT_KEYS if key in rule and key not in limited]
        if unlimited and rule.get(_CLIENT_ID) is DEFAULT:
            message = f"clients without a client-id have no limit ({', '.join(unlimited)}): Kafka looks up no"
            message += f" client-id for them; add a rule {{user: {user}}} with that limit"
            yield warning((*rule.at, _CLIENT_ID), message)


CHECKS: Final = (
    _warn_of_expired,
    _check_ip_rules,
    _check_entities,
    _warn_of_small_rates,
    _warn_of_names,
    _warn_of_users,
    _warn_of_hidden,
    _warn_of_nameless_clients,
)
