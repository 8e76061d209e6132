"""Decides on a request to change quotas: what Kafka would answer, and which rules change.

Source: ``ClientQuotaControlManager``, ``AlterClientQuotasRequest`` and ``QuorumController`` in Apache Kafka 4.4.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, NamedTuple

from kafka_quota_proxy.config.addresses import not_an_ip, usual_ip
from kafka_quota_proxy.config.errors import TermsError
from kafka_quota_proxy.config.quota_kinds import KIND_OF_KEY, KafkaType
from kafka_quota_proxy.config.terms import NO_TERMS, Terms, TermsChange, changed_terms, check_terms
from kafka_quota_proxy.protocol.client_quotas import Altered, AlterRequest, EntityParts, Op
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
_NO_TERMS_ASKED: Final[Mapping[Entity, TermsChange]] = MappingProxyType({})
_TYPES: Final = frozenset(ENTITY_TYPES)

# The results of a requested change, as in the audit log.
APPLIED: Final = "applied"
VALIDATED: Final = "validated"
UNCHANGED: Final = "unchanged"
REFUSED: Final = "refused"
UNKNOWN: Final = "unknown"
RESULTS: Final = (APPLIED, VALIDATED, UNCHANGED, REFUSED, UNKNOWN)


class Outcome(NamedTuple):
    """The outcome of a requested quota change for one entity, such as a user.

    Attributes:
        entity: The names of the entity by entity type, as requested.
        asked: The quota keys that the request sets, such as ``producer_byte_rate``, with the new limits. A limit of
            None removes the key.
        asked_terms: The terms (expiry, schedule, ramp) that the request sets or removes, or None if there are none.
        old: The rule of the entity before the change.
        new: The rule after the change, or the rule that a dry run would have stored. The same as ``old`` if the change
            was refused.
        result: One of ``RESULTS``. If it is ``UNKNOWN``, the stored rule may be ``old`` or ``new``, or become ``new``
            later.
    """

    entity: EntityParts
    asked: tuple[Op, ...]
    asked_terms: TermsChange | None
    old: StoredRule | None
    new: StoredRule | None
    error_code: int = NONE
    error_message: str | None = None
    result: str = UNCHANGED


class Decision(NamedTuple):
    """The decision on a request, and the changes to make. The caller must make either all of the changes or none.

    Attributes:
        results: The results for the response in Kafka's API.
        outcomes: The same for the audit log and the admin port, with more detail. Each entity has one outcome, in the
            order of the request.
        before: The rules that the changed entities had.
        throttle_time_ms: How long the client must wait after too many changes.
    """

    results: tuple[Altered, ...]
    outcomes: tuple[Outcome, ...]
    changes: tuple[Change, ...] = ()
    before: Mapping[Entity, StoredRule] = MappingProxyType({})
    throttle_time_ms: int = 0


class _RefusalError(Exception):
    def __init__(self, message: str, error_code: int = INVALID_REQUEST) -> None:
        super().__init__(message)
        self.error_code = error_code


def decide(
    rules: Mapping[Entity, StoredRule],
    request: AlterRequest,
    sources: Mapping[Entity, str],
    standing: Mapping[Entity, StoredRule],
    *,
    now_ms: int,
    terms: Mapping[Entity, TermsChange] = _NO_TERMS_ASKED,
) -> Decision:
    """Decide which changes of an AlterClientQuotas request to make, by the rules of Kafka's controller.

    Each entity is changed as a whole or not at all. If an entity appears more than once, its first change is made but
    its result is an error, as in Kafka.

    Args:
        rules: The stored rules.
        request: The request. If it has ``validate_only``, the decision contains results but no changes.
        sources: The entities with rules from another source, and the place of each rule (FILE:LINE). The stored rules
            of these entities cannot be changed.
        standing: All rules, also those of ``sources``.
        now_ms: The Unix time.
        terms: The requested changes of terms, by entity. Kafka's API has no terms.
    """
    asked, repeated = _asked(request, standing, terms)
    outcomes: list[Outcome] = []
    changes: list[Change] = []
    before: dict[Entity, StoredRule] = {}
    for entity, outcome in asked:
        old = outcome.old
        try:
            new = _changed(entity, outcome, sources.get(entity), now_ms)
        except _RefusalError as refusal:
            outcome = outcome._replace(error_code=refusal.error_code, error_message=str(refusal), result=REFUSED)
        else:
            if new != old:
                outcome = outcome._replace(new=new, result=VALIDATED if request.validate_only else APPLIED)
                changes.append(Change(entity, new))
                if old is not None:
                    before[entity] = old
        outcomes.append(outcome)
    for at in repeated:
        one = outcomes[at]
        result = REFUSED if one.result == UNCHANGED else one.result
        outcomes[at] = one._replace(
            error_code=INVALID_REQUEST, error_message=_duplicate(dict(one.entity)), result=result
        )
    why_not = _refusal_of_all(rules, changes)
    if why_not is not None:
        return refuse(request, POLICY_VIOLATION, why_not, standing, terms)
    results = tuple([Altered(one.error_code, one.error_message, one.entity) for one in outcomes])
    if request.validate_only:
        return Decision(results, tuple(outcomes))
    return Decision(results, tuple(outcomes), tuple(changes), before)


def refuse(
    request: AlterRequest,
    error_code: int,
    message: str,
    standing: Mapping[Entity, StoredRule],
    terms: Mapping[Entity, TermsChange],
) -> Decision:
    """Return the decision to refuse a whole request with this error. ``standing`` contains all rules."""
    asked, _ = _asked(request, standing, terms)
    outcomes = [one._replace(error_code=error_code, error_message=message, result=REFUSED) for _, one in asked]
    return Decision(refuse_alter(request, error_code, message), tuple(outcomes))


def with_unknown_outcome(decision: Decision, error_code: int, message: str) -> Decision:
    """Return a decision with this error for each change, because it is unknown whether the changes are stored."""
    results, outcomes = list(decision.results), list(decision.outcomes)
    for at, outcome in enumerate(outcomes):
        if outcome.result == APPLIED:
            results[at] = Altered(error_code, message, outcome.entity)
            outcomes[at] = outcome._replace(error_code=error_code, error_message=message, result=UNKNOWN)
    return decision._replace(results=tuple(results), outcomes=tuple(outcomes))


def refuse_alter(request: AlterRequest, error_code: int, message: str) -> tuple[Altered, ...]:
    """Return one result for each entity of a request, because the whole request is refused with this error."""
    return tuple(Altered(error_code, message, alteration.entity) for alteration in request.alterations)


def _asked(
    request: AlterRequest, standing: Mapping[Entity, StoredRule], terms: Mapping[Entity, TermsChange]
) -> tuple[list[tuple[Entity, Outcome]], list[int]]:
    """Return what a request asks of each of its entities, as outcomes without a change.

    Also return the indexes of the entities that appear more than once. Only what they ask for first is returned.
    """
    asked: list[tuple[Entity, Outcome]] = []
    index_of: dict[frozenset[tuple[str, str | None]], int] = {}
    repeated: list[int] = []
    for parts, ops in request.alterations:
        names = usual_names(parts)
        same = frozenset(names.items())
        if same in index_of:
            repeated.append(index_of[same])
            continue
        index_of[same] = len(asked)
        entity = entity_of(names) if names.keys() <= _TYPES else Entity()
        old = standing.get(entity)
        asked.append((entity, Outcome(tuple(dict(parts).items()), ops, terms.get(entity), old, old)))
    return asked, repeated


# -- changes of one entity. These functions raise ``_RefusalError`` to refuse all changes of the entity.


def _changed(entity: Entity, asked: Outcome, source: str | None, now_ms: int) -> StoredRule | None:
    """Return the rule of an entity after the change. ``source`` is where the rule is set, if it is fixed there."""
    names, ops, terms_change, rule = dict(asked.entity), dict(asked.asked), asked.asked_terms, asked.old
    if len(ops) < len(asked.asked):
        raise _RefusalError(_duplicate(names))
    _check_names(names)
    limits = _altered(entity, {} if rule is None else rule.limits, ops)
    if not ops and terms_change is None:
        return rule
    if source is not None:
        raise _RefusalError(f"The quotas of {entity} are set in {source}; change them there", POLICY_VIOLATION)
    changed = _with_limits(rule, limits)
    if changed is not None and changed.terms.expires_ms is not None and now_ms >= changed.terms.expires_ms:
        changed = _renewed(changed, ops, terms_change or _NO_CHANGE)
    return changed if terms_change is None else _with_terms(entity, changed, terms_change)


def _duplicate(names: Mapping[str, str | None]) -> str:
    """Return Kafka's message for an entity that appears twice, or that has a key twice."""
    entries = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in names.items())
    return f"Ignoring duplicate entity ClientQuotaEntity(entries={{{entries}}})"


def _check_names(names: Mapping[str, str | None]) -> None:
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
        return StoredRule(limits)
    return StoredRule(limits, _fitting(rule.terms, limits))


def _fitting(terms: Terms, limits: Mapping[str, float]) -> Terms:
    """Return ``terms`` without the parts of the ramp whose keys no longer have a limit.

    A ramp moves limits in equal steps from old values to those of the rule. If it has no key left, it is removed.
    """
    if terms.ramp is None:
        return terms
    start = tuple(old for old in terms.ramp.start if old[0] in limits)
    return terms._replace(ramp=replace(terms.ramp, start=start) if start else None)


def _renewed(rule: StoredRule, ops: Mapping[str, float | None], change: TermsChange) -> StoredRule:
    """Return an expired rule without its terms, if a request sets a limit but no new expiry.

    Otherwise the new limit would never be in force.
    """
    changes_expiry = change.given.expires_ms is not None or "expires" in change.removed
    sets_limit = any(value is not None for value in ops.values())
    return rule._replace(terms=NO_TERMS) if sets_limit and not changes_expiry else rule


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
    return rule._replace(terms=terms)


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
