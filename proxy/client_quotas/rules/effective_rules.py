"""Determines which rules are in force: the rules of the configuration file, and those of the store for other entities.

A rule of the file hides the rule of the store for the same entity, even while the rule of the file is not in force.
"""

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Final, NamedTuple, TypeVar, cast

from kafka_quota_proxy.config.model import IpRule, ProxyConfig, QuotaRule
from kafka_quota_proxy.config.terms import Terms, terms_of
from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change, HiddenRule, apply
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule
from kafka_quota_proxy.proxy.quota.entity import Entity as RuleEntity
from kafka_quota_proxy.proxy.quota.entity import bounded
from kafka_quota_proxy.proxy.quota.rule_changes import Ip, QuotaChanges
from kafka_quota_proxy.proxy.quota.rule_schedule import RuleSchedule
from kafka_quota_proxy.proxy.quota.rule_terms import limits_of

_TERMS: Final = tuple(field.name for field in fields(Terms))
_TIMES: Final = ("expires_ms", "schedule", "ramp")

Rule = QuotaRule | IpRule
K = TypeVar("K")
V = TypeVar("V")


class ListedRule(NamedTuple):
    """An entry in a list of quota rules: a rule as it was set, whether its limits apply now or not.

    Attributes:
        source: Where the rule was set: its place in the configuration file as FILE:LINE, or the name of the store of
            rules that administrators set.
        can_change: Whether the rule can be changed at this proxy.
        shadowed_by: The place (FILE:LINE) of the rule that takes the place of this one, or None if no rule does so.
    """

    entity: Entity
    rule: StoredRule
    source: str
    can_change: bool
    shadowed_by: str | None = None


