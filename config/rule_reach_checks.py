"""Warns of rules in ``quotas`` and ``principals`` that apply to no client, and of clients without any rule.

A rule applies to no client if no client can have its name, or if another rule always takes precedence. Kafka looks up
the rule for a client on eight levels, which ``docs/reference/quotas.md`` lists. Two facts about these levels matter
here:

* A rule for a client-id without a user is looked up only if no rule for the user exists. So a rule for ``user:
  <default>`` hides such rules from every client.
* An empty client-id is never looked up.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple
from urllib.parse import unquote

from kafka_quota_proxy.config.addresses import ip_of
from kafka_quota_proxy.config.document import Document, Finding, Location, error, warning
from kafka_quota_proxy.config.linear_regex import (
    LinearRegexError,
    Pattern,
    compile_linear,
    match_whole,
    read_replacement,
    replaced,
)
from kafka_quota_proxy.config.model import DEFAULT
from kafka_quota_proxy.config.principals import ANONYMOUS, UNKNOWN
from kafka_quota_proxy.config.quota_kinds import (
    BYTE_RATES,
    CLIENT_LIMIT_KEYS,
    CONNECTION_CREATION_RATE,
    STATIC_DEFAULTS,
)
from kafka_quota_proxy.config.sections import Part
from kafka_quota_proxy.config.term_values import written_instant
from kafka_quota_proxy.config.units import UNLIMITED, ByteRate, written_number

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


_USER: Final = "user"
_CLIENT_ID: Final = "client-id"
_DEFAULT: Final = DEFAULT.value
_LISTS: Final = ("exempt", "brokers", "admins")
_KAFKAS_TYPE: Final = "user:"
_NO_LOGIN: Final = (ANONYMOUS, UNKNOWN)
_PERCENT_ENCODED: Final = re.compile(r"%[0-9A-Fa-f]{2}")
# Finds the parentheses of a regular expression, except those that are escaped or within square brackets.
_PARENTHESES: Final = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?[a-zA-Z-]+\)|(?P<open>\((?:\?P?<\w+>|\?[a-zA-Z-]*:)?)|(?P<close>\))", re.DOTALL
)


class _Rule(NamedTuple):
    """A rule for users or client-ids. ``user`` or ``client_id`` is None if the rule does not mention it."""

    at: Location
    user: str | None
    client_id: str | None
    limits: Mapping[str, float | None]  # by key; None for an invalid limit
    is_temporary: bool  # whether there are times at which the rule does not apply


def check_rule_reach(top: Part, document: Document) -> Iterator[Finding]:
    """Warn of each rule that applies to no client, and of clients without any rule."""
    rules = list(_rules(top))
    yield from _warn_of_names(top, rules)
    yield from _warn_of_exempt(top, document, rules)
    yield from _warn_of_folded(top, document, rules)
    yield from _warn_of_hidden(top, document, rules)
    yield from _warn_of_nested(document, rules)
    if not {"quotas_from", "store"} & top.keys():  # otherwise there are rules in other places too
        yield from _warn_of_nameless_clients(rules)


def _rules(top: Part) -> Iterator[_Rule]:
    for rule in top.parts("quotas"):
        names = {key: rule[key] for key in (_USER, _CLIENT_ID) if key in rule}
        if "ip" in rule or not names or None in names.values():
            continue
        user, client_id = (str(names[key]) if key in names else None for key in (_USER, _CLIENT_ID))
        limits = {key: rule[key] for key in CLIENT_LIMIT_KEYS if key in rule}
        yield _Rule(rule.at, user, client_id, limits, "expires" in rule or "schedule" in rule)


# -- names --


def _warn_of_names(top: Part, rules: Sequence[_Rule]) -> Iterator[Finding]:
    for rule in rules:
        for key, name in ((_USER, rule.user), (_CLIENT_ID, rule.client_id)):
            fault = _name_fault(name or _DEFAULT, is_user=key == _USER, for_all_others=f"write {_DEFAULT}")
            if fault:
                yield warning((*rule.at, key), fault)
    for key in _LISTS:
        for index, name in enumerate(top.find("principals", key) or ()):
            fault = _name_fault(name or _DEFAULT, is_user=True, for_all_others="list each user")
            if fault:
                yield warning(("principals", key, index), fault)
    for fold in top.parts("principals", "fold"):
        match = fold.get("match")
        if match is not None and match.pattern.lstrip("^").lower().startswith(_KAFKAS_TYPE):
            message = "matches no user: Kafka's type of a principal is not part of its name; leave out User:"
            yield warning((*fold.at, "match"), message)
    for any_rule in top.parts("quotas"):
        address = ip_of(str(any_rule.get("ip")))
        if address is not None and (address.is_unspecified or address.is_multicast):
            message = f"no client has the address {any_rule['ip']}; write a client's address, or {_DEFAULT} for each"
            yield warning((*any_rule.at, "ip"), f"{message} address without a rule")


def _name_fault(name: str, *, is_user: bool, for_all_others: str) -> str | None:
    """Return why a name in the file most likely matches no client, and the remedy. Return None if the name looks right.

    ``for_all_others`` is the remedy for a name that is meant for everyone.
    """
    if name == _DEFAULT:
        return None
    kind = _USER if is_user else _CLIENT_ID
    if name != name.strip():
        right = f"write {name.strip()}" if name.strip() else "write a name"
        return f"{name!r} begins or ends with a blank, and names are compared whole; {right}"
    if is_user and name.lower().startswith(_KAFKAS_TYPE):
        rest = name[len(_KAFKAS_TYPE) :].strip()
        right = f"write {rest}" if rest.strip("*") else for_all_others
        message = f"no user has the name {name!r}: write it without the type that Kafka writes before a principal"
        return f"{message}; {right}"
    if name.strip("<>()[]{}*").lower() in ("default", "") or name.lower() == "--entity-default":
        return f"{name!r} matches only one {kind} with exactly this name; for all others {for_all_others}"
    if "*" in name:
        return f"{name!r} matches only one {kind} of exactly this name, not a pattern; for all others {for_all_others}"
    if name.startswith("<") and name.endswith(">"):
        return f"{name!r} matches only one {kind} with exactly this name; the only special name is {_DEFAULT}"
    if is_user and name not in _NO_LOGIN and name.upper() in _NO_LOGIN:
        return f"no user has the name {name!r}: case matters; write {name.upper()}"
    if is_user and _PERCENT_ENCODED.search(name):
        return f"{name!r} is encoded as in Kafka's metrics, but names here are not; write {unquote(name)!r}"
    return None


# -- users that are exempt, or charged under another name --


def _warn_of_exempt(top: Part, document: Document, rules: Sequence[_Rule]) -> Iterator[Finding]:
    exempt = top.find("principals", "exempt") or []
    for rule in rules:
        if rule.user is not None and rule.user in exempt:
            line = document.line(("principals", "exempt", exempt.index(rule.user)))
            message = f"never applies: line {line} exempts {rule.user} from all quotas; remove one of the two"
            yield warning((*rule.at, _USER), message)


class _Fold(NamedTuple):
    at: Location
    match: Pattern
    to: tuple[str | int, ...]

    def folded(self, name: str) -> str | None:
        """Return the name under which the user ``name`` is charged, or None if this rule does not match ``name``."""
        found = match_whole(self.match, name)
        return None if found is None else replaced(found, self.to)

    def may_make(self, name: str) -> bool:
        """Whether this rule may charge some user under the name ``name``. True if this cannot be determined."""
        groups = {0: self.match.pattern, **dict(_groups(self.match.pattern))}
        # In the replacement, a group that did not match is empty.
        parts = (re.escape(part) if isinstance(part, str) else f"(?:{groups.get(part, '.*')})?" for part in self.to)
        try:
            return match_whole(compile_linear("".join(parts)), name) is not None
        except LinearRegexError:  # two groups would have the same name
            return True


def _groups(pattern: str) -> Iterator[tuple[int, str]]:
    """Yield the number of each capturing group of a regular expression, and the pattern within the group."""
    opened: list[tuple[int, int]] = []  # the group's number (0 if not capturing), and the index after its parenthesis
    count = 0
    for token in _PARENTHESES.finditer(pattern):
        if token["open"]:
            captures = token["open"] == "(" or "<" in token["open"]
            count += captures
            opened.append((count * captures, token.end()))
        elif token["close"] and opened:
            number, start = opened.pop()
            if number:
                yield number, pattern[start : token.start()]


def _warn_of_folded(top: Part, document: Document, rules: Sequence[_Rule]) -> Iterator[Finding]:
    valid = [fold for fold in top.parts("principals", "fold") if fold.made is not None]
    folds = [_Fold(fold.at, fold["match"], read_replacement(fold["to"], fold["match"])) for fold in valid]
    for rule in rules:
        if rule.user is None or rule.user == _DEFAULT:
            continue
        named = ((fold, fold.folded(rule.user)) for fold in folds)
        fold, name = next(((fold, name) for fold, name in named if name is not None), (None, None))
        if fold and name != rule.user and not any(one.may_make(rule.user) for one in folds):
            message = f"never applies: the fold in line {document.line(fold.at)} charges {rule.user} as {name}"
            yield warning((*rule.at, _USER), f"{message}; write it for {name}")


# -- rules behind others --


def _warn_of_hidden(top: Part, document: Document, rules: Sequence[_Rule]) -> Iterator[Finding]:
    """Warn of rules for a client-id alone that never apply, because a rule for the default user takes precedence."""
    hiding: dict[str, _Rule] = {}
    for rule in rules:
        if rule.user == _DEFAULT and rule.client_id in (None, _DEFAULT) and not rule.is_temporary:
            for key in rule.limits:
                # Prefer the rule for the default user without a client-id, because it hides more than one with a
                # client-id.
                if key not in hiding or rule.client_id is None:
                    hiding[key] = rule
    for rule in rules:
        for key in rule.limits if rule.user is None else ():
            if key in hiding:
                yield warning((*rule.at, key), _is_hidden(document, hiding[key], key, str(rule.client_id)))
    for setting, key in STATIC_DEFAULTS.items():
        if key in hiding and (top.find("kafka", setting) or UNLIMITED) < UNLIMITED:
            yield warning(("kafka", setting), _is_hidden(document, hiding[key], key, _DEFAULT))


def _is_hidden(document: Document, rule: _Rule, key: str, client_id: str) -> str:
    line = document.line(rule.at)
    why = f"never wins: {_entity(rule)} in line {line} has a {key} too, and a rule for users comes before one for a"
    if client_id == _DEFAULT and rule.client_id == _DEFAULT:
        return f"{why} client-id alone; remove this"
    return f"{why} client-id alone; write it for {{user: {_DEFAULT}, client-id: {client_id}}}"


def _entity(rule: _Rule) -> str:
    names = ((_USER, rule.user), (_CLIENT_ID, rule.client_id))
    return f"{{{', '.join(f'{key}: {name}' for key, name in names if name is not None)}}}"


def _warn_of_nested(document: Document, rules: Sequence[_Rule]) -> Iterator[Finding]:
    """Warn of a user's limit that looks like a bound for the sum of the user's client-ids.

    Limits do not nest. If each client-id of a user has a limit of its own, the user's limit applies only to clients
    without a client-id.
    """
    of_each = {rule.user: rule for rule in rules if rule.client_id == _DEFAULT and not rule.is_temporary}
    for rule in rules:
        each = of_each.get(rule.user) if rule.user is not None and rule.client_id is None else None
        for key, limit in rule.limits.items() if each else ():
            of_one = each.limits.get(key) if each else None
            if each and limit is not None and of_one is not None and limit > of_one:
                message = f"applies only to clients without a client-id: {_entity(each)} in line"
                message += f" {document.line(each.at)} wins for all others, and a user's limit does not bound their sum"
                yield warning((*rule.at, key), f"{message}; keep one of the two")


# -- clients without a client-id --


def _warn_of_nameless_clients(rules: Sequence[_Rule]) -> Iterator[Finding]:
    """Warn if clients without a client-id are unlimited, although rules limit each client-id."""
    of_users: dict[str, set[str]] = {}
    for rule in rules:
        if rule.user is not None and rule.client_id is None:
            of_users.setdefault(rule.user, set()).update(rule.limits)
    of_all = of_users.get(_DEFAULT, set())
    for rule in rules:
        if rule.client_id == _DEFAULT:
            missing = [key for key in rule.limits if key not in of_all | of_users.get(rule.user or "", set())]
            if missing:
                yield warning((*rule.at, _CLIENT_ID), _are_nameless(rule.user, missing))


def _are_nameless(user: str | None, keys: Sequence[str]) -> str:
    limits = f"{{user: {user or _DEFAULT}, {keys[0]}: …}}" if len(keys) == 1 else f"{{user: {user or _DEFAULT}}}"
    clients = "clients" if user in (None, _DEFAULT) else f"clients of {user}"
    message = f"{clients} without a client-id have no limit ({', '.join(keys)}): Kafka looks up no client-id for them"
    message += f"; add a rule {limits}"
    if user is None:
        message += f", and write rules for a client-id alone for {{user: {_DEFAULT}, client-id: …}}"
        message += ", since it hides them"
    return message
