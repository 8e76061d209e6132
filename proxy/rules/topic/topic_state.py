"""Works out the rules from the records of a quota topic, and the records to write for a change of rules. No I/O.

The topic is the store of several proxies, or a program of the operator writes it (``quotas_from``). A record has the
value of one quota key of an entity (``config.quota_record.Setting``), so two proxies may change different keys of an
entity at the same time.

If the latest value of a key is not understood, the key keeps its old value. The terms of an entity (``config.terms``)
restrict its limits, for example by an expiry. If the terms of an entity have never been understood, its settings do not
apply and cannot be changed.

After a failure the topic is read again from its start. The known rules stay in force until the end is reached.
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
    RecordFault,
    Setting,
    encode,
)
from kafka_quota_proxy.config.terms import NO_TERMS, Terms, check_terms, read_terms, written_terms
from kafka_quota_proxy.proxy.rules.model import Change, Entity, StoredRule, keys_of
from kafka_quota_proxy.proxy.rules.topic.record_table import (
    UNKNOWN_TERMS,
    EntityLimits,
    RecordTable,
    TopicRecord,
)

# The highest number of entities with rules. Each takes about 1 kB at most. It is higher than
# ``proxy.rules.alter.MAX_RULES``, because two proxies may both set the last rule at once.
MOST_ENTITIES: Final = 210_000
# How many offsets of records that were not understood are remembered. The proxy that wrote a record checks its offset
# soon after.
_MOST_FAULTS: Final = 10_000
# The highest number of different faults that the log names.
_MOST_NAMED: Final = 100
_NONE_HOLD: Final = "; none of the limits that were set for this entity apply"


class TopicChange(NamedTuple):
    """The change of an entity's rule, and the offset of the record in the topic that caused the change."""

    change: Change
    offset: int


class TopicState:
    """Works out the rules of a topic from its records, for at most ``most`` entities.

    The caller passes the records to ``take``, and gets the rules that they change from ``changes``.

    Args:
        name: The beginning of the place of each rule, before ``@OFFSET``.

    Attributes:
        records: The number of records that were read, for metrics. A record that is read again counts again.
        not_understood: The number of records that were not understood, for metrics.
        next_offset: The offset after the last record that was taken. It does not go back while the topic is read again.
        in_force: The rules of the topic, as ``changes`` has returned them so far.
        places: The entities whose rules cannot be changed through the proxy, because their terms are not understood,
            and the place of each rule.
        notices: Messages for the log, which the caller removes.
    """

    def __init__(self, *, name: str, most: int = MOST_ENTITIES) -> None:
        self.records = self.not_understood = self.next_offset = 0
        self.in_force: dict[Entity, StoredRule] = {}
        self.places: dict[Entity, str] = {}
        self._name = name
        self._most = most
        self._now = RecordTable(self._most)
        self._next: RecordTable | None = None  # set while the topic is read again from its start
        self._has_begun = False
        # The entities that ``changes`` has to look at, and the offsets of the records that changed them.
        self._touched: dict[Entity, int | None] = {}
        self.notices: deque[str] = deque()
        self._named_faults: set[str] = set()
        self._faults: deque[int] = deque(maxlen=_MOST_FAULTS)  # the offsets of records that were not understood
        self._is_full = False

    # -- input --

    def begin(self) -> None:
        """Prepare to take all records of the topic, beginning with the first."""
        # The first time there may be no earlier rules that have to stay in force until the end is reached.
        self._next = RecordTable(self._most) if self._has_begun else None
        self._has_begun = True
        self._faults.clear()

    def take(self, records: Iterable[TopicRecord], *, next_offset: int) -> None:
        """Process records of the topic, in their order. ``next_offset`` is the offset after the last of them."""
        for one in records:
            self.records += 1
            terms = _terms(one.record)
            record = terms if isinstance(terms, RecordFault) else one.record
            if isinstance(record, RecordFault):
                self._not_understood(one.offset, record)
            else:
                self._put(record, one.offset, terms)
        if self._next is None:
            self.next_offset = next_offset

    def end_reached(self, *, next_offset: int) -> None:
        """Tell that the topic has been read to its end. ``next_offset`` is the topic's end offset.

        If the topic was read from its start, the rules that were found now replace the rules that applied until now.
        """
        if self._next is None:
            return
        if next_offset < self.next_offset:
            self.notices.append(
                f"was created again: it ends at offset {next_offset}, and was read up to {self.next_offset} before"
            )
        if not self._next and self._now:
            known = f"{len(self._now)} {'entity' if len(self._now) == 1 else 'entities'}"
            self.notices.append(f"has no quotas any more; the known quotas of {known} are removed")
        before, self._now, self._next = self._now, self._next, None
        self._is_full = False
        self._now.forget_deletions()
        self._touched.update(dict.fromkeys(before))
        self._touched.update(dict.fromkeys(self._now))
        self.next_offset = next_offset

    # -- output --

    @property
    def entities(self) -> int:
        """The number of entities for which the topic sets quotas or terms (such as an expiry)."""
        return len(self._now)

    @property
    def is_read_again(self) -> bool:
        """Whether the topic is being read from its start.

        Until its end is reached, the rules that were known before continue to apply.
        """
        return self._next is not None

    @property
    def is_unsettled(self) -> bool:
        """Whether there are entities whose rule may have changed, so that ``changes`` must be called again."""
        return bool(self._touched)

    def changes(self, most: int | None = None) -> list[TopicChange]:
        """Return rules that have changed, for at most ``most`` entities per call, or for all if ``most`` is None."""
        found = []
        # The entities are listed before any is removed, because finding the first key of a dict takes longer the more
        # keys were removed before it.
        for entity in list(islice(self._touched, most)):
            offset = self._touched.pop(entity)
            limits = self._now.limits(entity)
            rule = self._rule(entity, limits)
            if rule == self.in_force.get(entity):
                continue
            if rule is None:
                self.in_force.pop(entity, None)
            else:
                self.in_force[entity] = rule
            if offset is None:
                offset = self.next_offset - 1 if limits is None else limits.offset
            found.append(TopicChange(Change(entity, rule), offset))
        return found

    def has(self, count: int, *, offset: int) -> bool:
        """Return whether the ``count`` records that begin at ``offset`` were all understood.

        The records must have been passed to ``take`` shortly before.
        """
        return not any(offset <= fault < offset + count for fault in self._faults)

    def left_terms(self, entities: Iterable[Entity]) -> Set[Entity]:
        """Return those of ``entities`` that have terms in the topic, such as an expiry, but no limits.

        This happens if one proxy changes the terms of a rule while another proxy removes the limits of the rule. The
        terms must be removed, because they would apply to a limit that is set later.
        """
        return {entity for entity in entities if self._now.has_only(entity, TERMS)}

    # -- within --

    def _rule(self, entity: Entity, limits: EntityLimits | None) -> StoredRule | None:
        self.places.pop(entity, None)
        if limits is None:
            return None
        if limits.terms is UNKNOWN_TERMS:
            self.places[entity] = f"{self._name}@{limits.offset}"
            return None
        return StoredRule(limits=limits.limits, terms=limits.terms if isinstance(limits.terms, Terms) else NO_TERMS)

    def _put(self, record: Setting, offset: int, terms: object) -> None:
        entity, key, value = _entity(record), record.key, record.value if terms is None else terms
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
                text = f"has more than {self._most} entities: further ones are ignored, from offset {offset} on"
                self.notices.append(text)

    def _not_understood(self, offset: int, fault: RecordFault) -> None:
        self.not_understood += 1
        self._faults.append(offset)
        text = f"offset {offset} was not understood: {fault}"
        if fault.about is not None:
            entity, key = _entity(fault.about), fault.about.key
            table = self._now if self._next is None else self._next
            if self._next is not None:
                self._next.carry_over(self._now, entity, key)
            if key == TERMS and table.mark_unknown_terms(entity, offset):
                text += _NONE_HOLD
                if self._next is None:
                    self._touched[entity] = offset
        if fault.key not in self._named_faults and len(self._named_faults) < _MOST_NAMED:
            self._named_faults.add(fault.key)
            is_last = len(self._named_faults) == _MOST_NAMED
            self.notices.append(f"{text}; others are only counted from now on" if is_last else text)


