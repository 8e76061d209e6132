"""What a fleet's topic has, and which records say what is to be changed. No I/O, no clock.

A change is one record for each key of each entity (``config.quota_record.Setting``), as in Kafka's own controller: who
changes one key does not touch what another proxy changes meanwhile, and of one key the last record in the topic counts,
everywhere. A rule of a publisher goes before the settings of its entity, which cannot be changed meanwhile.

A topic that is read anew replaces what is known when its end is reached, not before. A key whose newer value is not
understood stays as it was. Of an entity with terms of which none were understood no setting holds, nor can be changed.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import replace
from itertools import islice
from typing import Final, NamedTuple

from kafka_quota_proxy.config.errors import TermsError
from kafka_quota_proxy.config.quota_record import (
    TERMS,
    FaultKind,
    QuotaRecord,
    RecordFault,
    Rule,
    Setting,
    Share,
    encode,
)
from kafka_quota_proxy.config.terms import NO_TERMS, Terms, check_kept, check_terms, read_terms, written_terms
from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule, keys_of
from kafka_quota_proxy.proxy.client_quotas.topic.record_table import RULE, UNKNOWN_TERMS, Limits, Table
from kafka_quota_proxy.proxy.client_quotas.topic.topic_rules import Notice, Seen

# More than may be set (``proxy.client_quotas.rules.alter.MAX_RULES``), for two proxies may set the last one at once.
MOST_ENTITIES: Final = 210_000
# How many different keys are said to be not understood; the others are counted.
_MOST_SAID: Final = 100
# Of how many records that were not understood the offsets are known: who has written one asks right behind.
_MOST_FAULTS: Final = 10_000
_NONE_HOLD: Final = "; none of the limits that were set for this entity hold here"


class TopicChange(NamedTuple):
    """A change, and the offset of the record that says so."""

    change: Change
    offset: int


class StoreTopicState:
    """What is in force of a topic.

    Args:
        name: Of the topic, where a rule's source is told.
        most: How many entities there may be.

    Attributes:
        records: How many were read, again after each failure. These are read by metrics as they are.
        not_understood: How many of them were not understood.
        next_offset: All before it has been taken; of a topic that is read anew, when its end is reached.
        in_force: What ``changes`` has told.
        sources: Entities that have a rule of a publisher, or terms that are not understood here, and where that is.
    """

    def __init__(self, *, name: str, most: int = MOST_ENTITIES) -> None:
        self.records = self.not_understood = self.next_offset = 0
        self.in_force: dict[Entity, StoredRule] = {}
        self.sources: dict[Entity, str] = {}
        self._name = name
        self._most = most
        self._now: Table[Entity] = Table(most)
        self._next: Table[Entity] | None = None  # what is read anew, until its end is reached
        self._touched: dict[Entity, int | None] = {}  # what is to be looked at, and the record for which
        self._owed: set[Entity] = set()  # whose changes were told and are not in force
        self._notices: deque[Notice] = deque()
        self._said: set[object] = set()
        self._faults: deque[int] = deque(maxlen=_MOST_FAULTS)  # offsets
        self._is_full = False

    # -- what comes in --

    def restore(self, rules: Mapping[Entity, StoredRule]) -> None:
        """Take it that the topic had these when it was last read, by an earlier process."""
        for entity, rule in rules.items():
            for setting in _settings(entity, None, rule):
                terms = rule.terms if setting.key == TERMS and setting.value else None
                self._now.put(entity, *_said_by(setting, terms), -1)
            self._touched[entity] = None

    def begin(self) -> None:
        """Take it that what comes now is the topic from its beginning on."""
        self._next = Table(self._most)
        self._faults.clear()

    def take(self, seen: Iterable[Seen], *, next_offset: int) -> None:
        """Take up records in their order; all before ``next_offset`` are there then."""
        for one in seen:
            self.records += 1
            terms = _terms(one.record)
            record = terms if isinstance(terms, RecordFault) else one.record
            if isinstance(record, RecordFault):
                self._not_understood(one.offset, record)
            elif isinstance(record, Rule | Setting):
                self._put(record, one.offset, terms)
            elif isinstance(record, Share):
                self._say_once(Share, "has shares of proxies, which hold with quotas_from alone: they are passed over")
        if self._next is None:
            self.next_offset = next_offset

    def end_reached(self, *, next_offset: int) -> None:
        """Take it that all that was in the topic, before ``next_offset``, has been taken."""
        if self._next is None:
            return
        if next_offset < self.next_offset:
            self._say(f"was made anew: it ends at offset {next_offset}, and was read up to {self.next_offset} before")
        if not self._next and self._now:
            self._say(f"has no quotas any more; those of {_entities(len(self._now))} that were known are taken back")
        before, self._now, self._next = self._now, self._next, None
        self._is_full = False
        self._now.forget_deletions()
        self._touched.update(dict.fromkeys(before))
        self._touched.update(dict.fromkeys(self._now))
        self.next_offset = next_offset

    # -- what comes out --

    @property
    def entities(self) -> int:
        """How many entities have quotas in the topic."""
        return len(self._now)

    @property
    def is_read_anew(self) -> bool:
        """Whether what comes in is the topic from its beginning on, and what was known holds meanwhile."""
        return self._next is not None

    @property
    def is_unsettled(self) -> bool:
        """Whether there may be changes to be told."""
        return bool(self._touched)

    def changes(self, most: int | None = None) -> list[TopicChange]:
        """Return what has changed since this was last asked; so many entities are looked at."""
        found = []
        # Listed at once: to find the first of a dict takes the longer the more was deleted in front of it.
        for entity in list(islice(self._touched, most)):
            offset = self._touched.pop(entity)
            limits = self._now.limits(entity)
            rule = self._rule(entity, limits)
            if rule == self.in_force.get(entity) and entity not in self._owed:
                continue
            self._owed.discard(entity)
            if rule is None:
                self.in_force.pop(entity, None)
            else:
                self.in_force[entity] = rule
            if offset is None:
                offset = self.next_offset - 1 if limits is None else limits.offset
            found.append(TopicChange(Change(entity, rule), offset))
        return found

    def take_back(self, changes: Iterable[TopicChange]) -> None:
        """Take it that what ``changes`` has told is not in force: it is told again."""
        for told in changes:
            self._touched[told.change.entity] = told.offset
            self._owed.add(told.change.entity)

    def has(self, count: int, *, offset: int) -> bool:
        """Whether so many records from ``offset`` on, all before ``next_offset``, were understood.

        Those of which compaction has left nothing, for others came behind, are taken to have been.
        """
        return not any(offset <= fault < offset + count for fault in self._faults)

    def left_terms(self, entities: Iterable[Entity]) -> Set[Entity]:
        """Return which of them have terms and no limits, as where one set the terms while another removed the limits.

        They would take hold of a limit that is set later.
        """
        return {entity for entity in entities if self._now.has_only(entity, TERMS)}

    def notices(self) -> Iterator[Notice]:
        """Return what is to be said, each once."""
        while self._notices:
            yield self._notices.popleft()

    # -- within --

    def _rule(self, entity: Entity, limits: Limits | None) -> StoredRule | None:
        is_held_back = limits is not None and limits.terms is UNKNOWN_TERMS
        if limits is not None and (limits.is_published or is_held_back):
            self.sources[entity] = f"{self._name}@{limits.offset}"
        else:
            self.sources.pop(entity, None)
        if limits is None or is_held_back:
            return None
        return StoredRule(limits=limits.limits, terms=limits.terms if isinstance(limits.terms, Terms) else NO_TERMS)

    def _put(self, record: Rule | Setting, offset: int, terms: object) -> None:
        entity, (key, value) = _entity(record), _said_by(record, terms)
        table = self._now
        if self._next is None:
            self._touched[entity] = offset
        else:
            table = self._next
            if not value:
                table.remember_deletion(self._now, entity, key)
        if not table.put(entity, key, value, offset):
            self.not_understood += 1
            self._faults.append(offset)
            if not self._is_full:
                self._is_full = True
                self._say(
                    f"has more than {self._most} entities: those above it are passed over, from offset {offset} on"
                )

    def _not_understood(self, offset: int, fault: RecordFault) -> None:
        self.not_understood += 1
        self._faults.append(offset)
        text = f"offset {offset} was not understood: {fault}"
        if isinstance(fault.about, Rule | Setting):
            entity, (key, _) = _entity(fault.about), _said_by(fault.about, None)
            table = self._now if self._next is None else self._next
            if self._next is not None:
                self._next.carry_over(self._now, entity, key)
            if key == TERMS and table.hold_back(entity, offset):
                text += _NONE_HOLD
                if self._next is None:
                    self._touched[entity] = offset
        self._say_once(fault.key, text)

    def _say_once(self, about: object, text: str) -> None:
        if about in self._said or len(self._said) >= _MOST_SAID:
            return
        self._said.add(about)
        more = "; others are only counted from now on" if len(self._said) == _MOST_SAID else ""
        self._say(f"{text}{more}")

    def _say(self, text: str) -> None:
        self._notices.append(Notice(is_warning=True, text=text))


def settings_of(
    changes: Iterable[Change], before: Mapping[Entity, StoredRule], left: Collection[Entity] = ()
) -> tuple[Setting, ...]:
    """Return what is to be written to the topic, as one batch: the keys in which rules differ from those ``before``.

    Compared with what is in force by now, what another proxy has changed in between would be taken back. ``left`` is
    what ``StoreTopicState.left_terms`` says of the entities.
    """
    return tuple(
        setting
        for entity, rule in changes
        for setting in _settings(entity, before.get(entity), rule, has_left_terms=entity in left)
    )


def _entity(record: Rule | Setting) -> Entity:
    return Entity(record.user, record.client_id, record.ip)


def _said_by(record: Rule | Setting, terms: object) -> tuple[str, object]:
    """Return which key of an entity is what."""
    if isinstance(record, Rule):
        return RULE, record.limits
    return record.key, record.value if terms is None else terms


def _terms(record: QuotaRecord | RecordFault) -> Terms | RecordFault | None:
    """Return the terms of a record, or why they are none or do not fit its entity; None: it has none."""
    if not isinstance(record, Setting) or record.key != TERMS or record.value is None:
        return None
    keys = keys_of(_entity(record))
    try:
        terms = read_terms(record.value)
        check_terms(terms, limits=keys, allowed=keys)
        check_kept(terms)
    except TermsError as error:
        # What was read as its value need not be what can be written.
        about = replace(record, value=None)
        return RecordFault(kind=FaultKind.VALUE, key=encode(about)[0].decode(), message=str(error), about=about)
    return terms


def _settings(
    entity: Entity, before: StoredRule | None, after: StoredRule | None, *, has_left_terms: bool = False
) -> Iterator[Setting]:
    """Yield what makes one rule of an entity the other, key by key."""
    old, new = ({} if rule is None else rule.limits for rule in (before, after))
    keys = sorted(old.keys() | new.keys())
    values: dict[str, object] = {key: new.get(key) for key in keys if old.get(key) != new.get(key)}
    old_terms, new_terms = (NO_TERMS if rule is None else rule.terms for rule in (before, after))
    # Written where they do not differ, they would undo those of another who begins the same rule in this instant: what
    # he set to be observed would be enforced.
    if old_terms != new_terms or has_left_terms:
        values[TERMS] = written_terms(new_terms) or None
    for key, value in values.items():
        yield Setting(user=entity.user, client_id=entity.client_id, ip=entity.ip, key=key, value=value)  # type: ignore[arg-type]


def _entities(number: int) -> str:
    return "1 entity" if number == 1 else f"{number} entities"
