"""Finds the bucket of a connection's user and client-id, and its limit, by Kafka's eight levels of rules.

Kafka does this in two steps (``ClientQuotaManager.DefaultQuotaCallback``). First, it determines the *tags* of the
connection, which identify its bucket. Tags contain the actual user and client-id, never ``<default>``. Then Kafka looks
up the *limit* for these tags. So a rule for ``<default>`` gives each user or client-id a bucket of its own.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import DEFAULT, EntityName, QuotaRule
from kafka_quota_proxy.config.quota_kinds import QuotaKind


class Tags(NamedTuple):
    """The key of a bucket. ``user`` or ``client_id`` is empty if all users or client-ids share the bucket."""

    user: str
    client_id: str


class Level(NamedTuple):
    """One of Kafka's eight levels of rules, by which a more specific rule takes precedence over a more general one.

    It determines which rule is looked up for a client, and which clients share a bucket under this rule.
    """

    number: int
    says: str
    # True for an entity with a named user, False for the default user, None if the entity has no user. The same holds
    # for the client-id.
    user: bool | None
    client_id: bool | None

    def entity(self, user: str, client_id: str) -> tuple[EntityName, EntityName]:
        """Return the user and client-id in the rule that is looked up for a client at this level of precedence.

        Each of the two is the client's own name, ``<default>``, or None if rules of this level do not contain a user or
        a client-id.
        """
        return _name(self.user, user), _name(self.client_id, client_id)

    def tags(self, user: str, client_id: str) -> tuple[str, str]:
        """Return the tags of the bucket that a client with this user and client-id has under a rule of this level."""
        return "" if self.user is None else user, "" if self.client_id is None else client_id


def _name(by_name: bool | None, actual: str) -> EntityName:
    if by_name is None:
        return None
    return actual if by_name else DEFAULT


def _is_by_name(part: EntityName) -> bool | None:
    return None if part is None else part is not DEFAULT


LEVELS: Final = (
    Level(1, "user, client-id", True, True),
    Level(2, "user, default client-id", True, False),
    Level(3, "user", True, None),
    Level(4, "default user, client-id", False, True),
    Level(5, "default user, default client-id", False, False),
    Level(6, "default user", False, None),
    Level(7, "client-id", None, True),
    Level(8, "default client-id", None, False),
)
_OF_PAIRS: Final = tuple(level for level in LEVELS if level.user is not None and level.client_id is not None)
_OF_USERS: Final = tuple(level for level in LEVELS if level.client_id is None)
_OF_CLIENTS: Final = tuple(level for level in LEVELS if level.user is None)

# The longest name that a table stores, in characters. A client-id may have up to 32,767 bytes (an int16 length).
MAX_NAME_LENGTH: Final = 256
_KEPT_OF_LONG_NAMES: Final = 64

# Bits for the kinds of entity that have a rule (QuotaTypes in Kafka's ClientQuotaManager).
_CLIENT_ID: Final = 1
_USER: Final = 2
_USER_CLIENT_ID: Final = 4


Entity = tuple[EntityName, EntityName]  # user and client-id of a rule


def bounded(name: str) -> str:
    """Return ``name``, or its beginning and a digest if it is long, so that no table stores names of 32 KB.

    The names in rules must be bounded in the same way.
    """
    if len(name) <= MAX_NAME_LENGTH:
        return name
    return f"{name[:_KEPT_OF_LONG_NAMES]}...{sha256(name.encode('utf-8', 'backslashreplace')).hexdigest()[:32]}"


def _bounded_entity(name: EntityName) -> EntityName:
    return bounded(name) if isinstance(name, str) else name


def tags_named(entity: Entity) -> Tags | None:
    """Return the user and client-id of the only bucket to which a rule for this entity applies.

    Return None if the entity contains ``<default>``, because such a rule applies to many buckets.
    """
    user, client_id = entity
    return None if user is DEFAULT or client_id is DEFAULT else Tags(user or "", client_id or "")


class Resolution(NamedTuple):
    """The tags of the bucket of a user and client-id, and the rule that applies to this bucket, if there is one."""

    tags: Tags
    rule: QuotaRule | None
    level: Level | None
    limit: float | None  # in the unit of the kind of quota


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The rule that one of Kafka's eight levels of precedence has for a client, and why it does or does not apply."""

    level: Level
    rule: QuotaRule | None  # None if the level has no rule
    wins: bool
    reason: str


