"""Works out which rules of a quota topic are in force at this proxy. No I/O, no clock.

* A rule of the configuration file hides the topic's rule of the same entity.
* A setting is the value of one quota key, written by another proxy. It applies only if its entity has no rule in the
  topic.
* Settings of IP addresses, and of entities with terms, are ignored here. They apply only at proxies that have the topic
  as their store.
* A share is the part of an entity's quota that the publisher gives to this proxy. During a lease, the limits of the
  share replace those of the entity's rule that have the same quota keys.
* A news record renews the lease for ``lease_ms``. The publisher's clock may be wrong, so the lease is counted from the
  time at which the proxy sent the previous fetch. That fetch did not return the record yet, so the lease ends a little
  early and never late. Before the first such fetch, the record's timestamp is used.
* After a failure the topic is read again from its start. The new rules replace the old ones when the end is reached.
* If the latest value of a rule is not understood, the rule keeps its old value. A share is dropped in that case,
  because the publisher may have given it to other proxies.

Changes are returned in portions. A topic may change ten thousand rules at once, and clients must not wait for that.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Final

from kafka_quota_proxy.config.model import DEFAULT, EntityName, QuotaRule
from kafka_quota_proxy.config.quota_record import (
    TERMS,
    FaultKind,
    News,
    RecordFault,
    Rule,
    Setting,
    Share,
    encode,
)
from kafka_quota_proxy.proxy.client_quotas.topic.record_table import (
    RULE,
    EntityLimits,
    Notices,
    RecordTable,
    TopicRecord,
)
from kafka_quota_proxy.proxy.quota.entity import Entity, bounded

# The highest number of entities with rules, and of entities with shares. Each entity takes about 1 kB at most.
MOST_ENTITIES: Final = 200_000

_Shares = dict[Entity, EntityLimits]


class _Contents:
    """What has been read from a quota topic so far: the rules, this proxy's shares, and the last news record."""

    __slots__ = ("lease_until_ms", "news_heard_ms", "news_offset", "rules", "shares")

    def __init__(self, most: int) -> None:
        self.rules: RecordTable[Entity] = RecordTable(most)
        self.shares: _Shares = {}  # only those of this proxy
        self.news_offset = -1
        self.news_heard_ms: int | None = None
        self.lease_until_ms: int | None = None


