"""Which rules hold: those of the file, and of the store those that are about other entities; each at its times.

Of an entity that the file has a rule for the file decides, also at times at which that rule does not hold.
"""

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import fields
from typing import Any, Final, NamedTuple, TypeVar, cast

from kafka_quota_proxy.config.model import IpRule, ProxyConfig, QuotaRule
from kafka_quota_proxy.config.terms import Terms, terms_of
from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change, HiddenRule, apply, in_usual_form
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule
from kafka_quota_proxy.proxy.client_quotas.rules.ip_rules import Addresses, EffectiveIpRules
from kafka_quota_proxy.proxy.quota.entity import Entity as RuleEntity
from kafka_quota_proxy.proxy.quota.entity import bounded
from kafka_quota_proxy.proxy.quota.rule_changes import Changes, Ip, IpChanges
from kafka_quota_proxy.proxy.quota.rule_schedule import RuleSchedule
from kafka_quota_proxy.proxy.quota.rule_terms import limits_of

_TERMS: Final = tuple(field.name for field in fields(Terms))
_TIMES: Final = ("expires_ms", "schedule", "ramp")

Rule = QuotaRule | IpRule
K = TypeVar("K")
V = TypeVar("V")


class ListedRule(NamedTuple):
    """A rule as it was set.

    Attributes:
        entity: Whom it is for.
        rule: What it says.
        source: FILE:LINE, or where else.
        can_change: Whether it can be changed at this proxy.
        shadowed_by: FILE:LINE of the rule that holds in its place, whatever the time; None: there is none.
    """

    entity: Entity
    rule: StoredRule
    source: str
    can_change: bool
    shadowed_by: str | None = None


