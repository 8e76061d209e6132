"""Reads and writes rules, changes and the results of changes as JSON: in stores, at the admin port, in exported files.

    rule        {"entity":{"user":"alice","client-id":null},"limits":{"producer_byte_rate":5242880.0},
                 "terms":{"expires":"2026-12-01T00:00:00Z"},"source":"proxy.yaml:7","can_change":false}
    changes     {"changes":[{"entity":{…},"limits":{"producer_byte_rate":5242880,"consumer_byte_rate":null}}],
                 "dry_run":false}
    results     {"dry_run":false,"results":[{"entity":{…},"old":null,"new":{"limits":{…}},"error":null}]}

If a name is null, it stands for the default entity. In a change, a limit that is null is removed, and null in place of
``limits`` removes all limits. The same is true of ``terms`` (``config.terms``). Limits and terms that the change does
not mention are kept.

``source`` says where a rule comes from. If another rule hides it, ``shadowed_by`` is the source of that rule. A rule
that has terms or is hidden has ``now``, the limits that are in force, or null, and why. ``old`` and ``new`` are the
rules before and after a change, or null. ``error`` has Kafka's code, its name and a message. With ``"may_hold":true``
the change failed, but may have taken effect or take effect later.

A store keeps ``entity`` in one text, and ``limits`` and ``terms`` in another. What is read from a store is checked in
full. Of requests, only the form of the JSON is checked here, and ``rules.alter`` checks names, keys and limits.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from kafka_quota_proxy.config.addresses import not_an_ip, usual_ip
from kafka_quota_proxy.config.errors import TermsError
from kafka_quota_proxy.config.model import MAX_NAME_BYTES
from kafka_quota_proxy.config.quota_kinds import CLIENT_LIMIT_KEYS, IP_LIMIT_KEYS, KIND_OF_KEY
from kafka_quota_proxy.config.strict_json import StrictJsonError, parse_json
from kafka_quota_proxy.config.terms import (
    NO_TERMS,
    TermsChange,
    read_terms,
    read_terms_change,
    written_terms,
    written_terms_change,
)
from kafka_quota_proxy.config.units import shown
from kafka_quota_proxy.protocol.client_quotas import Alteration, EntityParts, Op
from kafka_quota_proxy.proxy.rules.alter import MAX_CHANGED_KEYS, UNKNOWN, Outcome
from kafka_quota_proxy.proxy.rules.effective import RuleStatus
from kafka_quota_proxy.proxy.rules.errors import NONE, name_of
from kafka_quota_proxy.proxy.rules.model import (
    ENTITY_TYPES,
    IP,
    Entity,
    StoredRule,
    entity_of,
    keys_of,
    names_of,
)

# Each entity has at least one key, so a request cannot change more entities than keys.
MAX_CHANGES: Final = MAX_CHANGED_KEYS
# Parsing so much JSON blocks the process for some tens of milliseconds.
MAX_BODY_BYTES: Final = 1024 * 1024
# There are four keys, so a change with more keys than this has unknown keys.
_MAX_LIMITS: Final = 16
_NOT_A_RULE: Final = "a rule has limits, and may have terms"
# The fields of a rule in the answer of a proxy. A file of rules may have any of them.
T = TypeVar("T")

encode: Final = json.JSONEncoder(separators=(",", ":")).encode


class JsonFormError(ValueError):
    """The JSON does not have the required form. The message says where, what is wrong, and what would be right."""


class RequestedChanges(NamedTuple):
    """A request from the admin port to change limits and terms. If ``is_dry_run``, the changes are only checked."""

    alterations: tuple[Alteration, ...]
    terms: Mapping[Entity, TermsChange]
    is_dry_run: bool


class Result(NamedTuple):
    """The result of a requested change, as read from a proxy's response.

    If ``may_hold`` is True, the change failed, but may have taken effect or take effect later.
    """

    entity: Entity
    old: StoredRule | None
    new: StoredRule | None
    error: str | None
    may_hold: bool = False


# -- writing JSON


def written_rule(entity: Entity, rule: StoredRule, **more: object) -> str:
    """Return a rule and its entity as JSON. ``more`` contains additional fields."""
    return encode({"entity": names_of(entity), **rule_as_json(rule), **more})


def written_changes(changes: RequestedChanges) -> bytes:
    """Return a request for changes as JSON."""
    written = [
        {
            "entity": dict(one.entity),
            "limits": {op.key: op.value for op in one.ops},
            **({"terms": written_terms_change(changes.terms[entity])} if entity in changes.terms else {}),
        }
        for one in changes.alterations
        for entity in (entity_of(dict(one.entity)),)
    ]
    return encode({"changes": written, "dry_run": changes.is_dry_run}).encode()


def written_results(outcomes: Iterable[Outcome], *, is_dry_run: bool) -> Iterator[str]:
    """Yield the results of changes as JSON, in pieces."""
    separator = f'{{"dry_run":{encode(is_dry_run)},"results":['
    for outcome in outcomes:
        yield separator + encode(_result(outcome))
        separator = ","
    yield "]}\n" if separator == "," else f"{separator}]}}\n"


def _result(outcome: Outcome) -> object:
    code = outcome.error_code
    error: dict[str, object] | None = None
    if code != NONE:
        may_hold = {"may_hold": True} if outcome.result == UNKNOWN else {}
        error = {"code": code, "name": name_of(code), "message": outcome.error_message, **may_hold}
    return {
        "entity": dict(outcome.entity),
        "old": None if outcome.old is None else rule_as_json(outcome.old),
        "new": None if outcome.new is None else rule_as_json(outcome.new),
        "error": error,
    }


def rule_as_json(rule: StoredRule) -> dict[str, object]:
    """Return the limits and terms of a rule as a dict that can be encoded as JSON."""
    terms = {} if rule.terms == NO_TERMS else {"terms": written_terms(rule.terms)}
    return {"limits": dict(rule.limits), **terms}


def status_as_json(status: RuleStatus) -> Mapping[str, object]:
    """Return the status of a rule (which limits are in force, and why) as a mapping that can be encoded as JSON."""
    return {"limits": None if status.limits is None else dict(status.limits), "why": status.why}


# -- rules in a store


def encode_entity(entity: Entity) -> str:
    """Return an entity as JSON. Equal entities always give the same text."""
    return encode(names_of(entity))


def encode_rule(rule: StoredRule) -> str:
    """Return a quota rule as JSON: its limits, and the terms that say when and how they apply."""
    return encode(rule_as_json(rule))


def decode_entity(data: bytes) -> Entity:
    """Read an entity from JSON. Raises JsonFormError if this version does not know it."""
    parts = _entity(_decoded(data), "entity")
    names = dict(parts)
    ip = names.get(IP)
    if "" in names.values() or (IP in names and len(names) > 1):
        raise JsonFormError("entity: has an empty name, or is an address and more")
    if ip is not None and usual_ip(ip) != ip:
        raise JsonFormError(f"the usual form of {ip} is {usual_ip(ip)}")
    return entity_of(names)


def decode_rule(entity: Entity, data: bytes) -> StoredRule:
    """Read the quota rule of an entity from JSON. Raises JsonFormError if this version does not know all of it."""
    given = _decoded(data)
    if not isinstance(given, dict) or not {"limits"} <= given.keys() <= {"limits", "terms"}:
        raise JsonFormError(_NOT_A_RULE)
    limits = given["limits"]
    if not isinstance(limits, dict) or not limits:
        raise JsonFormError("a rule has no limits")
    # A rule that was published to a topic may have more keys than Kafka's API.
    unknown = limits.keys() - set(CLIENT_LIMIT_KEYS if entity.ip is None else IP_LIMIT_KEYS)
    if unknown:
        raise JsonFormError(f"{min(unknown)!r} is not a key of {entity}")
    checked = {key: _stored_limit(key, value) for key, value in limits.items()}
    return StoredRule(limits=checked, terms=_terms(given.get("terms", {}), f"terms of {entity}", read_terms, ": "))


def _stored_limit(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise JsonFormError(f"{key} is not a number above 0")
    return int(value) if KIND_OF_KEY[key].spec.unit.is_whole else float(value)


def _decoded(data: bytes) -> object:
    try:
        return json.loads(data.decode())
    except (ValueError, RecursionError):
        raise JsonFormError("not JSON") from None


# -- reading JSON


def read_changes(given: object) -> RequestedChanges:
    """Read a request for changes from JSON that ``parse_json`` has parsed.

    Raises JsonFormError if its form is wrong or an entity appears twice.
    """
    body = _object(given, "(body)")
    _known(body, ("changes", "dry_run"), "(body)")
    is_dry_run = body.get("dry_run", False)
    if not isinstance(is_dry_run, bool):
        raise JsonFormError("dry_run: must be true or false")
    changes = _list(body.get("changes"), "changes")
    if len(changes) > MAX_CHANGES:
        raise JsonFormError(f"changes: has {len(changes)} elements; at most {MAX_CHANGES} are allowed")
    alterations: dict[Entity, Alteration] = {}
    terms: dict[Entity, TermsChange] = {}
    for index, one in enumerate(changes):
        at = f"changes[{index}]"
        alteration = _alteration(one, at)
        entity = entity_of(dict(alteration.entity))
        if entity in alterations:
            raise JsonFormError(f"{at}.entity: is given twice; put both changes into one")
        alterations[entity] = alteration
        if "terms" in one:
            terms[entity] = _terms(one["terms"], f"{at}.terms", read_terms_change)
    return RequestedChanges(tuple(alterations.values()), terms, is_dry_run)


def read_rules(data: bytes) -> list[tuple[Entity, StoredRule, Mapping[str, Any]]]:
    """Read ``{"rules":[…]}`` from a response. Return the entity of each rule, the rule, and all its fields.

    An entity may have several rules if all but one of them are hidden (``shadowed_by``). Unknown fields are allowed,
    because the proxy that sent them may be of a later version.
    """
    body = _object(_json(data), "(body)")
    given = _list(body.get("rules"), "rules")
    rules: list[tuple[Entity, StoredRule, Mapping[str, Any]]] = []
    entities: set[Entity] = set()
    for index, one in enumerate(given):
        at = f"rules[{index}]"
        fields = _object(one, at)
        entity = entity_of(dict(_entity(fields.get("entity"), f"{at}.entity")))
        rule = _stored(fields, at)
        is_hidden = fields.get("shadowed_by") is not None
        if not is_hidden and entity in entities:
            raise JsonFormError(f"{at}.entity: has two rules; keep one of them")
        if not is_hidden:
            entities.add(entity)
        rules.append((entity, rule, fields))
    return rules


def read_results(data: bytes) -> list[Result]:
    """Read the results of changes from a proxy's response."""
    given = _list(_object(_json(data), "(body)").get("results"), "results")
    return [_read_result(one, f"results[{index}]") for index, one in enumerate(given)]