class EffectiveRules:
    """The rules of the configuration file and of the store. Determines which of them are in force.

    With ``quotas_from: broker``, the brokers' quotas take the place of the store. The cost of changing a rule does not
    depend on the number of rules. Every ``now_ms`` is Unix time.

    Attributes:
        schedule: The rules that change with time.
        sources: The entities that have a rule in the file, and the place of each rule as FILE:LINE.
        rules: All rules as they were set, in force or not, except for the rules of the store that are hidden.
    """

    def __init__(self, config: ProxyConfig, *, name: str, now_ms: int) -> None:
        self.stored: dict[Entity, StoredRule] = {}
        self.name = name
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
        # This makes a new dict, because a thread may be reading the old one.
        self._stored_form = {
            entity: _as_stored(rule) if entity in changed else self._stored_form[entity]
            for entity, rule in rules.items()
        }
        self.rules: Mapping[Entity, StoredRule] = ChainMap(self._stored_form, self.stored)
        for entity in changed:
            self._take(entity, rules.get(entity) or self._of_store(entity), now_ms)
        return self._changes(changed)

    @property
    def doubles(self) -> tuple[str, ...]:
        """A log message for each entity that has a rule in the configuration file and another one in the store."""
        return tuple(
            f"{source}: {entity} has quotas in {self.name}, too; those of the file apply"
            for entity, source in self.sources.items()
            if entity in self.stored
        )

    def listed(self) -> Iterator[ListedRule]:
        """Yield every rule as it was set, whether it is in force or not. Any thread may call this."""
        # The rules of the file are in a dict that is only replaced. ``copy`` copies the dict of the store in one step.
        of_file, sources, stored = self._stored_form, self.sources, self.stored.copy()
        for entity, rule in of_file.items():
            yield ListedRule(entity, rule, sources.get(entity, ""), can_change=False)
        for entity, rule in stored.items():
            shadowed_by = sources.get(entity)
            yield ListedRule(entity, rule, self.name, shadowed_by is None, shadowed_by)

    def hidden(self, entity: Entity, *, sees_both: bool) -> HiddenRule | None:
        """Return the stored rule of an entity if a rule of the file hides it, otherwise None.

        ``sees_both`` is True for a client of the admin port, which can see both rules. It is False for a client of
        Kafka's API, which can see only the rule of the file.
        """
        rule = self.stored.get(entity)
        if rule is None or entity not in self.sources:
            return None
        shown = self._stored_form.get(entity)
        return HiddenRule(rule.limits.keys(), () if sees_both or shown is None else shown.limits.keys())

    @property
    def quotas(self) -> tuple[QuotaRule, ...]:
        """The rules of users and client-ids that are in force. Those of the file come first, in their order there."""
        return tuple(rule for rule in self._all() if isinstance(rule, QuotaRule))

    @property
    def ip_quotas(self) -> tuple[IpRule, ...]:
        """The rules of IP addresses that are in force, that is, whose limits apply now. Each address appears once."""
        return tuple(rule for rule in self._all() if isinstance(rule, IpRule))

    def change(self, changes: Iterable[Change], *, now_ms: int) -> QuotaChanges:
        """Change the rules of the store. Return the rules that are now in force for the changed entities."""
        changes = tuple(changes)
        apply(self.stored, changes)
        taken = [entity for entity, _ in changes if entity not in self.sources]
        for entity in taken:
            self._take(entity, self._of_store(entity), now_ms)
        return self._changes(taken)

    def advance(self, most: int, *, now_ms: int) -> QuotaChanges | None:
        """Apply up to ``most`` rules that are due to begin, end or change. Return how the rules in force change.

        Returns None if no rule was due.
        """
        due = self.schedule.due(most, now_ms=now_ms)
        for entity, rule in due.items():
            self._keep(entity, rule)
        return self._changes(due) if due else None

    # -- internal --

    def _of_store(self, entity: Entity) -> Rule | None:
        stored = self.stored.get(entity)
        return None if stored is None else as_rule(entity, stored, source=self.name)

    def _take(self, entity: Entity, rule: Rule | None, now_ms: int) -> None:
        """Put a rule in force with the limits that its terms allow now, which may be none.

        If ``rule`` is None, the entity no longer has a rule.
        """
        self._keep(entity, self.schedule.put(entity, rule, now_ms=now_ms))

    def _keep(self, entity: Entity, rule: Rule | None) -> None:
        if rule is None:
            self._in_force.pop(entity, None)
        else:
            self._in_force[entity] = rule

    def _all(self) -> Iterator[Rule]:
        yield from (self._in_force[entity] for entity in self._file if entity in self._in_force)
        yield from (rule for entity, rule in self._in_force.items() if entity not in self._file)

    def _changes(self, entities: Iterable[Entity]) -> QuotaChanges:
        rules: dict[RuleEntity, QuotaRule | None] = {}
        ips: dict[Ip, IpRule | None] = {}
        for entity in entities:
            rule = self._in_force.get(entity)
            if entity.ip is None:
                rules[_key(entity)] = cast("QuotaRule | None", rule)
            else:
                ips[entity.ip] = cast("IpRule | None", rule)
        return QuotaChanges(rules, ips)


def as_rule(entity: Entity, stored: StoredRule, *, source: str) -> Rule:
    """Return a stored rule as an object of the type that rules of the configuration file have."""
    names = _TERMS if entity.ip is None else _TIMES
    terms: dict[str, Any] = {name: getattr(stored.terms, name) for name in names}
    if entity.ip is not None:
        limits: dict[str, Any] = dict(stored.limits)
        return IpRule(ip=entity.ip, **limits, **terms, source=source)
    return QuotaRule(user=entity.user, client_id=entity.client_id, limits=stored.limits, **terms, source=source)


def _difference(before: Mapping[K, V], after: Mapping[K, V]) -> dict[K, None]:
    """Return the keys that were added, were removed, or have a new value."""
    changed = {key: None for key, value in after.items() if before.get(key) != value}
    return changed | {key: None for key in before if key not in after}


def _as_stored(rule: Rule) -> StoredRule:
    limits = {key: float(limit) for key, limit in limits_of(rule).items()}
    return StoredRule(limits=limits, terms=terms_of(rule))


def _key(entity: Entity) -> RuleEntity:
    user, client_id = (bounded(name) if isinstance(name, str) else name for name in (entity.user, entity.client_id))
    return user, client_id
