"""Decides on a request to change quotas: what Kafka answers, and which rules change.

Source: ``ClientQuotaControlManager``, ``AlterClientQuotasRequest`` and ``QuorumController`` in Apache Kafka 4.3.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from kafka_quota_proxy.config.errors import TermsError
from kafka_quota_proxy.config.quota_kinds import KafkaType
from kafka_quota_proxy.config.terms import NO_TERMS, Terms, TermsChange, changed_terms, check_kept, check_terms
from kafka_quota_proxy.protocol.client_quotas import Altered, AlterRequest, Op
from kafka_quota_proxy.proxy.client_quotas.rules.entity import (
    ENTITY_TYPES,
    IP,
    Entity,
    StoredRule,
    entity_of,
    keys_of,
    names_in_order,
)
from kafka_quota_proxy.proxy.client_quotas.rules.errors import (
    INVALID_REQUEST,
    NONE,
    POLICY_VIOLATION,
    POLICY_VIOLATION_MESSAGE,
)
from kafka_quota_proxy.proxy.client_quotas.rules.hash_order import hash_order
from kafka_quota_proxy.proxy.client_quotas.rules.ip_rules import literal

# QuorumController.MAX_RECORDS_PER_USER_OP; a record of Kafka's is one key of one entity.
MAX_CHANGED_KEYS: Final = 10_000
# Unlike Kafka, which has no bound but its memory.
MAX_RULES: Final = 200_000

_MOST: Final = {KafkaType.LONG: float(2**63 - 1), KafkaType.INT: float(2**31 - 1)}
_FRACTION: Final = 1e-6
_NO_CHANGE: Final = TermsChange()


class Change(NamedTuple):
    """The new rule of an entity; None: it has none."""

    entity: Entity
    rule: StoredRule | None


def apply(rules: dict[Entity, StoredRule], changes: Iterable[Change]) -> None:
    """Change the rules in place."""
    for entity, rule in changes:
        if rule is None:
            rules.pop(entity, None)
        else:
            rules[entity] = rule


class Decision(NamedTuple):
    """The result for each entity, and the changes, which are made all or none."""

    results: tuple[Altered, ...]
    changes: tuple[Change, ...]


class HiddenRule(NamedTuple):
    """A stored rule that another source's rule hides: it does not hold, and can be removed.

    Attributes:
        keys: The keys of its limits.
        shown: The keys for which the client sees the other source's limit, and so no effect of their removal.
    """

    keys: Collection[str]
    shown: Collection[str]


class _RefusalError(Exception):
    def __init__(self, message: str, error_code: int = INVALID_REQUEST) -> None:
        super().__init__(message)
        self.error_code = error_code


def hosts_of(request: AlterRequest) -> frozenset[str]:
    """Return the host names in a request, to be looked up before ``decide``."""
    return frozenset(
        name
        for alteration in request.alterations
        for entity_type, name in alteration.entity
        if entity_type == IP and name and literal(name) is None
    )


def decide(
    rules: Mapping[Entity, StoredRule],
    request: AlterRequest,
    *,
    is_host: Callable[[str], bool],
    sources: Mapping[Entity, str],
    now_ms: int,
    terms: Mapping[Entity, TermsChange] | None = None,
    hidden: Callable[[Entity], HiddenRule | None] = lambda _: None,
) -> Decision:
    """Decide on a request as Kafka's controller does. An entity is changed as a whole or not at all.

    Args:
        rules: The stored rules.
        request: The request; with ``validate_only`` nothing changes.
        is_host: Returns whether a name of ``hosts_of`` has an address.
        sources: Entities whose rules come from elsewhere, with FILE:LINE. Only ``hidden`` rules of them can be changed.
        now_ms: Unix time; see ``_resets_terms``.
        terms: Changes of terms, which Kafka's request cannot have, by entity of the request.
        hidden: Returns the stored rule of an entity of ``sources``; None: nothing can be removed.

    Returns:
        One result for each entity, in the order of the request. An entity that comes twice has an error, although its
        first change is made, as in Kafka.
    """
    entities = _Entities(rules, is_host, sources, now_ms, terms or {}, hidden)
    results: dict[frozenset[tuple[str, str | None]], Altered] = {}
    changes: list[Change] = []
    for alteration in request.alterations:
        names = names_in_order(alteration.entity)
        same, parts = frozenset(names.items()), tuple(names.items())
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
    """Return the results of a request that is refused as a whole, one for each entity."""
    return tuple(Altered(error_code, message, alteration.entity) for alteration in request.alterations)


# -- an entity. These raise ``_RefusalError``, which refuses it as a whole.


class _Entities(NamedTuple):
    """The arguments of ``decide``, for each entity."""

    rules: Mapping[Entity, StoredRule]
    is_host: Callable[[str], bool]
    sources: Mapping[Entity, str]
    now_ms: int
    terms: Mapping[Entity, TermsChange]
    hidden: Callable[[Entity], HiddenRule | None]

    def change(self, names: Mapping[str, str | None], ops: Sequence[Op]) -> Iterable[Change]:
        """Return the change of one entity; nothing if its rule stays the same."""
        values = dict(ops)
        if len(values) < len(ops):
            raise _RefusalError(_duplicate(names))
        entity = _checked(names, self.is_host)
        rule = self.rules.get(entity)
        limits = _altered(entity, {} if rule is None else rule.limits, values)
        if not ops and entity not in self.terms:
            return ()
        source = self.sources.get(in_usual_form(entity))
        if source is not None:
            _check_removal(entity, source, values, self.hidden(entity), entity in self.terms)
        terms_change = self.terms.get(entity, _NO_CHANGE)
        changed = _with_limits(rule, limits)
        if changed is not None and _resets_terms(changed, values, terms_change, self.now_ms):
            changed = replace(changed, terms=NO_TERMS)
        if entity in self.terms:
            changed = _with_terms(entity, changed, terms_change)
        return () if changed == rule else (Change(entity, changed),)


def _duplicate(names: Mapping[str, str | None]) -> str:
    """Return Kafka's message for an entity, or a key of one, that comes twice."""
    entries = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in names.items())
    return f"Ignoring duplicate entity ClientQuotaEntity(entries={{{entries}}})"