def _alteration(given: object, at: str) -> Alteration:
    change = _object(given, at)
    _known(change, ("entity", "limits", "terms"), at)
    entity = _entity(change.get("entity"), f"{at}.entity")
    if "limits" not in change and "terms" not in change:
        raise JsonFormError(f"{at}.limits: is missing; give keys and numbers, null to remove one, or null for all")
    limits = change.get("limits", {})
    if limits is None:
        return Alteration(entity, tuple(Op(key, None) for key in keys_of(entity_of(dict(entity)))))
    limits = _object(limits, f"{at}.limits")
    if len(limits) > _MAX_LIMITS:
        raise JsonFormError(f"{at}.limits: has {len(limits)} keys; an entity has fewer keys")
    return Alteration(entity, tuple(Op(key, _limit(value, f"{at}.limits", key)) for key, value in limits.items()))


def _entity(given: object, at: str) -> EntityParts:
    names = _object(given, at)
    if not names:
        raise JsonFormError(
            f'{at}: names no user, client-id or ip; such as {{"user":"alice"}}, or {{"user":null}} for the default'
        )
    for kind, name in names.items():
        if kind not in ENTITY_TYPES:
            raise JsonFormError(f"{at}: {shown(kind)} is not an entity type; the types are {', '.join(ENTITY_TYPES)}")
        if name is not None and not isinstance(name, str):
            raise JsonFormError(f"{at}.{kind}: must be text, or null for the default")
        # A longer name does not fit into Kafka's responses.
        if name is not None and len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
            raise JsonFormError(f"{at}.{kind}: names have at most {MAX_NAME_BYTES} bytes in Kafka's protocol")
        if kind == IP and name and usual_ip(name) is None:
            raise JsonFormError(f"{at}.{kind}: {not_an_ip(name)}")
    return tuple(names.items())