class RuleTable:
    """All rules that set a limit of one kind of quota. Finds the rule that applies to a user and client-id."""

    __slots__ = ("_at_level", "_rules", "_types", "_walked", "kind")

    def __init__(self, kind: QuotaKind, rules: Iterable[QuotaRule]) -> None:
        self.kind = kind
        self.update(rules)

    def update(self, rules: Iterable[QuotaRule]) -> None:
        """Replace all rules of this table by those in ``rules`` that set a limit of the table's kind of quota."""
        self._rules = {
            (_bounded_entity(rule.user), _bounded_entity(rule.client_id)): rule
            for rule in rules
            if self.kind.limit_of(rule) is not None
        }
        # The number of rules of each level. The keys are the fields (user, client_id) of ``Level``.
        self._at_level = Counter((_is_by_name(user), _is_by_name(client_id)) for user, client_id in self._rules)
        self._count_levels()

    def copy(self) -> "RuleTable":
        """Return a table of the same kind with the same rules."""
        copy = RuleTable(self.kind, ())
        copy._rules = self._rules.copy()
        copy._at_level = Counter(self._at_level)
        copy._count_levels()
        return copy

    def swap(self, other: "RuleTable") -> None:
        """Exchange the rules with those of ``other``. The time that this takes does not depend on their number."""
        self._rules, other._rules = other._rules, self._rules  # noqa: SLF001 - same class
        self._at_level, other._at_level = other._at_level, self._at_level  # noqa: SLF001 - same class
        self._count_levels()
        other._count_levels()  # noqa: SLF001 - same class

    def change(self, rules: Mapping[Entity, QuotaRule | None]) -> dict[Tags, bool] | None:
        """Add or replace rules, or remove those whose value in ``rules`` is None.

        Return None if no rule of this table has changed. Otherwise, return a dictionary whose keys are the user and
        client-id of each bucket that gained a rule of its own (True) or lost it (False). A bucket's own rule is a rule
        for exactly its user and client-id, without ``<default>``.
        """
        has_changed = False
        named: dict[Tags, bool] = {}
        key = self.kind.key
        for entity, rule in rules.items():
            was_there = entity in self._rules
            if not was_there and (rule is None or key not in rule.limits):
                continue
            has_changed |= self.put(entity, rule)
            tags = tags_named(entity) if (entity in self._rules) != was_there else None
            if tags is not None:
                named[tags] = not was_there
        return named if has_changed else None

    def put(self, entity: Entity, rule: QuotaRule | None) -> bool:
        """Set the rule of an entity, or remove it if ``rule`` is None. Return whether the table has changed.

        A rule without a limit of this kind has the same effect as None. The names in ``entity`` must be ``bounded``.
        """
        if rule is not None and self.kind.limit_of(rule) is None:
            rule = None
        before = self._rules.get(entity)
        if rule is None and before is None:
            return False
        level = (_is_by_name(entity[0]), _is_by_name(entity[1]))
        if rule is None:
            del self._rules[entity]
            self._at_level[level] -= 1
        else:
            self._rules[entity] = rule
            self._at_level[level] += before is None
        if (rule is None) != (before is None):
            self._count_levels()
        return True

    def _count_levels(self) -> None:
        # Only kinds of entity that still have rules count. Older brokers count others too, but find the same limits.
        self._types = 0
        for (user, client_id), count in self._at_level.items():
            if count:
                self._types |= _CLIENT_ID if user is None else _USER if client_id is None else _USER_CLIENT_ID
        self._walked = tuple(level for level in LEVELS[:6] if self._at_level[level.user, level.client_id])

    def __len__(self) -> int:
        return len(self._rules)

    def entities(self) -> Iterator[Entity]:
        """Iterate over the entities of all rules."""
        return iter(self._rules)

    def rules(self) -> tuple[QuotaRule, ...]:
        """Return all rules of this table."""
        return tuple(self._rules.values())

    def rule(self, entity: Entity) -> QuotaRule | None:
        """Return the rule of exactly this entity, or None. The names in ``entity`` must be ``bounded``."""
        return self._rules.get(entity)

    def names(self, tags: Tags) -> bool:
        """Return whether a rule names exactly the user and client-id in ``tags``, without ``<default>``."""
        return (tags.user or None, tags.client_id or None) in self._rules

    def named(self) -> Iterator[Tags]:
        """Yield the user and client-id of each rule that does not contain ``<default>``."""
        for entity in self._rules:
            tags = tags_named(entity)
            if tags is not None:
                yield tags

    def tags(self, *, user: str, client_id: str) -> tuple[str, str]:
        """Return the tags of the bucket of a user and client-id.

        ``user`` is ``ANONYMOUS`` without authentication, and never empty. ``client_id`` may be empty.

        Source: ``DefaultQuotaCallback.quotaMetricTags``.
        """
        types = self._types
        # If all rules are for the same kind of entity, Kafka does not look at them.
        if types == _USER_CLIENT_ID:
            return user, client_id
        if types == _USER:
            return user, ""
        for level in self._walked:
            if level.entity(user, client_id) in self._rules:
                return level.tags(user, client_id)
        return "", client_id

    def resolve(self, *, user: str, client_id: str) -> Resolution:
        """Return the bucket of a user and client-id, and the rule and the limit that apply to the bucket.

        ``user`` is ``ANONYMOUS`` without authentication, and never empty. ``client_id`` may be empty.
        """
        return self.resolve_tags(Tags(*self.tags(user=user, client_id=client_id)))

    def resolve_tags(self, tags: Tags) -> Resolution:
        """Return the rule and the limit that apply to the bucket with these tags.

        Source: ``DefaultQuotaCallback.quotaLimit``.
        """
        for level in self._levels_of(tags):
            rule = self._rules.get(level.entity(*tags))
            if rule is not None:
                return Resolution(tags, rule, level, self.kind.limit_of(rule))
        return Resolution(tags, None, None, None)

    def limit_of_tags(self, *, user: str, client_id: str) -> float | None:
        """Return the limit of the bucket with these tags, or None if it has no limit."""
        return self.resolve_tags(Tags(user, client_id)).limit

    def explain(self, *, user: str, client_id: str) -> tuple[Candidate, ...]:
        """Return the rule at each of Kafka's eight levels for a client, and why it does or does not apply."""
        user, client_id = bounded(user), bounded(client_id)
        winner = self.resolve(user=user, client_id=client_id)
        return tuple(self._candidate(level, winner, user, client_id) for level in LEVELS)

    def _candidate(self, level: Level, winner: Resolution, user: str, client_id: str) -> Candidate:
        rule = self._rules.get(level.entity(user, client_id))
        if rule is None:
            reason = "no rule has this level"
        elif level is winner.level:
            return Candidate(level=level, rule=rule, wins=True, reason="the most specific rule that applies")
        elif winner.level is not None and winner.level.number < level.number:
            reason = f"level {winner.level.number} ({winner.level.says}) is more specific"
        else:
            # There is no other reason, because any other more specific rule would have determined the bucket.
            reason = "the client-id is empty, and Kafka looks up no client-id rule for an empty one"
        return Candidate(level=level, rule=rule, wins=False, reason=reason)

    def _levels_of(self, tags: Tags) -> tuple[Level, ...]:
        """Return the levels that Kafka looks up for these tags (``DefaultQuotaCallback.quotaLimit``)."""
        if tags.user:
            return _OF_PAIRS if tags.client_id else _OF_USERS
        return _OF_CLIENTS if tags.client_id else ()  # Kafka does not limit an empty client-id without a user.