def _checked(names: Mapping[str, str | None], is_host: Callable[[str], bool]) -> Entity:
    """Return the entity with these names, checked in Kafka's order."""
    if not names:
        raise _RefusalError("Invalid empty client quota entity")
    for entity_type, name in names.items():
        if entity_type not in ENTITY_TYPES:
            raise _RefusalError(f"Unhandled client quota entity type: {entity_type}")
        if name == "":
            raise _RefusalError(f"Empty {entity_type} not supported")
    if IP in names and len(names) > 1:
        # Kafka's message lacks this space, too.
        raise _RefusalError("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
    ip = names.get(IP)
    if ip is not None and literal(ip) is None and not is_host(ip):
        raise _RefusalError(f"{ip} is not a valid IP or resolvable host.")
    for entity_type, name in names.items():
        # Unlike Kafka, which stores a different name.
        try:
            (name or "").encode()
        except UnicodeEncodeError:
            raise _RefusalError(f"The name of {entity_type} is not UTF-8") from None
    return entity_of(names)


def in_usual_form(entity: Entity) -> Entity:
    """Return the entity with its address in canonical form."""
    return Entity(ip=literal(entity.ip) or entity.ip) if isinstance(entity.ip, str) else entity


def _check_removal(
    entity: Entity, source: str, ops: Mapping[str, float | None], hidden: HiddenRule | None, has_terms: bool
) -> None:
    """Check that a change of an entity whose rule comes from elsewhere only removes its hidden rule."""
    text = f"The quotas of {entity} are set in {source}; change them there"
    if hidden is None:
        raise _RefusalError(text, POLICY_VIOLATION)
    removes = not has_terms and all(value is None for value in ops.values()) and any(key in ops for key in hidden.keys)
    if not removes or any(key in ops for key in hidden.shown):
        more = "What was set of them here does not hold at this proxy; kafka-quota-proxy quotas delete removes it"
        raise _RefusalError(f"{text}. {more}", POLICY_VIOLATION)


# -- its limits


def _altered(entity: Entity, limits: Mapping[str, float], ops: Mapping[str, float | None]) -> dict[str, float]:
    """Return the limits after ``ops``. Removing a limit that is not there is valid, whatever its key."""
    keys = keys_of(entity)
    after = dict(limits)
    for key in hash_order(ops, len(ops)):
        value = ops[key]
        if value is None:
            after.pop(key, None)
        else:
            _check_value(keys, key, value)
            after[key] = value
    return after


def _check_value(keys: Mapping[str, KafkaType], key: str, value: float) -> None:
    if key not in keys:
        raise _RefusalError(f"Invalid configuration key {key}")
    if value <= 0:
        raise _RefusalError(f"Quota {key} must be greater than 0")
    value_type = keys[key]
    if value_type is not KafkaType.DOUBLE:
        if value > _MOST[value_type]:
            raise _RefusalError(f"Proposed value for {key} is too large for {value_type.value}.")
        if math.isfinite(value) and value % 1.0 > _FRACTION:
            raise _RefusalError(f"{key} cannot be a fractional value.")
    # Unlike Kafka, which stores NaN: no rate is above or below it.
    if not math.isfinite(value):
        raise _RefusalError(f"Quota {key} must be a finite number")


def _with_limits(rule: StoredRule | None, limits: Mapping[str, float]) -> StoredRule | None:
    if not limits:
        return None
    if rule is None:
        return StoredRule(limits=limits)
    return replace(rule, limits=limits, terms=_fitting(rule.terms, limits))


def _fitting(terms: Terms, limits: Mapping[str, float]) -> Terms:
    """Return the terms with a ramp of the limited keys only."""
    if terms.ramp is None:
        return terms
    start = tuple(old for old in terms.ramp.start if old[0] in limits)
    return replace(terms, ramp=replace(terms.ramp, start=start) if start else None)


def _resets_terms(rule: StoredRule, ops: Mapping[str, float | None], change: TermsChange, now_ms: int) -> bool:
    """Return whether a request sets a limit of an expired rule without a new ``expires``.

    Such a limit would be stored and shown but never hold, and Kafka's tools can neither show why nor change that.
    """
    expires_ms = rule.terms.expires_ms
    has_expired = expires_ms is not None and now_ms >= expires_ms
    changes_expiry = change.given.expires_ms is not None or "expires" in change.removed
    return has_expired and not changes_expiry and any(value is not None for value in ops.values())


def _with_terms(entity: Entity, rule: StoredRule | None, change: TermsChange) -> StoredRule | None:
    """Return the rule with its terms changed."""
    if rule is None:
        if change.given == NO_TERMS:
            return None
        raise _RefusalError(f"{entity} has no quota that terms could be for; give it a limit")
    terms = changed_terms(rule.terms, change)
    try:
        check_terms(terms, limits=rule.limits, allowed=keys_of(entity))
        # A stored rule that cannot be read would keep the proxy from starting.
        check_kept(terms)
    except TermsError as error:
        raise _RefusalError(f"Invalid terms: {error}") from None
    return replace(rule, terms=terms)


# -- all of them


def _refusal_of_all(rules: Mapping[Entity, StoredRule], changes: Sequence[Change]) -> str | None:
    """Return why a request of valid changes is refused as a whole; None: it is not."""
    if sum(_changed_keys(rules.get(entity), rule) for entity, rule in changes) > MAX_CHANGED_KEYS:
        return POLICY_VIOLATION_MESSAGE
    more = sum((rule is not None) - (entity in rules) for entity, rule in changes)
    if more > 0 and len(rules) + more > MAX_RULES:
        return f"There are quotas of {len(rules)} entities; {MAX_RULES} is the most"
    return None


def _changed_keys(before: StoredRule | None, after: StoredRule | None) -> int:
    old, new = ({} if rule is None else rule.limits for rule in (before, after))
    return sum(old.get(key) != new.get(key) for key in old.keys() | new.keys())