def _limit(given: object, at: str, key: str) -> float | None:
    return None if given is None else _number(given, at, key)


def _number(given: object, at: str, key: str) -> float:
    if isinstance(given, int | float) and not isinstance(given, bool):
        try:
            return float(given)
        except OverflowError:  # the integer is larger than all floats
            return math.inf
    raise JsonFormError(f"{at}: {shown(key)} must be a number, or null to remove it")


def _stored(fields: Mapping[str, Any], at: str) -> StoredRule:
    limits = {key: _limit(value, f"{at}.limits", key) for key, value in _object(fields.get("limits"), at).items()}
    numbers = {key: limit for key, limit in limits.items() if limit is not None}
    if not limits or len(numbers) < len(limits):
        raise JsonFormError(f"{at}.limits: must be at least one key with a number")
    return StoredRule(limits=numbers, terms=_terms(fields.get("terms", {}), f"{at}.terms", read_terms))


def read_status(given: object) -> RuleStatus | None:
    """Read a status from parsed JSON, or None from null. Raises JsonFormError for any other form."""
    if given is None:
        return None
    if not isinstance(given, dict) or given.keys() != {"limits", "why"}:
        raise JsonFormError("now: must have limits and why")
    limits, why = given["limits"], given["why"]
    limits = (
        None
        if limits is None
        else {key: _number(value, "now.limits", key) for key, value in _object(limits, "now.limits").items()}
    )
    return RuleStatus(limits, str(why))