class EffectiveRules:
    """The rules of both. What a change costs depends on what it changes, not on how much there is in the store.

    Every ``now_ms`` is Unix time.

    Attributes:
        name: Of the store, where a rule's source is told.
        stored: What the store has.
        sources: The entities of the file, and FILE:LINE.
        rules: Of every entity, as they were set, whatever the time is; of one that both have, the file's.
    """

    def __init__(self, config: ProxyConfig, *, name: str, now_ms: int) -> None:
        self.stored: dict[Entity, StoredRule] = {}
        self.name = name
        self.sources: dict[Entity, str] = {}
        # Addresses of the store that are written in another way than the file's would be, by how those are.
        self._spellings: dict[Entity, dict[Entity, None]] = {}
        self._file: dict[Entity, Rule] = {}  # as they were set
        self._told: dict[Entity, StoredRule] = {}
        # As they hold.
        self._of_file: dict[Entity, QuotaRule] = {}
        self._ips_of_file: dict[Ip, IpRule] = {}
        self._of_store: dict[Entity, QuotaRule] = {}
        self._addresses = EffectiveIpRules(name=name)
        self._timetable = RuleSchedule[Entity](now_ms=now_ms)
        self.follow_file(config, now_ms=now_ms)

    def follow_file(self, config: ProxyConfig, *, now_ms: int) -> Changes:
        """Take the file's rules from now on; return what changes by that."""
        rules: dict[Entity, Rule] = {Entity(rule.user, rule.client_id): rule for rule in config.quotas}
        rules |= {Entity(ip=rule.ip): rule for rule in config.ip_quotas}
        changed = _difference(self._file, rules)
        self._file = rules
        self.sources = {entity: rule.source for entity, rule in rules.items()}
        # Another one: a thread may be reading the one before.
        self._told = {
            entity: _as_stored(rule) if entity in changed else self._told[entity] for entity, rule in rules.items()
        }
        self.rules: Mapping[Entity, StoredRule] = ChainMap(self._told, self.stored)
        ips: dict[Ip, IpRule | None] = {}
        self._addresses.follow_file({rule.ip for rule in config.ip_quotas})
        for entity in changed:
            ips |= self._forget(entity)
            if entity in rules:
                self._keep_of_file(entity, self._timetable.put(entity, rules[entity], now_ms=now_ms))
            else:
                ips |= self._take(entity, self.stored.get(entity), {}, now_ms)
        ips |= {entity.ip: self._ip_rule(entity.ip) for entity in changed if entity.ip is not None}
        return Changes({_key(entity): self._rule(entity) for entity in changed if entity.ip is None}, ips)

    @property
    def doubles(self) -> tuple[str, ...]:
        """Return what is to be said of the file: which entities of the store it has, too."""
        return tuple(
            f"{source}: {entity} has quotas in {self.name}, too; those of the file hold"
            for usual, source in self.sources.items()
            for entity in (usual, *self._spellings.get(usual, ()))
            if entity in self.stored
        )

    def listed(self) -> Iterator[ListedRule]:
        """Yield every rule as it was set; those of the store can be changed. For any thread."""
        # The file's are made anew when they change; a copy of the store's is one step, in which nobody changes them.
        of_file, sources, stored = self._told, self.sources, self.stored.copy()
        for entity, rule in of_file.items():
            yield ListedRule(entity, rule, sources.get(entity, ""), can_change=False)
        for entity, rule in stored.items():
            shadowed_by = sources.get(in_usual_form(entity))
            yield ListedRule(entity, rule, self.name, shadowed_by is None, shadowed_by)

    def hidden(self, entity: Entity, *, sees_both: bool) -> HiddenRule | None:
        """Return what the store has of an entity that the file has a rule for; None: nothing.

        ``sees_both``: who asks is told both rules, and not, as by Kafka's API, the file's alone.
        """
        rule = self.stored.get(entity)
        if rule is None or in_usual_form(entity) not in self.sources:
            return None
        shown = self._told.get(entity)
        return HiddenRule(rule.limits.keys(), () if sees_both or shown is None else shown.limits.keys())

    def update_addresses(self, addresses: Addresses) -> Changes:
        """Take it that these hosts have these addresses; return what changes by that."""
        return Changes({}, self._addresses.update_addresses(addresses))

    @property
    def unknown_hosts(self) -> Set[str]:
        """Return the hosts whose limits do not hold, for nobody knows their addresses."""
        return self._addresses.unknown_hosts

    @property
    def quotas(self) -> tuple[QuotaRule, ...]:
        """Return the rules of users and client-ids that hold."""
        # In the order of the file, whichever began to hold last.
        of_file = (self._of_file.get(entity) for entity in self._file)
        return (*(rule for rule in of_file if rule is not None), *self._of_store.values())

    @property
    def ip_quotas(self) -> tuple[IpRule, ...]:
        """Return the rules of addresses that hold, each address once."""
        return (*self._ips_of_file.values(), *self._addresses.rules.values())

    def change(self, changes: Iterable[Change], addresses: Addresses | None = None, *, now_ms: int) -> Changes:
        """Take what has changed in the store, and where the hosts in it are; return which rules that changes."""
        changes = tuple(changes)
        apply(self.stored, changes)
        ips: dict[Ip, IpRule | None] = {}
        for entity, stored in changes:
            self._note_spelling(entity)
            if entity not in self.sources:
                ips |= self._take(entity, stored, addresses or {}, now_ms)
        rules = {
            _key(entity): self._of_store.get(entity)
            for entity, _ in changes
            if entity.ip is None and entity not in self.sources
        }
        return Changes(rules, ips)

    # -- as time goes on --

    @property
    def next_change_ms(self) -> int | None:
        """Return when to ``advance``; None: never."""
        return self._timetable.next_ms

    @property
    def has_timed(self) -> bool:
        """Return whether there are any that are not the same at all times."""
        return len(self._timetable) > 0

    @property
    def timed(self) -> Mapping[Entity, Rule]:
        """Return the rules that are not the same at all times, as they were set."""
        return self._timetable.rules()

    def advance(self, most: int, *, now_ms: int) -> Changes | None:
        """Take it that it is now; return what changes by that, None where nothing does.

        So many rules are looked at: see ``RuleSchedule.due``. Hosts among ``unknown_hosts`` may have come.
        """
        due = self._timetable.due(most, now_ms=now_ms)
        ips: dict[Ip, IpRule | None] = {}
        for entity, rule in due.items():
            if entity not in self.sources:
                ips |= self._keep_of_store(entity, rule, {})
            else:
                self._keep_of_file(entity, rule)
                if entity.ip is not None:
                    ips[entity.ip] = self._ip_rule(entity.ip)
        rules = {_key(entity): self._rule(entity) for entity in due if entity.ip is None}
        return Changes(rules, ips) if due else None

    def repeat_timed(self) -> None:
        """Have ``advance`` return all rules that are not the same at all times."""
        self._timetable.repeat_all()

    # -- within --

    def _note_spelling(self, entity: Entity) -> None:
        usual = in_usual_form(entity)
        if usual == entity:
            return
        spellings = self._spellings.setdefault(usual, {})
        if entity in self.stored:
            spellings[entity] = None
        else:
            spellings.pop(entity, None)
        if not spellings:
            del self._spellings[usual]

    def _rule(self, entity: Entity) -> QuotaRule | None:
        return (self._of_file if entity in self.sources else self._of_store).get(entity)

    def _ip_rule(self, ip: Ip) -> IpRule | None:
        return self._ips_of_file.get(ip) or self._addresses.rules.get(ip)

    def _take(self, entity: Entity, stored: StoredRule | None, addresses: Addresses, now_ms: int) -> IpChanges:
        """Keep what holds of a rule of the store, or, with None, of none."""
        rule = None if stored is None else as_rule(entity, stored, source=self.name)
        return self._keep_of_store(entity, self._timetable.put(entity, rule, now_ms=now_ms), addresses)

    def _keep_of_store(self, entity: Entity, rule: Rule | None, addresses: Addresses) -> IpChanges:
        if entity.ip is not None:
            rate = None if rule is None else cast(IpRule, rule).connection_creation_rate
            return self._addresses.change(entity.ip, rate, addresses)
        if rule is None:
            self._of_store.pop(entity, None)
        else:
            self._of_store[entity] = cast(QuotaRule, rule)
        return {}

    def _keep_of_file(self, entity: Entity, rule: Rule | None) -> None:
        if rule is None:
            self._of_file.pop(entity, None)
            self._ips_of_file.pop(entity.ip or "", None)
        elif isinstance(rule, IpRule):
            self._ips_of_file[rule.ip] = rule
        else:
            self._of_file[entity] = rule

    def _forget(self, entity: Entity) -> IpChanges:
        """Have nothing hold of an entity, whoever it was set by."""
        self._keep_of_file(entity, None)
        return self._keep_of_store(entity, self._timetable.put(entity, None, now_ms=0), {})


def as_rule(entity: Entity, stored: StoredRule, *, source: str) -> Rule:
    """Return a rule as what holds is reckoned from it."""
    names = _TERMS if entity.ip is None else _TIMES
    terms: dict[str, Any] = {name: getattr(stored.terms, name) for name in names}
    if entity.ip is not None:
        limits: dict[str, Any] = dict(stored.limits)
        return IpRule(ip=entity.ip, **limits, **terms, source=source)
    return QuotaRule(user=entity.user, client_id=entity.client_id, limits=stored.limits, **terms, source=source)


def _difference(before: Mapping[K, V], after: Mapping[K, V]) -> dict[K, None]:
    """Return of which keys the values differ, or are not there, in their order."""
    changed = {key: None for key, value in after.items() if before.get(key) != value}
    return changed | {key: None for key in before if key not in after}


def _as_stored(rule: Rule) -> StoredRule:
    limits = {key: float(limit) for key, limit in limits_of(rule).items()}
    return StoredRule(limits=limits, terms=terms_of(rule))


def _key(entity: Entity) -> RuleEntity:
    user, client_id = (bounded(name) if isinstance(name, str) else name for name in (entity.user, entity.client_id))
    return user, client_id
