"""Works out which rules of a quota topic are in force. No I/O, no clock.

* A rule of the configuration file hides the topic's rule of the same entity.
* A setting is the value of one quota key, written by another proxy. It applies only if its entity has no rule in the
  topic.
* Settings of IP addresses, and of entities with terms, are ignored here. They apply only at proxies that have the topic
  as their store.
* After a failure the topic is read again from its start. The new rules replace the old ones when the end is reached.
* If the latest value of a rule is not understood, the rule keeps its old value.

Changes are returned in portions. A topic may change ten thousand rules at once, and clients must not wait for that.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final

from kafka_quota_proxy.config.model import DEFAULT, EntityName, QuotaRule
from kafka_quota_proxy.config.quota_record import TERMS, FaultKind, RecordFault, Rule, Setting, encode
from kafka_quota_proxy.proxy.client_quotas.topic.record_table import (
    RULE,
    EntityLimits,
    Notices,
    RecordTable,
    TopicRecord,
)
from kafka_quota_proxy.proxy.quota.entity import Entity, bounded

# The highest number of entities with rules. Each entity takes about 1 kB at most.
MOST_ENTITIES: Final = 200_000


class TopicRules:
    """Works out which quota rules of a topic the proxy applies, and which of them have changed.

    The caller passes the records of the topic to ``take``, and then calls ``changes``, which returns the changed rules.

    Args:
        topic: The name of the topic.
        file_rules: The rules of the configuration file, which take precedence over those of the topic.
        most: The highest number of entities with rules. Others are ignored.

    Attributes:
        records: How many records were read, for metrics. A record that is read again counts again.
        not_understood: How many records were not understood or were ignored, for metrics.
        in_force: The rules of the topic that the proxy applies, by entity.
        notices: Messages for the log.
    """

    def __init__(self, *, topic: str, file_rules: Iterable[QuotaRule] = (), most: int = MOST_ENTITIES) -> None:
        self.records = self.not_understood = 0
        self.in_force: dict[Entity, QuotaRule] = {}
        self.notices = Notices()
        self._limits: dict[Entity, Mapping[str, float]] = {}  # the limits of ``in_force``, to find changes
        self._topic = topic
        self._most = most
        self._file = _by_entity(file_rules)
        self._now: RecordTable[Entity] = RecordTable(most)
        self._next: RecordTable[Entity] | None = None  # set while the topic is read again from its start
        self._has_begun = False
        self._touched: dict[Entity, None] = {}  # the entities that ``changes`` has to look at
        self._unapplied: set[Entity] = set()  # their changes were returned, and could not be applied
        self._named_faults: set[str] = set()
        self._named_overruled: set[Entity] = set()
        self._is_full = False

    # -- input --

    def begin(self) -> None:
        """Prepare to take all records of the topic, beginning with the first."""
        # The first time there are no earlier rules that have to stay in force until the end is reached.
        self._next = RecordTable(self._most) if self._has_begun else None
        self._has_begun = True

    def take(self, records: Iterable[TopicRecord]) -> None:
        """Take the next records of the topic, in their order."""
        table = self._now if self._next is None else self._next
        for one in records:
            self.records += 1
            record = one.record
            if isinstance(record, RecordFault):
                self._not_understood(one.offset, record, table)
                continue
            if _is_for_stores(record):
                self._not_understood(one.offset, _for_stores(record), table)
            if record.ip is None:
                self._put(table, record, one.offset)

    def end_reached(self) -> None:
        """Tell that the topic has been read to its end.

        If the topic was read again after a failure, the rules that were found now replace the previous rules.
        """
        if self._next is None:
            return
        before, self._now, self._next = self._now, self._next, None
        self._is_full = False
        self._now.forget_deletions()
        for table in (before, self._now):
            # ``changes`` compares the old and new rules in portions, because 10,000 at once take 10 ms.
            self._touched.update(dict.fromkeys(table))

    def follow_file(self, rules: Iterable[QuotaRule]) -> None:
        """Replace the rules that came from the configuration file. They hide the topic's rules of these entities."""
        before, self._file = self._file, _by_entity(rules)
        self._touched.update({entity: None for entity in before if entity not in self._file})
        self._touched.update({entity: None for entity in self._file if entity not in before})
        self._named_overruled &= self._file.keys()

    # -- output --

    @property
    def is_unsettled(self) -> bool:
        """Whether there are entities whose rule may have changed, so that ``changes`` must be called again."""
        return bool(self._touched)

    @property
    def rules(self) -> int:
        """The number of entities for which the topic contains a whole rule or the values of single quota keys."""
        return len(self._now)

    def changes(self, most: int | None = None) -> dict[Entity, QuotaRule | None]:
        """Return the changed rules that were not returned yet, by entity. The value None stands for a removed rule.

        One call checks at most ``most`` entities, or all if ``most`` is None. Entities that have a rule in the
        configuration file are left out. ``in_force`` is updated.
        """
        found: dict[Entity, QuotaRule | None] = {}
        # The entities are listed before any is removed, because finding the first key of a dict takes longer the more
        # keys were removed before it.
        for entity in list(islice(self._touched, most)):
            del self._touched[entity]
            is_unapplied = entity in self._unapplied
            self._unapplied.discard(entity)
            held = self._limits_in_force(entity)
            if held is None:
                self._limits.pop(entity, None)
                was_in_force = self.in_force.pop(entity, None) is not None
                if (was_in_force or is_unapplied) and entity not in self._file:
                    found[entity] = None
            elif is_unapplied or held.limits != self._limits.get(entity):
                self._limits[entity] = held.limits
                user, client_id = entity
                source = f"kafka://{self._topic}@{held.offset}"
                rule = QuotaRule(user=user, client_id=client_id, limits=held.limits, source=source)
                self.in_force[entity] = found[entity] = rule
        return found

    def take_back(self, entities: Iterable[Entity]) -> None:
        """Let ``changes`` return the rules of these entities once more. Call this if the proxy failed to apply them."""
        for entity in entities:
            self._touched[entity] = None
            self._unapplied.add(entity)

    # -- within --

    def _limits_in_force(self, entity: Entity) -> EntityLimits | None:
        """Return the limits of an entity that follow from the topic and apply now, or None if there are none."""
        limits = self._now.limits(entity)
        if limits is not None and limits.terms is not None:
            return None
        file_rule = self._file.get(entity)
        if limits is not None and file_rule is not None:
            words, source = _words(entity), file_rule.source
            text = f"has a limit for {words}, whose rule is in {source}: the rule of the file applies; remove one"
            self.notices.add_once(self._named_overruled, entity, text, others="not named")
            return None
        return limits

    def _put(self, table: RecordTable[Entity], record: Rule | Setting, offset: int) -> None:
        entity, key = _slot(record)
        value = record.value if isinstance(record, Setting) else record.limits
        if self._next is None:
            self._touched[entity] = None
        elif not value:
            table.remember_deletion(self._now, entity, key)
        if not table.put(entity, key, value, offset):
            self.not_understood += 1
            if not self._is_full:
                self._is_full = True
                text = f"has more than {self._most} entities: further ones are ignored, from offset {offset} on"
                self.notices.add(text)

    def _not_understood(self, offset: int, fault: RecordFault, table: RecordTable[Entity]) -> None:
        self.not_understood += 1
        about = fault.about
        if about is not None and about.ip is None:
            entity, key = _slot(about)
            if self._next is not None:
                self._next.carry_over(self._now, entity, key)
            if key == TERMS:
                table.mark_unknown_terms(entity, offset)
                self._touched[entity] = None
        self.notices.add_once(self._named_faults, fault.key, f"offset {offset} was not understood: {fault}")


