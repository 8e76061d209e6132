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
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import unquote

from kafka_quota_proxy.config.errors import UnitError
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
from kafka_quota_proxy.config.quota_kinds import CLIENT_LIMIT_KEYS, STATIC_DEFAULTS, parse_limit
from kafka_quota_proxy.config.units import UNLIMITED, parse_rate
from kafka_quota_proxy.config.unvalidated import UncheckedFile, parsed

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

    at: tuple[str | int, ...]
    user: str | None
    client_id: str | None
    limits: Mapping[str, object]  # by key
    is_temporary: bool  # whether there are times at which the rule does not apply


def check_rule_reach(file: UncheckedFile) -> None:
    """Warn of each rule that applies to no client, and of clients without any rule."""
    rules = list(_rules(file))
    _warn_of_names(file, rules)
    _warn_of_exempt(file, rules)
    _warn_of_folded(file, rules)
    _warn_of_hidden(file, rules)
    _warn_of_nested(file, rules)
    if not {"quotas_from", "store"} & file.top.keys():  # otherwise there are rules in other places too
        _warn_of_nameless_clients(file, rules)


def _rules(file: UncheckedFile) -> Iterator[_Rule]:
    for at, rule in file.elements("quotas"):
        names = [rule[key] for key in (_USER, _CLIENT_ID) if rule.get(key) is not None]
        if "ip" in rule or not names or not all(isinstance(name, str) and name for name in names):
            continue
        limits: dict[str, object] = {key: rule[key] for key in CLIENT_LIMIT_KEYS if key in rule}
        is_temporary = "expires" in rule or "schedule" in rule
        yield _Rule(at, _text(rule.get(_USER)), _text(rule.get(_CLIENT_ID)), limits, is_temporary)


def _text(name: object) -> str | None:
    return name if isinstance(name, str) else None


# -- names --


def _warn_of_names(file: UncheckedFile, rules: Sequence[_Rule]) -> None:
    for rule in rules:
        for key, name in ((_USER, rule.user), (_CLIENT_ID, rule.client_id)):
            fault = _name_fault(name or _DEFAULT, is_user=key == _USER, for_all_others=f"write {_DEFAULT}")
            if fault:
                file.warn((*rule.at, key), fault)
    for key in _LISTS:
        for index, element in enumerate(file.list_at("principals", key)):
            fault = _name_fault(_text(element) or _DEFAULT, is_user=True, for_all_others="list each user")
            if fault:
                file.warn(("principals", key, index), fault)
    for at, fold in file.elements("principals", "fold"):
        match = fold.get("match")
        if isinstance(match, str) and match.lstrip("^").lower().startswith(_KAFKAS_TYPE):
            message = "matches no user: Kafka's type of a principal is not part of its name; leave out User:"
            file.warn((*at, "match"), message)
    for at, any_rule in file.elements("quotas"):
        if fault := _address_fault(any_rule.get("ip")):
            file.warn((*at, "ip"), fault)


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


def _address_fault(text: object) -> str | None:
    address = parsed(ip_address, text)
    if address is None or not (address.is_unspecified or address.is_multicast):
        return None
    return f"no client has the address {text}; write a client's address, or {_DEFAULT} for each address without a rule"


# -- users that are exempt, or charged under another name --


def _warn_of_exempt(file: UncheckedFile, rules: Sequence[_Rule]) -> None:
    exempt = file.list_at("principals", "exempt")
    for rule in rules:
        if rule.user in exempt:
            line = file.line(("principals", "exempt", exempt.index(rule.user)))
            message = f"never applies: line {line} exempts {rule.user} from all quotas; remove one of the two"
            file.warn((*rule.at, _USER), message)


class _Fold(NamedTuple):
    at: tuple[str | int, ...]
    source: str
    match: Pattern
    to: tuple[str | int, ...]

    def folded(self, name: str) -> str | None:
        """Return the name under which the user ``name`` is charged, or None if this rule does not match ``name``."""
        found = match_whole(self.match, name)
        return None if found is None else replaced(found, self.to)

    def may_make(self, name: str) -> bool:
        """Whether this rule may charge some user under the name ``name``. True if this cannot be determined."""
        groups = {0: self.source, **dict(_groups(self.source))}
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


