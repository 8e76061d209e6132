"""Determines which rules are in force: the rules of the configuration file, and those of the source for other entities.

A rule of the file hides the rule of the source for the same entity, even while the rule of the file is not in force.

The limits of a rule may change with time, because of an expiry, a schedule or a ramp (a gradual change of limits). All
times are Unix time, which may go back when the clock of the machine is set.
"""

from collections import ChainMap
from collections.abc import Hashable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from kafka_quota_proxy.config.model import IpRule, ProxyConfig, QuotaRule
from kafka_quota_proxy.config.terms import NO_TERMS, Terms, terms_of
from kafka_quota_proxy.proxy.quota.address_limits import Ip
from kafka_quota_proxy.proxy.quota.entity import Entity as RuleEntity
from kafka_quota_proxy.proxy.quota.rule_phrases import upcoming_changes, why_inactive
from kafka_quota_proxy.proxy.quota.rule_tables import QuotaChanges
from kafka_quota_proxy.proxy.quota.rule_terms import in_force, limits_of, next_change_ms
from kafka_quota_proxy.proxy.rules.model import Change, Entity, StoredRule

_TERMS: Final = Terms._fields
_TIMES: Final = ("expires_ms", "schedule", "ramp")
# The heap of a schedule is rebuilt only if it has more than this number of entries of replaced rules.
_LEAST_STALE: Final = 100
NOWHERE: Final[Mapping[Entity, str]] = MappingProxyType({})

Rule = QuotaRule | IpRule
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
# What ``QuotaChanges`` are made from.
_Changed = tuple[dict[RuleEntity, QuotaRule | None], dict[Ip, IpRule | None]]


class ListedRule(NamedTuple):
    """An entry in a list of quota rules: a rule as it was set, whether its limits apply now or not.

    Attributes:
        source: Where the rule was set: its place in the configuration file as FILE:LINE, or the name of the source, or
            a place in the source.
        can_change: Whether the rule can be changed at this proxy.
        shadowed_by: The place (FILE:LINE) of the rule that takes the place of this one, or None if no rule does so.
    """

    entity: Entity
    rule: StoredRule
    source: str
    can_change: bool
    shadowed_by: str | None = None


class RuleStatus(NamedTuple):
    """Which limits of a rule are in force at an instant, and why.

    ``limits`` is None if the rule is not in force. ``why`` is empty if the rule is always in force.
    """

    limits: Mapping[str, float] | None
    why: str


class _Timed(NamedTuple):
    """A rule as it was written, and as it applies now (``current``, or None if it does not apply).

    ``current`` holds until ``next_ms``, or for ever if ``next_ms`` is None.
    """

    rule: Rule
    current: Rule | None
    next_ms: int | None
    number: int