def _terms(given: object, at: str, read: Callable[[object], T], separator: str = ".") -> T:
    try:
        return read(given)
    except TermsError as error:
        raise JsonFormError(f"{at}{separator if error.path else ': '}{error}") from None


def _read_result(given: object, at: str) -> Result:
    fields = _object(given, at)
    entity = entity_of(dict(_entity(fields.get("entity"), f"{at}.entity")))
    old, new = (
        None if fields.get(key) is None else _stored(_object(fields[key], f"{at}.{key}"), f"{at}.{key}")
        for key in ("old", "new")
    )
    if fields.get("error") is None:
        return Result(entity, old, new, None)
    error = _object(fields["error"], f"{at}.error")
    return Result(entity, old, new, str(error.get("message")), may_hold=error.get("may_hold") is True)


# -- parts of JSON


def _json(data: bytes) -> object:
    try:
        return parse_json(data)
    except StrictJsonError as error:
        raise JsonFormError(f"(body): {error}") from None


def _object(given: object, at: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise JsonFormError(f"{at}: must be an object")
    return given


def _list(given: object, at: str) -> list[Any]:
    if not isinstance(given, list):
        raise JsonFormError(f"{at}: must be a list")
    return given


def _known(given: Mapping[str, object], known: Iterable[str], at: str) -> None:
    unknown = given.keys() - set(known)
    if unknown:
        raise JsonFormError(f"{at}: {shown(min(unknown))} is unknown; known: {', '.join(known)}")