def _warn_of_folded(file: UncheckedFile, rules: Sequence[_Rule]) -> None:
    folds = list(_folds(file))
    for rule in rules:
        if rule.user is None or rule.user == _DEFAULT:
            continue
        named = ((fold, fold.folded(rule.user)) for fold in folds)
        fold, name = next(((fold, name) for fold, name in named if name is not None), (None, None))
        if fold and name != rule.user and not any(one.may_make(rule.user) for one in folds):
            message = f"never applies: the fold in line {file.line(fold.at)} charges {rule.user} as {name}"
            file.warn((*rule.at, _USER), f"{message}; write it for {name}")


def _folds(file: UncheckedFile) -> Iterator[_Fold]:
    for at, fold in file.elements("principals", "fold"):
        source, to = fold.get("match"), fold.get("to")
        if isinstance(source, str) and isinstance(to, str):
            try:
                match = compile_linear(source)
                yield _Fold(at, source, match, read_replacement(to, match))
            except LinearRegexError:
                continue


# -- rules behind others --


def _warn_of_hidden(file: UncheckedFile, rules: Sequence[_Rule]) -> None:
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
                file.warn((*rule.at, key), _is_hidden(file, hiding[key], key, str(rule.client_id)))
    kafka = file.mapping_at("kafka") or {}
    for setting, key in STATIC_DEFAULTS.items():
        if key in hiding and (parsed(parse_rate, str(kafka.get(setting))) or UNLIMITED) < UNLIMITED:
            file.warn(("kafka", setting), _is_hidden(file, hiding[key], key, _DEFAULT))


def _is_hidden(file: UncheckedFile, rule: _Rule, key: str, client_id: str) -> str:
    line = file.line(rule.at)
    why = f"never wins: {_entity(rule)} in line {line} has a {key} too, and a rule for users comes before one for a"
    if client_id == _DEFAULT and rule.client_id == _DEFAULT:
        return f"{why} client-id alone; remove this"
    return f"{why} client-id alone; write it for {{user: {_DEFAULT}, client-id: {client_id}}}"


def _entity(rule: _Rule) -> str:
    names = ((_USER, rule.user), (_CLIENT_ID, rule.client_id))
    return f"{{{', '.join(f'{key}: {name}' for key, name in names if name is not None)}}}"


def _warn_of_nested(file: UncheckedFile, rules: Sequence[_Rule]) -> None:
    """Warn of a user's limit that looks like a bound for the sum of the user's client-ids.

    Limits do not nest. If each client-id of a user has a limit of its own, the user's limit applies only to clients
    without a client-id.
    """
    of_each = {rule.user: rule for rule in rules if rule.client_id == _DEFAULT and not rule.is_temporary}
    for rule in rules:
        each = of_each.get(rule.user) if rule.user is not None and rule.client_id is None else None
        for key, value in rule.limits.items() if each else ():
            if each and _is_above(key, value, each.limits.get(key)):
                message = f"applies only to clients without a client-id: {_entity(each)} in line {file.line(each.at)}"
                message += " wins for all others, and a user's limit does not bound their sum; keep one of the two"
                file.warn((*rule.at, key), message)


def _is_above(key: str, value: object, other: object) -> bool:
    try:
        return other is not None and parse_limit(key, value) > parse_limit(key, other)
    except UnitError:
        return False


# -- clients without a client-id --


def _warn_of_nameless_clients(file: UncheckedFile, rules: Sequence[_Rule]) -> None:
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
                file.warn((*rule.at, _CLIENT_ID), _are_nameless(rule.user, missing))


def _are_nameless(user: str | None, keys: Sequence[str]) -> str:
    limits = f"{{user: {user or _DEFAULT}, {keys[0]}: …}}" if len(keys) == 1 else f"{{user: {user or _DEFAULT}}}"
    clients = "clients" if user in (None, _DEFAULT) else f"clients of {user}"
    message = f"{clients} without a client-id have no limit ({', '.join(keys)}): Kafka looks up no client-id for them"
    message += f"; add a rule {limits}"
    if user is None:
        message += f", and write rules for a client-id alone for {{user: {_DEFAULT}, client-id: …}}"
        message += ", since it hides them"
    return message
