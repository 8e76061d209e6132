"""Determines which rules are in force: the rules of the configuration file, and those of the source for other entities.

A rule of the file hides the rule of the source for the same entity, even while the rule of the file is not in force.
"""

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar, cast

from kafka_quota_proxy.config.model import IpRule, ProxyConfig, QuotaRule
from kafka_quota_proxy.config.terms import NO_TERMS, Terms, terms_of
from kafka_quota_proxy.proxy.quota.address_limits import Ip
from kafka_quota_proxy.proxy.quota.entity import Entity as RuleEntity
from kafka_quota_proxy.proxy.quota.rule_phrases import upcoming_changes, why_inactive
from kafka_quota_proxy.proxy.quota.rule_schedule import RuleSchedule
from kafka_quota_proxy.proxy.quota.rule_tables import QuotaChanges
from kafka_quota_proxy.proxy.quota.rule_terms import in_force, limits_of
from kafka_quota_proxy.proxy.rules.model import Change, Entity, StoredRule

_TERMS: Final = Terms._fields
_TIMES: Final = ("expires_ms", "schedule", "ramp")
NOWHERE: Final[Mapping[Entity, str]] = MappingProxyType({})

Rule = QuotaRule | IpRule
K = TypeVar("K")
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
