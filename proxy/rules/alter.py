"""Decides on a request to change quotas: what Kafka would answer, and which rules change.

Source: ``ClientQuotaControlManager``, ``AlterClientQuotasRequest`` and ``QuorumController`` in Apache Kafka 4.4.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from kafka_quota_proxy.config.addresses import not_an_ip, usual_ip
from kafka_quota_proxy.config.errors import TermsError
from kafka_quota_proxy.config.quota_kinds import KIND_OF_KEY, KafkaType
from kafka_quota_proxy.config.terms import NO_TERMS, Terms, TermsChange, changed_terms, check_terms
from kafka_quota_proxy.protocol.client_quotas import Altered, AlterRequest, Op
from kafka_quota_proxy.proxy.rules.errors import (
    INVALID_REQUEST,
    NONE,
    POLICY_VIOLATION,
    POLICY_VIOLATION_MESSAGE,
)
from kafka_quota_proxy.proxy.rules.model import (
    ENTITY_TYPES,
    IP,
    Change,
    Entity,
    StoredRule,
    entity_of,
    keys_of,
    usual_names,
)

# QuorumController.MAX_RECORDS_PER_USER_OP. Kafka writes one record for each key of an entity.
MAX_CHANGED_KEYS: Final = 10_000
# The most rules that a store may have. Kafka has no such bound.
MAX_RULES: Final = 200_000

_MOST: Final = {KafkaType.LONG: float(2**63 - 1), KafkaType.INT: float(2**31 - 1)}
_FRACTION: Final = 1e-6
_NO_CHANGE: Final = TermsChange()


class Decision(NamedTuple):
    """The decision on a request: the result for each entity, and the changes to make.

    The caller must make either all of the changes or none.
    """

    results: tuple[Altered, ...]
    changes: tuple[Change, ...]


class _RefusalError(Exception):
    def __init__(self, message: str, error_code: int = INVALID_REQUEST) -> None:
        super().__init__(message)
        self.error_code = error_code


def decide(
    rules: Mapping[Entity, StoredRule],
    request: AlterRequest,
    *,
    sources: Mapping[Entity, str],
    now_ms: int,
    terms: Mapping[Entity, TermsChange] | None = None,
) -> Decision:
    """Decide which changes of an AlterClientQuotas request to make, by the rules of Kafka's controller.

    Each entity is changed as a whole or not at all. If an entity appears more than once, its first change is made but
    its result is an error, as in Kafka.

    Args:
        rules: The stored rules.
        request: The request. If it has ``validate_only``, the decision contains results but no changes.
        sources: The entities with rules from another source, and the place of each rule (FILE:LINE). The stored rules
            of these entities cannot be changed.
        now_ms: The Unix time.
        terms: The requested changes of terms, by entity. Kafka's API has no terms.
    """
    entities = _Entities(rules, sources, now_ms, terms or {})
    results: dict[frozenset[tuple[str, str | None]], Altered] = {}
    changes: list[Change] = []
    for alteration in request.alterations:
        names, parts = usual_names(alteration.entity), tuple(dict(alteration.entity).items())
        same = frozenset(names.items())
        if same in results:
            results[same] = Altered(INVALID_REQUEST, _duplicate(names), parts)
            continue
        try:
            changes += entities.change(names, alteration.ops)
            results[same] = Altered(NONE, None, parts)
        except _RefusalError as refusal:
            results[same] = Altered(refusal.error_code, str(refusal), parts)
    why_not = _refusal_of_all(rules, changes)
    if why_not is not None:
        return Decision(refuse_alter(request, POLICY_VIOLATION, why_not), ())
    return Decision(tuple(results.values()), () if request.validate_only else tuple(changes))


def refuse_alter(request: AlterRequest, error_code: int, message: str) -> tuple[Altered, ...]:
    """Return one result for each entity of a request, because the whole request is refused with this error."""
    return tuple(Altered(error_code, message, alteration.entity) for alteration in request.alterations)


# -- changes of one entity. These functions raise ``_RefusalError`` to refuse all changes of the entity.


class _Entities(NamedTuple):
    """Holds the arguments of ``decide``, and decides on one entity at a time."""

    rules: Mapping[Entity, StoredRule]
    sources: Mapping[Entity, str]
    now_ms: int
    terms: Mapping[Entity, TermsChange]

    def change(self, names: Mapping[str, str | None], ops: Sequence[Op]) -> Iterable[Change]:
        """Return the change of one entity, or an empty tuple if its rule stays the same."""
        values = dict(ops)
        if len(values) < len(ops):
            raise _RefusalError(_duplicate(names))
        entity = _checked(names)
        rule = self.rules.get(entity)
        limits = _altered(entity, {} if rule is None else rule.limits, values)
        if not ops and entity not in self.terms:
            return ()
        source = self.sources.get(entity)
        if source is not None:
            raise _RefusalError(f"The quotas of {entity} are set in {source}; change them there", POLICY_VIOLATION)
        terms_change = self.terms.get(entity, _NO_CHANGE)
        changed = _with_limits(rule, limits)
        if changed is not None and _resets_terms(changed, values, terms_change, self.now_ms):
            changed = replace(changed, terms=NO_TERMS)
        if entity in self.terms:
            changed = _with_terms(entity, changed, terms_change)
        return () if changed == rule else (Change(entity, changed),)


def _duplicate(names: Mapping[str, str | None]) -> str:
    """Return Kafka's message for an entity that appears twice, or that has a key twice."""
    entries = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in names.items())
    return f"Ignoring duplicate entity ClientQuotaEntity(entries={{{entries}}})"