def settings_of(
    changes: Iterable[Change], before: Mapping[Entity, StoredRule], left: Collection[Entity] = ()
) -> tuple[Setting, ...]:
    """Return the records to write for ``changes``, one for each key whose value differs from the rule in ``before``.

    ``before`` contains the rules from which the changes were computed. The rules in force now may contain newer changes
    of other proxies, which must not be undone. ``left`` contains the entities that ``TopicState.left_terms``
    returned. The terms of these entities are always written.
    """
    return tuple(
        setting
        for entity, rule in changes
        for setting in _settings(entity, before.get(entity), rule, has_left_terms=entity in left)
    )


def _entity(record: Setting) -> Entity:
    return Entity(record.user, record.client_id, record.ip)


def _terms(record: Setting | RecordFault) -> Terms | RecordFault | None:
    """Return the terms that a record sets, None if it sets none, or a fault if the terms are not valid."""
    if not isinstance(record, Setting) or record.key != TERMS or record.value is None:
        return None
    keys = keys_of(_entity(record))
    try:
        terms = read_terms(record.value)
        check_terms(terms, limits=keys, allowed=keys)
    except TermsError as error:
        about = replace(record, value=None)
        # The key is shown without its value, because that may be one that ``encode`` refuses.
        return RecordFault(kind=FaultKind.VALUE, key=encode(about)[0].decode(), message=str(error), about=about)
    return terms


def _settings(
    entity: Entity, before: StoredRule | None, after: StoredRule | None, *, has_left_terms: bool = False
) -> Iterator[Setting]:
    """Yield the records that turn ``before`` into ``after``. If ``has_left_terms`` is true, always write the terms."""
    old, new = ({} if rule is None else rule.limits for rule in (before, after))
    keys = sorted(old.keys() | new.keys())
    values: dict[str, object] = {key: new.get(key) for key in keys if old.get(key) != new.get(key)}
    old_terms, new_terms = (NO_TERMS if rule is None else rule.terms for rule in (before, after))
    # Unchanged terms are not written. Another proxy may set the same rule at the same time with terms, such as to
    # observe only. Empty terms from this proxy would remove those, and the quota would be enforced.
    if old_terms != new_terms or has_left_terms:
        values[TERMS] = written_terms(new_terms) or None
    for key, value in values.items():
        yield Setting(user=entity.user, client_id=entity.client_id, ip=entity.ip, key=key, value=value)  # type: ignore[arg-type]
