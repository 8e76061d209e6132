"""Which rules of a quota topic hold at this proxy: those for all, its own shares while they have a lease, and the file.

No I/O, no clock: records and the time go in, rules that have changed and what is to be said come out.

* An entity that has a rule in the file is the file's alone.
* Settings, which proxies of a fleet have written (``proxy.quota_keeper``), hold where there is no rule. Those of
  addresses are for proxies that have the topic as their store, and so are all of an entity that has terms, for without
  these they say something else: what is only observed would be enforced, what has expired would hold.
* A share stands in the place of the rule of the same entity, quota key by quota key, while the lease holds.
* The lease ends ``lease_ms`` after the last news was *published*. When that was, a proxy cannot know by its clock
  alone, for another's may differ. What is read live was written after the fetch before it had been sent, for that one
  reached the end of the topic: from then on the lease counts, so that news that were long under way count for as much
  less. At the start there is no such fetch, and the record's own timestamp has to do.
* A topic that is read again after a failure replaces the rules when its end is reached, not before.
* A rule whose newer value is not understood stays as it was. A share is then none: the publisher gives others what it
  lowers, so an old share may be too much, where the rule for every proxy never is.

Changes are taken in portions, for a topic may change ten thousand rules at once and clients are not to wait for that.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import DEFAULT, EntityName, QuotaRule
from kafka_quota_proxy.config.quota_record import (
    TERMS,
    FaultKind,
    News,
    QuotaRecord,
    RecordFault,
    Rule,
    Setting,
    Share,
    encode,
)
from kafka_quota_proxy.proxy.client_quotas.topic.record_table import RULE, EntityLimits, RecordTable
from kafka_quota_proxy.proxy.quota.entity import Entity, bounded

# Of rules and of shares. Each takes about 1 kB at most, and a topic may have any number.
MOST_ENTITIES: Final = 200_000
# How many different keys are said to be not understood, or to be the file's; the others are counted.
_MOST_SAID: Final = 100


class TopicRecord(NamedTuple):
    """A record of the topic."""

    offset: int
    timestamp_ms: int  # Unix time
    record: QuotaRecord | RecordFault


class Notice(NamedTuple):
    """Something to be said in the log."""

    is_warning: bool
    text: str


_Shares = dict[Entity, EntityLimits]


class _Contents:
    """The topic, as far as it was read."""

    __slots__ = ("lease_until_ms", "news_heard_ms", "news_offset", "rules", "shares")

    def __init__(self, most: int) -> None:
        self.rules: RecordTable[Entity] = RecordTable(most)
        self.shares: _Shares = {}  # of this proxy
        self.news_offset = -1
        self.news_heard_ms: int | None = None
        self.lease_until_ms: int | None = None


class TopicRules:
    """What a quota topic has, and what of it holds.

    Args:
        proxy: Whose shares count, as the usage log names it.
        topic: What rules give as their source, with the offset behind it.
        file_rules: Those of the operator's file.
        most: How many entities there may be, of rules and of shares.

    Attributes:
        records: How many were read, again after each failure. These are read by metrics as they are.
        not_understood: How many of them were not understood.
        has_lease: Whether shares hold.
        lease_ends: How often they ceased to for want of news.
        in_force: The topic's rules that hold, by entity.
    """

    def __init__(
        self, *, proxy: str, topic: str, file_rules: Iterable[QuotaRule] = (), most: int = MOST_ENTITIES
    ) -> None:
        self.records = self.not_understood = self.lease_ends = 0
        self.has_lease = False
        self.in_force: dict[Entity, QuotaRule] = {}
        self._limits: dict[Entity, Mapping[str, float]] = {}  # of what is in force, to be compared
        self._proxy = proxy
        self._topic = topic
        self._most = most
        self._file = _by_entity(file_rules)
        self._now = _Contents(most)
        self._next: _Contents | None = None  # a second reading, until its end is reached
        self._has_begun = False
        self._touched: dict[Entity, None] = {}  # what is to be looked at for changes, in the order it came
        self._owed: set[Entity] = set()  # whose changes were taken and not put in force
        self._notices: deque[Notice] = deque()
        self._said_faults: set[str] = set()
        self._said_overruled: set[Entity] = set()
        self._is_full = False

    # -- what comes in --

    def begin(self) -> None:
        """Take it that what comes now is the topic from its beginning on."""
        # The first time there is nothing that would have to stay in force meanwhile.
        self._next = _Contents(self._most) if self._has_begun else None
        self._has_begun = True

    def take(self, seen: Iterable[TopicRecord], *, since_ms: int | None, now_ms: int, wall_ms: int) -> None:
        """Take up records in their order.

        Args:
            seen: The records.
            since_ms: A time on the clock of ``now_ms`` before which none of them had been written, but for what was
                read before; None where that is not known.
            now_ms: The time, on a clock that does not step.
            wall_ms: Unix time.
        """
        contents = self._next or self._now
        for one in seen:
            self.records += 1
            record = one.record
            if isinstance(record, RecordFault):
                self._not_understood(one.offset, record, contents)
            elif isinstance(record, News):
                self._hear(record, one, contents, since_ms=since_ms, now_ms=now_ms, wall_ms=wall_ms)
            elif isinstance(record, Share):
                if record.proxy == self._proxy:
                    self._put_share(contents.shares, record, one.offset)
            else:
                if _is_for_stores(record):
                    self._not_understood(one.offset, _for_stores(record), contents)
                if record.ip is None:
                    self._put(contents.rules, record, one.offset)
        self.advance(now_ms=now_ms)

    def end_reached(self, *, now_ms: int) -> None:
        """Take it that all that was in the topic has been taken."""
        if self._next is not None:
            before, self._now, self._next = self._now, self._next, None
            self._is_full = False
            self._now.rules.forget_deletions()
            for table in (before.rules, self._now.rules, before.shares, self._now.shares):
                # Which of them differ is found out in portions: here it would take 10 ms for 10,000.
                self._touched.update(dict.fromkeys(table))
        self.advance(now_ms=now_ms)

    def follow_file(self, rules: Iterable[QuotaRule]) -> None:
        """Take the file's rules from now on."""
        before, self._file = self._file, _by_entity(rules)
        self._touched.update(dict.fromkeys(before.keys() ^ self._file.keys()))
        self._said_overruled &= self._file.keys()

    def advance(self, *, now_ms: int) -> None:
        """Let the lease begin or end."""
        until_ms = self._now.lease_until_ms
        has_lease = until_ms is not None and now_ms < until_ms
        if has_lease == self.has_lease:
            return
        self.has_lease = has_lease
        self._touched.update(dict.fromkeys(self._now.shares))
        count = _count(len(self._now.shares), "share")
        if has_lease:
            self._say(f"there is news: {count} of this proxy hold", is_warning=False)
        else:
            self.lease_ends += 1
            self._say(f"no news for the time of the lease: {count} of this proxy hold no longer, the rules for all do")

    # -- what comes out --

    @property
    def next_ms(self) -> int | None:
        """When to ``advance`` if nothing comes; None: never."""
        return self._now.lease_until_ms if self.has_lease else None

    @property
    def is_unsettled(self) -> bool:
        """Whether there may be changes to take."""
        return bool(self._touched)

    @property
    def rules(self) -> int:
        """How many entities have a rule for every proxy."""
        return len(self._now.rules)

    @property
    def shares(self) -> int:
        """How many entities have a share of this proxy, with a lease or without."""
        return len(self._now.shares)

    @property
    def news_heard_ms(self) -> int | None:
        """When the last news had come, on the clock of ``now_ms``; None before the first."""
        return self._now.news_heard_ms

    def changes(self, most: int | None = None) -> dict[Entity, QuotaRule | None]:
        """Return rules that have come or changed, and None for those that went; so many entities are looked at.

        ``in_force`` has them from then on. What is the file's is not among them.
        """
        found: dict[Entity, QuotaRule | None] = {}
        # Listed at once: to find the first of a dict takes the longer the more was deleted in front of it.
        for entity in list(islice(self._touched, most)):
            del self._touched[entity]
            is_owed = entity in self._owed
            self._owed.discard(entity)
            held = self._held(entity)
            if held is None:
                self._limits.pop(entity, None)
                was_in_force = self.in_force.pop(entity, None) is not None
                if (was_in_force or is_owed) and entity not in self._file:
                    found[entity] = None
            elif is_owed or held.limits != self._limits.get(entity):
                self._limits[entity] = held.limits
                self.in_force[entity] = found[entity] = self._rule(entity, held)
        return found

    def take_back(self, entities: Iterable[Entity]) -> None:
        """Take it that changes of these, which ``changes`` has returned, are not in force: it returns them again."""
        for entity in entities:
            self._touched[entity] = None
            self._owed.add(entity)

    def notices(self) -> Iterator[Notice]:
        """Return what is to be said, each once."""
        while self._notices:
            yield self._notices.popleft()

    # -- within --

    def _rule(self, entity: Entity, held: EntityLimits) -> QuotaRule:
        user, client_id = entity
        source = f"kafka://{self._topic}@{held.offset}"
        return QuotaRule(user=user, client_id=client_id, limits=held.limits, source=source)

    def _held(self, entity: Entity) -> EntityLimits | None:
        """Return what the topic says of an entity here and now; None where that is nothing, or it is the file's."""
        rule = self._now.rules.limits(entity)
        if rule is not None and rule.terms is not None:
            rule = None
        share = self._now.shares.get(entity)
        overruling = self._file.get(entity)
        if overruling is not None:
            if rule is not None or share is not None:
                self._tell_of_overruled(entity, overruling)
            return None
        if share is not None and not self.has_lease:
            share = None
        if rule is None or share is None:
            return share or rule
        return EntityLimits({**rule.limits, **share.limits}, share.offset)

    def _put(self, table: RecordTable[Entity], record: Rule | Setting, offset: int) -> None:
        entity, key = _slot(record)
        value = record.value if isinstance(record, Setting) else record.limits
        if self._next is None:
            self._touched[entity] = None
        elif not value:
            table.remember_deletion(self._now.rules, entity, key)
        if not table.put(entity, key, value, offset):
            self._pass_over(offset)

    def _put_share(self, shares: _Shares, record: Share, offset: int) -> None:
        entity = _entity(record.user, record.client_id)
        if self._next is None:
            self._touched[entity] = None
        if not record.limits:
            shares.pop(entity, None)
        elif entity not in shares and len(shares) >= self._most:
            self._pass_over(offset)
        else:
            shares[entity] = EntityLimits(record.limits, offset)

    def _pass_over(self, offset: int) -> None:
        self.not_understood += 1
        if not self._is_full:
            self._is_full = True
            self._say(f"has more than {self._most} entities: those above it are passed over, from offset {offset} on")

    def _hear(
        self, news: News, one: TopicRecord, contents: _Contents, *, since_ms: int | None, now_ms: int, wall_ms: int
    ) -> None:
        if since_ms is None:
            since_ms = now_ms - max(0, wall_ms - one.timestamp_ms)
        elif one.offset <= self._now.news_offset:
            # Read once more, and as old as it was.
            contents.news_offset, contents.news_heard_ms = self._now.news_offset, self._now.news_heard_ms
            contents.lease_until_ms = self._now.lease_until_ms
            return
        contents.news_offset = one.offset
        contents.news_heard_ms = since_ms
        contents.lease_until_ms = since_ms + news.lease_ms

    def _not_understood(self, offset: int, fault: RecordFault, contents: _Contents) -> None:
        self.not_understood += 1
        about = fault.about
        if isinstance(about, Share) and about.proxy == self._proxy:
            self._put_share(
                contents.shares, Share(proxy=about.proxy, user=about.user, client_id=about.client_id), offset
            )
        elif isinstance(about, Rule | Setting) and about.ip is None:
            entity, key = _slot(about)
            if self._next is not None:
                self._next.rules.carry_over(self._now.rules, entity, key)
            if key == TERMS:
                contents.rules.hold_back(entity, offset)
                self._touched[entity] = None
        if fault.key in self._said_faults or len(self._said_faults) >= _MOST_SAID:
            return
        self._said_faults.add(fault.key)
        more = "; others are only counted from now on" if len(self._said_faults) == _MOST_SAID else ""
        self._say(f"offset {offset} was not understood: {fault}{more}")

    def _tell_of_overruled(self, entity: Entity, rule: QuotaRule) -> None:
        if entity not in self._said_overruled and len(self._said_overruled) < _MOST_SAID:
            self._said_overruled.add(entity)
            more = "; others are not said from now on" if len(self._said_overruled) == _MOST_SAID else ""
            text = (
                f"has a limit for {_words(entity)}, whose rule is in {rule.source}: the file's holds, remove one{more}"
            )
            self._say(text)

    def _say(self, text: str, *, is_warning: bool = True) -> None:
        self._notices.append(Notice(is_warning, text))