class TopicRules:
    """Works out which quota rules of a topic this proxy applies, and which of them have changed.

    The caller passes the records of the topic to ``take``, and then calls ``changes``, which returns the changed rules.

    Args:
        proxy: The name of this proxy. A record that gives a proxy a share of a quota contains the proxy's name.
        topic: The name of the topic.
        file_rules: The rules of the configuration file, which take precedence over those of the topic.
        most: The highest number of entities with rules, and of entities with shares. Others are ignored.

    Attributes:
        records: How many records were read, for metrics. A record that is read again counts again.
        not_understood: How many records were not understood or were ignored, for metrics.
        has_lease: Whether this proxy applies the shares of quotas that the topic gives it.
        lease_ends: How often these shares expired because no news record of the topic renewed them.
        in_force: The rules of the topic that this proxy applies, by entity.
        notices: Messages for the log.
    """

    def __init__(
        self, *, proxy: str, topic: str, file_rules: Iterable[QuotaRule] = (), most: int = MOST_ENTITIES
    ) -> None:
        self.records = self.not_understood = self.lease_ends = 0
        self.has_lease = False
        self.in_force: dict[Entity, QuotaRule] = {}
        self.notices = Notices()
        self._limits: dict[Entity, Mapping[str, float]] = {}  # the limits of ``in_force``, to find changes
        self._proxy = proxy
        self._topic = topic
        self._most = most
        self._file = _by_entity(file_rules)
        self._now = _Contents(most)
        self._next: _Contents | None = None  # set while the topic is read again from its start
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
        self._next = _Contents(self._most) if self._has_begun else None
        self._has_begun = True

    def take(self, records: Iterable[TopicRecord], *, since_ms: int | None, now_ms: int, wall_ms: int) -> None:
        """Take the next records of the topic, in their order.

        ``since_ms`` is the time at which the last fetch that reached the end of the topic was sent, or None if there
        was none. Records that are new to this proxy were written after that time. Both ``since_ms`` and ``now_ms`` are
        times of one monotonic clock. ``wall_ms`` is the Unix time in milliseconds.
        """
        contents = self._next or self._now
        for one in records:
            self.records += 1
            record = one.record
            if isinstance(record, RecordFault):
                self._not_understood(one.offset, record, contents)
            elif isinstance(record, News):
                self._put_news(record, one, contents, since_ms=since_ms, now_ms=now_ms, wall_ms=wall_ms)
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
        """Tell that the topic has been read to its end.

        If the topic was read again after a failure, the rules that were found now replace the previous rules.
        """
        if self._next is not None:
            before, self._now, self._next = self._now, self._next, None
            self._is_full = False
            self._now.rules.forget_deletions()
            for table in (before.rules, self._now.rules, before.shares, self._now.shares):
                # ``changes`` compares the old and new rules in portions, because 10,000 at once take 10 ms.
                self._touched.update(dict.fromkeys(table))
        self.advance(now_ms=now_ms)

    def follow_file(self, rules: Iterable[QuotaRule]) -> None:
        """Replace the rules that came from the configuration file. They hide the topic's rules of these entities."""
        before, self._file = self._file, _by_entity(rules)
        self._touched.update({entity: None for entity in before if entity not in self._file})
        self._touched.update({entity: None for entity in self._file if entity not in before})
        self._named_overruled &= self._file.keys()

    def advance(self, *, now_ms: int) -> None:
        """Start or stop applying the shares of this proxy. They apply if their lease lasts beyond ``now_ms``."""
        until_ms = self._now.lease_until_ms
        has_lease = until_ms is not None and now_ms < until_ms
        if has_lease == self.has_lease:
            return
        self.has_lease = has_lease
        self._touched.update(dict.fromkeys(self._now.shares))
        count = _count(len(self._now.shares), "share")
        if has_lease:
            self.notices.add(f"the topic has news: {count} of this proxy applied", is_warning=False)
        else:
            self.lease_ends += 1
            text = f"no news within the lease: {count} of this proxy ended, and the rules for all proxies apply"
            self.notices.add(text)

    # -- output --

    @property
    def next_ms(self) -> int | None:
        """The monotonic time at which the lease of this proxy's shares of quotas ends. Call ``advance`` then.

        None if no shares apply.
        """
        return self._now.lease_until_ms if self.has_lease else None

    @property
    def is_unsettled(self) -> bool:
        """Whether there are entities whose rule may have changed, so that ``changes`` must be called again."""
        return bool(self._touched)

    @property
    def rules(self) -> int:
        """The number of entities for which the topic contains a whole rule or the values of single quota keys."""
        return len(self._now.rules)

    @property
    def shares(self) -> int:
        """The number of entities for which the topic gives this proxy a share of the quota, in force or not."""
        return len(self._now.shares)

    @property
    def news_heard_ms(self) -> int | None:
        """The monotonic time at which a news record last renewed the shares, or None before the first."""
        return self._now.news_heard_ms

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
        rule = self._now.rules.limits(entity)
        if rule is not None and rule.terms is not None:
            rule = None
        share = self._now.shares.get(entity)
        file_rule = self._file.get(entity)
        if file_rule is not None:
            if rule is not None or share is not None:
                words, source = _words(entity), file_rule.source
                text = f"has a limit for {words}, whose rule is in {source}: the rule of the file applies; remove one"
                self.notices.add_once(self._named_overruled, entity, text, others="not named")
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
            self._skip(offset)

    def _put_share(self, shares: _Shares, record: Share, offset: int) -> None:
        entity = _entity(record.user, record.client_id)
        if self._next is None:
            self._touched[entity] = None
        if not record.limits:
            shares.pop(entity, None)
        elif entity not in shares and len(shares) >= self._most:
            self._skip(offset)
        else:
            shares[entity] = EntityLimits(record.limits, offset)

    def _skip(self, offset: int) -> None:
        self.not_understood += 1
        if not self._is_full:
            self._is_full = True
            text = f"has more than {self._most} entities: further ones are ignored, from offset {offset} on"
            self.notices.add(text)

    def _put_news(
        self, news: News, one: TopicRecord, contents: _Contents, *, since_ms: int | None, now_ms: int, wall_ms: int
    ) -> None:
        if since_ms is None:
            since_ms = now_ms - max(0, wall_ms - one.timestamp_ms)
        elif one.offset <= self._now.news_offset:
            # This record was taken before and is now read again, so its lease is not extended.
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
                contents.rules.mark_unknown_terms(entity, offset)
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


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