def _checked(names: Mapping[str, str | None]) -> Entity:
    """Check the names of an entity, and return the entity."""
    if not names:
        raise _RefusalError("Invalid empty client quota entity")
    for entity_type, name in names.items():
        if entity_type not in ENTITY_TYPES:
            raise _RefusalError(f"Unhandled client quota entity type: {entity_type}")
        if name == "":
            raise _RefusalError(f"Empty {entity_type} not supported")
    if IP in names and len(names) > 1:
        # The missing space in "shouldnot" is from Kafka's message.
        raise _RefusalError("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
    ip = names.get(IP)
    if ip is not None and usual_ip(ip) is None:
        raise _RefusalError(not_an_ip(ip))
    for entity_type, name in names.items():
        # Kafka accepts such a name, but stores a different one.
        try:
            (name or "").encode()
        except UnicodeEncodeError:
            raise _RefusalError(f"The name of {entity_type} is not UTF-8") from None
    return entity_of(names)


# -- the limits and terms of an entity


def _altered(entity: Entity, limits: Mapping[str, float], ops: Mapping[str, float | None]) -> dict[str, float]:
    """Return the limits after the changes ``ops``. Removing a key that is unknown or has no limit changes nothing."""
    keys = keys_of(entity)
    after = dict(limits)
    for key, value in ops.items():
        if value is None:
            after.pop(key, None)
        else:
            _check_value(keys, key, value)
            after[key] = value
    return after


def _check_value(keys: Mapping[str, KafkaType], key: str, value: float) -> None:
    if key not in keys:
        raise _RefusalError(f"Invalid configuration key {key}")
    if not math.isfinite(value):
        raise _RefusalError(f"Quota {key} must be a finite number")
    if value <= 0:
        raise _RefusalError(f"Quota {key} must be greater than 0")
    value_type = keys[key]
    if value_type is not KafkaType.DOUBLE:
        if value > _MOST[value_type]:
            raise _RefusalError(f"Proposed value for {key} is too large for {value_type.value}.")
        if value % 1.0 > _FRACTION:
            raise _RefusalError(f"{key} cannot be a fractional value.")


def _with_limits(rule: StoredRule | None, limits: Mapping[str, float]) -> StoredRule | None:
    if not limits:
        return None
    if rule is None:
        return StoredRule(limits=limits)
    return replace(rule, limits=limits, terms=_fitting(rule.terms, limits))


def _fitting(terms: Terms, limits: Mapping[str, float]) -> Terms:
    """Return ``terms`` without the parts of the ramp whose keys no longer have a limit.

    A ramp moves limits in equal steps from old values to those of the rule. If it has no key left, it is removed.
    """
    if terms.ramp is None:
        return terms
    start = tuple(old for old in terms.ramp.start if old[0] in limits)
    return replace(terms, ramp=replace(terms.ramp, start=start) if start else None)


def _resets_terms(rule: StoredRule, ops: Mapping[str, float | None], change: TermsChange, now_ms: int) -> bool:
    """Return whether a request sets a limit of an expired rule without giving the rule a new expiry.

    The caller then removes the terms of the rule, because otherwise the new limit would never be in force.
    """
    expires_ms = rule.terms.expires_ms
    has_expired = expires_ms is not None and now_ms >= expires_ms
    changes_expiry = change.given.expires_ms is not None or "expires" in change.removed
    return has_expired and not changes_expiry and any(value is not None for value in ops.values())


def _with_terms(entity: Entity, rule: StoredRule | None, change: TermsChange) -> StoredRule | None:
    """Return the rule after the change of its terms. Refuse terms that do not fit the rule."""
    if rule is None:
        if change.given == NO_TERMS:
            return None
        raise _RefusalError(f"{entity} has no limit that terms could apply to; set a limit")
    terms = changed_terms(rule.terms, change)
    try:
        check_terms(terms, limits=rule.limits, allowed=keys_of(entity))
    except TermsError as error:
        raise _RefusalError(f"Invalid terms: {error}") from None
    return replace(rule, terms=terms)


# -- all entities of a request


def _refusal_of_all(rules: Mapping[Entity, StoredRule], changes: Sequence[Change]) -> str | None:
    """Return why all changes are refused although each of them is valid, or None if they are not refused."""
    may_be_too_many = len(changes) * len(KIND_OF_KEY) > MAX_CHANGED_KEYS
    if may_be_too_many and sum(_changed_keys(rules.get(entity), rule) for entity, rule in changes) > MAX_CHANGED_KEYS:
        return POLICY_VIOLATION_MESSAGE
    if len(rules) + len(changes) > MAX_RULES:
        more = sum((rule is not None) - (entity in rules) for entity, rule in changes)
        if more > 0 and len(rules) + more > MAX_RULES:
            return f"There are quotas of {len(rules)} entities; at most {MAX_RULES} are allowed"
    return None


def _changed_keys(before: StoredRule | None, after: StoredRule | None) -> int:
    old, new = ({} if rule is None else rule.limits for rule in (before, after))
    return sum(old.get(key) != new.get(key) for key in old.keys() | new.keys())