def _entity(user: EntityName, client_id: EntityName) -> Entity:
    """Return the entity with these names. Long names are shortened, as in the tables of rules."""
    return (
        bounded(user) if isinstance(user, str) else user,
        bounded(client_id) if isinstance(client_id, str) else client_id,
    )


def _slot(record: Rule | Setting) -> tuple[Entity, str]:
    return _entity(record.user, record.client_id), record.key if isinstance(record, Setting) else RULE


def _is_for_stores(record: Rule | Setting) -> bool:
    if isinstance(record, Rule):
        return record.ip is not None and bool(record.limits)
    # A deletion of such a setting is understood here, too.
    return record.value is not None and (record.ip is not None or record.key == TERMS)


def _for_stores(record: Rule | Setting) -> RecordFault:
    where = "apply only if the topic is the proxy's store"
    message = (
        f"terms {where}; none of the limits that were set for this entity apply"
        if record.ip is None
        else f"limits of addresses {where}"
    )
    # Without its value, because that may be one that ``encode`` refuses.
    about = replace(record, value=None) if isinstance(record, Setting) else record
    return RecordFault(kind=FaultKind.KEY, key=encode(about)[0].decode(), message=message)


def _by_entity(rules: Iterable[QuotaRule]) -> dict[Entity, QuotaRule]:
    return {_entity(rule.user, rule.client_id): rule for rule in rules}


def _words(entity: Entity) -> str:
    names = zip(("user", "client-id"), entity, strict=True)
    return ", ".join(f"{key} {name if name is DEFAULT else repr(name)}" for key, name in names if name is not None)