def _entity(user: EntityName, client_id: EntityName) -> Entity:
    """Return what a table of rules knows the entity by."""
    return (
        bounded(user) if isinstance(user, str) else user,
        bounded(client_id) if isinstance(client_id, str) else client_id,
    )


def _slot(record: Rule | Setting) -> tuple[Entity, str]:
    return _entity(record.user, record.client_id), record.key if isinstance(record, Setting) else RULE


def _is_for_stores(record: Rule | Setting) -> bool:
    if isinstance(record, Rule):
        return record.ip is not None and bool(record.limits)
    # What is deleted is gone here, too.
    return record.value is not None and (record.ip is not None or record.key == TERMS)


def _for_stores(record: Rule | Setting) -> RecordFault:
    where = "hold where the topic is the proxy's store"
    message = (
        f"terms {where}; here none of the limits that were set for this entity do"
        if record.ip is None
        else f"limits of addresses {where}"
    )
    # What was read as its value need not be what can be written.
    about = replace(record, value=None) if isinstance(record, Setting) else record
    return RecordFault(kind=FaultKind.KEY, key=encode(about)[0].decode(), message=message)


def _by_entity(rules: Iterable[QuotaRule]) -> dict[Entity, QuotaRule]:
    return {_entity(rule.user, rule.client_id): rule for rule in rules}


def _words(entity: Entity) -> str:
    names = zip(("user", "client-id"), entity, strict=True)
    return ", ".join(f"{key} {name if name is DEFAULT else repr(name)}" for key, name in names if name is not None)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
