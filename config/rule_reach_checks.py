"""Checks of ``quotas`` and ``principals``: names that no client has, rules that never win, clients without a rule.

Kafka's eight levels are in ``docs/reference/quotas.md``. Two facts about them matter here. A client-id alone is looked
up only if no rule for the user exists, so ``user: <default>`` hides such rules from every client. And an empty
client-id is never looked up.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import unquote

from kafka_quota_proxy.config.document import Document
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
from kafka_quota_proxy.config.unvalidated import Report, elements, list_at, mapping_at

_USER: Final = "user"
_CLIENT_ID: Final = "client-id"
_DEFAULT: Final = DEFAULT.value
_LISTS: Final = ("exempt", "brokers", "admins")
_KAFKAS_TYPE: Final = "user:"
_NO_LOGIN: Final = (ANONYMOUS, UNKNOWN)
_PERCENT_ENCODED: Final = re.compile(r"%[0-9A-Fa-f]{2}")
# The parentheses of a regular expression, without those that are escaped or in a set of characters.
_PARENTHESES: Final = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?[a-zA-Z-]+\)|(?P<open>\((?:\?P?<\w+>|\?[a-zA-Z-]*:)?)|(?P<close>\))", re.DOTALL
)


class _Rule(NamedTuple):
    """A rule of clients; a name is None if the rule does not have it."""

    number: int  # in the list
    user: str | None
    client_id: str | None
    limits: Mapping[str, object]  # by key
    is_temporary: bool  # whether it does not apply at all times

    @property
    def at(self) -> tuple[str, int]:
        return ("quotas", self.number)


def check_rule_reach(document: Document, warn: Report) -> None:
    """Warn of each rule that reaches no client, and of clients that the rules do not reach."""
    rules = list(_rules(document))
    _warn_of_names(document, rules, warn)
    _warn_of_exempt(document, rules, warn)
    _warn_of_folded(document, rules, warn)
    _warn_of_hidden(document, rules, warn)
    _warn_of_nested(document, rules, warn)
    if not {"quotas_from", "store"} & _top(document).keys():  # otherwise there are more rules elsewhere
        _warn_of_nameless_clients(rules, warn)


def _rules(document: Document) -> Iterator[_Rule]:
    for index, rule in elements(document, "quotas"):
        user, client_id = rule.get(_USER), rule.get(_CLIENT_ID)
        names = [name for name in (user, client_id) if name is not None]
        if "ip" in rule or not names or not all(isinstance(name, str) and name for name in names):
            continue
        limits: dict[str, object] = {key: rule[key] for key in CLIENT_LIMIT_KEYS if key in rule}
        is_temporary = "expires" in rule or "schedule" in rule
        yield _Rule(index, _text(user), _text(client_id), limits, is_temporary)


def _text(name: object) -> str | None:
    return name if isinstance(name, str) else None


def _top(document: Document) -> Mapping[str, object]:
    return document.data if isinstance(document.data, dict) else {}


# -- names --


def _warn_of_names(document: Document, rules: Sequence[_Rule], warn: Report) -> None:
    for rule in rules:
        for key, name in ((_USER, rule.user), (_CLIENT_ID, rule.client_id)):
            fault = (
                None if name is None else _name_fault(name, is_user=key == _USER, for_all_others=f"write {_DEFAULT}")
            )
            if fault:
                warn((*rule.at, key), fault)
    for key in _LISTS:
        for index, element in enumerate(list_at(document, "principals", key)):
            listed = _name_fault(_text(element) or _DEFAULT, is_user=True, for_all_others="list each user")
            if listed:
                warn(("principals", key, index), listed)
    for index, fold in elements(document, "principals", "fold"):
        match = fold.get("match")
        if isinstance(match, str) and match.lstrip("^").lower().startswith(_KAFKAS_TYPE):
            message = "matches no user: Kafka's type of a principal is not part of its name; leave out User:"
            warn(("principals", "fold", index, "match"), message)
    for index, rule_of_any in elements(document, "quotas"):
        fault = _address_fault(rule_of_any.get("ip"))
        if fault:
            warn(("quotas", index, "ip"), fault)


def _name_fault(name: str, *, is_user: bool, for_all_others: str) -> str | None:
    """Return why no client can have this name, and the remedy; None if a client can."""
    if name == _DEFAULT:
        return None
    kind = _USER if is_user else _CLIENT_ID
    if name != name.strip():
        right = f"write {name.strip()}" if name.strip() else "write a name"
        return f"{name!r} begins or ends with a blank, and names are compared whole; {right}"
    if is_user and name.lower().startswith(_KAFKAS_TYPE):
        rest = name[len(_KAFKAS_TYPE) :].strip()
        right = f"write {rest}" if rest.strip("*") else for_all_others
        return (
            f"{name!r} is the name of no user: the type that Kafka writes before a principal is left out here; {right}"
        )
    if name.strip("<>()[]{}*").lower() in ("default", "") or name.lower() == "--entity-default":
        return f"{name!r} is taken for the name of one {kind}, and matches no other; for all others {for_all_others}"
    if "*" in name:
        return f"{name!r} is taken for the name of one {kind}: names have no wildcards; for all others {for_all_others}"
    if name.startswith("<") and name.endswith(">"):
        return f"{name!r} is taken for the name of one {kind}; the only name with a meaning is {_DEFAULT}"
    if is_user and name not in _NO_LOGIN and name.upper() in _NO_LOGIN:
        return f"{name!r} is the name of no user: case counts; write {name.upper()}"
    if is_user and _PERCENT_ENCODED.search(name):
        return f"{name!r} is encoded as in Kafka's metrics, and names are not; write {unquote(name)!r}"
    return None


def _address_fault(text: object) -> str | None:
    try:
        address = ip_address(text) if isinstance(text, str) else None
    except ValueError:
        return None
    if address is not None and (address.is_unspecified or address.is_multicast):
        return (
            f"no client has the address {text}; write one that clients come from, or {_DEFAULT} for each of all others"
        )
    return None


# -- users that are exempt, or charged under another name --


def _warn_of_exempt(document: Document, rules: Sequence[_Rule], warn: Report) -> None:
    names = list_at(document, "principals", "exempt")
    exempt = {name: index for index, name in reversed(list(enumerate(names))) if isinstance(name, str)}
    for rule in rules:
        if rule.user in exempt:
            line = document.line(("principals", "exempt", exempt[rule.user]))
            message = f"never holds: {rule.user} is exempt from all quotas, by line {line}; remove one of the two"
            warn((*rule.at, _USER), message)


class _Fold(NamedTuple):
    number: int  # in the list
    source: str
    match: Pattern
    to: tuple[str | int, ...]

    def folded(self, name: str) -> str | None:
        """Return the user that is charged; None if the fold does not match."""
        found = match_whole(self.match, name)
        return None if found is None else replaced(found, self.to)

    def may_make(self, name: str) -> bool:
        """Whether this fold may charge a user as ``name``; True also if that cannot be determined."""
        groups = {0: self.source, **dict(_groups(self.source))}
        # A group that did not match is replaced by nothing.
        parts = (re.escape(part) if isinstance(part, str) else f"(?:{groups.get(part, '.*')})?" for part in self.to)
        try:
            return match_whole(compile_linear("".join(parts)), name) is not None
        except LinearRegexError:  # two groups of one name
            return True


def _groups(pattern: str) -> Iterator[tuple[int, str]]:
    """Yield the number of each capturing group, and the pattern within it."""
    opened: list[tuple[int, int]] = []  # number (0: not capturing), and the index after its parenthesis
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


def _warn_of_folded(document: Document, rules: Sequence[_Rule], warn: Report) -> None:
    folds = list(_folds(document))
    for rule in rules:
        if rule.user is None or rule.user == _DEFAULT:
            continue
        for fold in folds:
            name = fold.folded(rule.user)
            if name is None:
                continue
            if name != rule.user and not any(one.may_make(rule.user) for one in folds):
                line = document.line(("principals", "fold", fold.number))
                message = f"never holds: the fold in line {line} charges {rule.user} as {name}; write it for {name}"
                warn((*rule.at, _USER), message)
            break


def _folds(document: Document) -> Iterator[_Fold]:
    for index, fold in elements(document, "principals", "fold"):
        source, to = fold.get("match"), fold.get("to")
        if isinstance(source, str) and isinstance(to, str):
            try:
                match = compile_linear(source)
                yield _Fold(index, source, match, read_replacement(to, match))
            except LinearRegexError:
                continue


# -- rules behind others --


def _warn_of_hidden(document: Document, rules: Sequence[_Rule], warn: Report) -> None:
    """A client-id alone is looked up if no rule for its user exists; a rule for the default user always does."""
    hiding: dict[str, _Rule] = {}
    for rule in rules:
        if rule.user == _DEFAULT and rule.client_id in (None, _DEFAULT) and not rule.is_temporary:
            for key in rule.limits:
                # A rule for the default user alone comes first: it hides the same rules, and more.
                if key not in hiding or rule.client_id is None:
                    hiding[key] = rule
    for rule in rules:
        if rule.user is None:
            for key in rule.limits:
                if key in hiding:
                    warn((*rule.at, key), _is_hidden(document, hiding[key], key, str(rule.client_id)))
    kafka = mapping_at(document, "kafka") or {}
    for setting, key in STATIC_DEFAULTS.items():
        if key in hiding and _is_limit(kafka.get(setting)):
            warn(("kafka", setting), _is_hidden(document, hiding[key], key, _DEFAULT))


def _is_hidden(document: Document, rule: _Rule, key: str, client_id: str) -> str:
    line = document.line(rule.at)
    why = f"never wins: {_entity(rule)} in line {line} has a {key} too, and a rule for users comes before one for a"
    if client_id == _DEFAULT and rule.client_id == _DEFAULT:
        return f"{why} client-id alone; remove this"
    return f"{why} client-id alone; write it for {{user: {_DEFAULT}, client-id: {client_id}}}"


def _entity(rule: _Rule) -> str:
    names = ((_USER, rule.user), (_CLIENT_ID, rule.client_id))
    return f"{{{', '.join(f'{key}: {name}' for key, name in names if name is not None)}}}"


def _warn_of_nested(document: Document, rules: Sequence[_Rule], warn: Report) -> None:
    """Limits do not nest: where each client-id of a user has a limit, the user's own covers no client with a client-id.

    One that is not above the client-ids' own is taken for what it is, the limit of clients without a client-id.
    """
    of_each = {rule.user: rule for rule in rules if rule.client_id == _DEFAULT and not rule.is_temporary}
    for rule in rules:
        each = of_each.get(rule.user) if rule.user is not None and rule.client_id is None else None
        if each is None:
            continue
        for key, value in rule.limits.items():
            if _is_above(key, value, each.limits.get(key)):
                message = (
                    f"holds for clients without a client-id alone: {_entity(each)} in line {document.line(each.at)} "
                    "wins for all others, and a user's limit is no bound of the sum; keep one of the two"
                )
                warn((*rule.at, key), message)


def _is_above(key: str, value: object, other: object) -> bool:
    try:
        return other is not None and parse_limit(key, value) > parse_limit(key, other)
    except UnitError:
        return False


# -- clients without a client-id --


def _warn_of_nameless_clients(rules: Sequence[_Rule], warn: Report) -> None:
    """Warn of clients without a client-id: only rules for whole users apply to them."""
    of_users: dict[str, set[str]] = {}
    for rule in rules:
        if rule.user is not None and rule.client_id is None:
            of_users.setdefault(rule.user, set()).update(rule.limits)
    of_all = of_users.get(_DEFAULT, set())
    for rule in rules:
        if rule.client_id == _DEFAULT:
            missing = [key for key in rule.limits if key not in of_all | of_users.get(rule.user or "", set())]
            if missing:
                warn((*rule.at, _CLIENT_ID), _are_nameless(rule.user, missing))


def _are_nameless(user: str | None, keys: Sequence[str]) -> str:
    limits = f"{{user: {user or _DEFAULT}, {keys[0]}: …}}" if len(keys) == 1 else f"{{user: {user or _DEFAULT}}}"
    clients = "clients" if user in (None, _DEFAULT) else f"clients of {user}"
    message = (
        f"{clients} without a client-id have no limit ({', '.join(keys)}): Kafka looks up no client-id for them; "
        f"add a rule {limits}"
    )
    if user is None:
        message += (
            f", and write rules for a client-id alone for {{user: {_DEFAULT}, client-id: …}}, since it hides them"
        )
    return message


def _is_limit(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return False
    try:
        return parse_rate(value) < UNLIMITED
    except UnitError:
        return False