class RuleSchedule(Generic[K]):
    """The rules whose limits change with time, each under a key. The caller asks it which limits have changed.

    Attributes:
        timed: The rules by key, as they were written and as they apply now.
    """

    def __init__(self, *, now_ms: int) -> None:
        self._as_of_ms = now_ms
        self.timed: dict[K, _Timed] = {}
        # The times when to look at each rule again. An entry is stale if the rule has another number now.
        self._heap: list[tuple[int, int, K]] = []
        self._number = 0
        self._repeated: set[K] = set()  # rules that ``due`` returns even if they have not changed

    def put(self, key: K, rule: Rule | None, *, now_ms: int) -> Rule | None:
        """Add or replace the rule with this key, or remove it if ``rule`` is None.

        Return the rule with the limits that it has now, or None if it does not apply now. A rule whose limits do not
        change with time is returned, but not stored in this object.
        """
        if rule is None or (rule.expires_ms is None and rule.schedule is None and rule.ramp is None):
            if self.timed.pop(key, None) is not None:
                self._repeated.discard(key)
            return rule
        return self._update(key, rule, now_ms)

    @property
    def next_ms(self) -> int | None:
        """The time when ``due`` must be called next, or None if no rule will change."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def due(self, most: int, *, now_ms: int) -> dict[K, Rule | None]:
        """Return each rule whose limits have changed since the last call, by key, with the limits that it has now.

        The value is None if the rule does not apply now. A call checks at most ``most`` rules. The caller must call
        this method again as long as ``next_ms`` is not in the future.
        """
        if now_ms < self._as_of_ms:
            # The clock was set back, so changes that were already made may be in the future again.
            self._make_all_due(now_ms)
        self._as_of_ms = now_ms
        changed: dict[K, Rule | None] = {}
        for _ in range(most):
            next_ms = self.next_ms
            if next_ms is None or next_ms > now_ms:
                break
            key = heappop(self._heap)[2]
            before = self.timed[key]
            current = self._update(key, before.rule, now_ms)
            if current != before.current or key in self._repeated:
                changed[key] = current
            self._repeated.discard(key)
        return changed

    def repeat_all(self) -> None:
        """Make ``due`` return every rule once more, because the caller could not apply the earlier results."""
        self._repeated.update(self.timed)
        self._make_all_due(self._as_of_ms)

    def _make_all_due(self, now_ms: int) -> None:
        self._heap = [(now_ms, timed.number, key) for key, timed in self.timed.items()]
        heapify(self._heap)

    def _update(self, key: K, rule: Rule, now_ms: int) -> Rule | None:
        current = in_force(rule, now_ms=now_ms)
        next_ms = next_change_ms(rule, now_ms=now_ms)
        self._number += 1
        self.timed[key] = _Timed(rule, current, next_ms, self._number)
        if next_ms is not None:
            heappush(self._heap, (next_ms, self._number, key))
            if len(self._heap) > 2 * len(self.timed) + _LEAST_STALE:
                self._heap = [entry for entry in self._heap if not self._is_stale(entry)]
                heapify(self._heap)
        return current

    def _drop_stale(self) -> None:
        while self._heap and self._is_stale(self._heap[0]):
            heappop(self._heap)

    def _is_stale(self, entry: tuple[int, int, K]) -> bool:
        _, number, key = entry
        timed = self.timed.get(key)
        return timed is None or timed.number != number


class EffectiveRules:
    """The rules of the configuration file and of one source. Determines which of them are in force.

    The cost of changing a rule does not depend on the number of rules. Every ``now_ms`` is Unix time.

    Args:
        name: The name of the source.
        places: The entities whose rules cannot be changed through the proxy, and their places in the source. It is
            read whenever a rule changes.
        is_writable: Whether the other rules of the source can be changed through the proxy.

    Attributes:
        stored: The rules of the source.
        schedule: The rules that change with time.
        sources: The entities that have a rule in the file, and the place of each rule as FILE:LINE.
        fixed: The entities whose rules cannot be changed through the proxy, and the place of each rule.
        rules: All rules as they were set, in force or not, except for the rules of the source that are hidden.
    """

    fixed: Mapping[Entity, str]

    def __init__(
        self,
        config: ProxyConfig,
        *,
        name: str,
        now_ms: int,
        places: Mapping[Entity, str] = NOWHERE,
        is_writable: bool = True,
    ) -> None:
        self.stored: dict[Entity, StoredRule] = {}
        self.name = name
        self.places = places
        self.is_writable = is_writable
        self.sources: dict[Entity, str] = {}
        self._file: dict[Entity, Rule] = {}
        self._stored_form: dict[Entity, StoredRule] = {}
        self._in_force: dict[Entity, Rule] = {}
        self.schedule = RuleSchedule[Entity](now_ms=now_ms)
        self.follow_file(config, now_ms=now_ms)

    def follow_file(self, config: ProxyConfig, *, now_ms: int) -> QuotaChanges:
        """Replace the rules of the file by those of ``config``. Return how the rules in force change."""
        rules: dict[Entity, Rule] = {Entity(rule.user, rule.client_id): rule for rule in config.quotas}
        rules |= {Entity(ip=rule.ip): rule for rule in config.ip_quotas}
        changed = _difference(self._file, rules)
        self._file = rules
        self.sources = {entity: rule.source for entity, rule in rules.items()}
        self.fixed = ChainMap(self.sources, cast("dict[Entity, str]", self.places))
        # This makes a new dict, because a thread may be reading the old one.
        self._stored_form = {
            entity: _as_stored(rule) if entity in changed else self._stored_form[entity]
            for entity, rule in rules.items()
        }
        self.rules: Mapping[Entity, StoredRule] = ChainMap(self._stored_form, self.stored)
        found: _Changed = ({}, {})
        for entity in changed:
            rule = rules.get(entity) or self._of_source(entity)
            self._keep(found, entity, self.schedule.put(entity, rule, now_ms=now_ms))
        return QuotaChanges(*found)

    @property
    def overruled(self) -> int:
        """The number of entities that have a rule in the configuration file and another one in the source."""
        return sum(entity in self.stored for entity in self.sources)

    def double(self, entity: Entity) -> str:
        """Return a log message about an entity that has a rule in the file and another one in the source."""
        return f"{self.sources[entity]}: {entity} has quotas in {self.name}, too; those of the file apply"

    def listed(self) -> Iterator[ListedRule]:
        """Yield every rule as it was set, whether it is in force or not. Any thread may call this."""
        # The rules of the file are in a dict that is only replaced. ``copy`` copies the other dicts in one step.
        of_file, sources, stored, places = self._stored_form, self.sources, self.stored.copy(), dict(self.places)
        for entity, rule in of_file.items():
            yield ListedRule(entity, rule, sources.get(entity, ""), can_change=False)
        for entity, rule in stored.items():
            shadowed_by = sources.get(entity)
            can_change = self.is_writable and shadowed_by is None and entity not in places
            yield ListedRule(entity, rule, places.get(entity, self.name), can_change, shadowed_by)

    @property
    def quotas(self) -> tuple[QuotaRule, ...]:
        """The rules of users and client-ids that are in force. Those of the file come first, in their order there."""
        return tuple(rule for rule in self._all() if isinstance(rule, QuotaRule))

    @property
    def ip_quotas(self) -> tuple[IpRule, ...]:
        """The rules of IP addresses that are in force, that is, whose limits apply now. Each address appears once."""
        return tuple(rule for rule in self._all() if isinstance(rule, IpRule))

    def change(self, changes: Iterable[Change], *, now_ms: int) -> QuotaChanges:
        """Change the rules of the source. Return how the rules in force change."""
        found: _Changed = ({}, {})
        for entity, rule in changes:
            if rule is None:
                self.stored.pop(entity, None)
            else:
                self.stored[entity] = rule
            if entity not in self.sources:
                self._keep(found, entity, self.schedule.put(entity, self._of_source(entity), now_ms=now_ms))
        return QuotaChanges(*found)

    def advance(self, most: int, *, now_ms: int) -> QuotaChanges | None:
        """Apply up to ``most`` rules that are due to begin, end or change. Return how the rules in force change.

        Returns None if no rule was due.
        """
        due = self.schedule.due(most, now_ms=now_ms)
        found: _Changed = ({}, {})
        for entity, rule in due.items():
            self._keep(found, entity, rule)
        return QuotaChanges(*found) if due else None

    # -- internal --

    def _of_source(self, entity: Entity) -> Rule | None:
        stored = self.stored.get(entity)
        return None if stored is None else as_rule(entity, stored, source=self.places.get(entity, self.name))

    def _keep(self, found: _Changed, entity: Entity, rule: Rule | None) -> None:
        """Put a rule in force, and add it to ``found``. If ``rule`` is None, the entity has no rule in force."""
        if rule is None:
            self._in_force.pop(entity, None)
        else:
            self._in_force[entity] = rule
        user, client_id, ip = entity
        if ip is None:
            found[0][user, client_id] = cast("QuotaRule | None", rule)
        else:
            found[1][ip] = cast("IpRule | None", rule)

    def _all(self) -> Iterator[Rule]:
        yield from (self._in_force[entity] for entity in self._file if entity in self._in_force)
        yield from (rule for entity, rule in self._in_force.items() if entity not in self._file)


def as_rule(entity: Entity, stored: StoredRule, *, source: str) -> Rule:
    """Return a stored rule as an object of the type that rules of the configuration file have."""
    terms: dict[str, Any] = {}
    if stored.terms is not NO_TERMS:
        terms = {name: getattr(stored.terms, name) for name in (_TERMS if entity.ip is None else _TIMES)}
    if entity.ip is not None:
        limits: dict[str, Any] = dict(stored.limits)
        return IpRule(ip=entity.ip, **limits, **terms, source=source)
    return QuotaRule(user=entity.user, client_id=entity.client_id, limits=stored.limits, **terms, source=source)


def status_of(one: ListedRule, *, now_ms: int) -> RuleStatus | None:
    """Return the status of a rule at a Unix time; None if it has no terms and is not hidden, so always in force."""
    if one.shadowed_by is not None:
        return RuleStatus(None, f"for {one.shadowed_by} sets quotas of the same")
    if one.rule.terms == NO_TERMS:
        return None
    rule = as_rule(one.entity, one.rule, source="")
    held = in_force(rule, now_ms=now_ms)
    if held is None:
        return RuleStatus(None, why_inactive(rule, now_ms=now_ms))
    limits = {key: float(limit) for key, limit in limits_of(held).items()}
    return RuleStatus(limits, ", ".join(upcoming_changes(rule, now_ms=now_ms)))


def _difference(before: Mapping[K, V], after: Mapping[K, V]) -> dict[K, None]:
    """Return the keys that were added, were removed, or have a new value."""
    changed = {key: None for key, value in after.items() if before.get(key) != value}
    return changed | {key: None for key in before if key not in after}


def _as_stored(rule: Rule) -> StoredRule:
    limits = {key: float(limit) for key, limit in limits_of(rule).items()}
    return StoredRule(limits=limits, terms=terms_of(rule))
