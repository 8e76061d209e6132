"""Finds the bucket of a connection's user and client-id, and its limit, by Kafka's eight levels of rules.

Kafka does this in two steps (``ClientQuotaManager.DefaultQuotaCallback``). First, it determines the *tags* of the
connection, which identify its bucket. Tags contain the actual user and client-id, never ``<default>``. Then Kafka looks
up the *limit* for these tags. So a rule for ``<default>`` gives each user or client-id a bucket of its own.

All brokers of a proxy share the rules. The usage is counted at each broker separately (``quota.broker``), except for
how long each rule throttles. After a change of rules, every broker must apply the change before anything is charged.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final, NamedTuple, TypeAlias, cast

from kafka_quota_proxy.config.model import DEFAULT, ProxyConfig, QuotaRule
from kafka_quota_proxy.config.quota_kinds import BUCKET_KINDS, QuotaKind
from kafka_quota_proxy.config.units import UNLIMITED
from kafka_quota_proxy.proxy.quota.address_limits import AddressLimits, IpChanges
from kafka_quota_proxy.proxy.quota.entity import LEVELS, Candidate, Entity, Level, Resolution, Tags
from kafka_quota_proxy.proxy.quota.rule_throttle_times import RuleThrottleTimes

# In changes of rules, None stands for a removed rule.
RuleChanges: TypeAlias = Mapping[Entity, QuotaRule | None]

# The longest name that a table stores, in characters. A client-id may have up to 32,767 bytes (an int16 length).
MAX_NAME_LENGTH: Final = 256
_KEPT_OF_LONG_NAMES: Final = 64

# Bits for the kinds of entity that have a rule (QuotaTypes in Kafka's ClientQuotaManager).
_CLIENT_ID: Final = 1
_USER: Final = 2
_USER_CLIENT_ID: Final = 4

_OF_PAIRS: Final = tuple(level for level in LEVELS if level.user is not None and level.client_id is not None)
_OF_USERS: Final = tuple(level for level in LEVELS if level.client_id is None)
_OF_CLIENTS: Final = tuple(level for level in LEVELS if level.user is None)

_OF_STATIC_DEFAULTS: Final[Entity] = (None, DEFAULT)


class QuotaChanges(NamedTuple):
    """The changed rules of users and client-ids (``rules``), and those of IP addresses (``ips``)."""

    rules: RuleChanges
    ips: IpChanges


class RuleTableChanges(NamedTuple):
    """Contains what each broker must apply after rules were changed.

    Attributes:
        tables: For each kind of quota of which a rule has changed, the user and client-id of each bucket that gained a
            rule of its own (True), or lost it (False).
        has_connections: Whether a limit on open connections has changed.
        addresses: The result of ``AddressLimits.change``.
    """

    tables: Mapping[QuotaKind, Mapping[Tags, bool]]
    has_connections: bool
    addresses: Mapping[str, bool]


NO_CHANGES: Final = RuleTableChanges({}, has_connections=False, addresses={})


def bounded(name: str) -> str:
    """Return ``name``, or its beginning and a digest if it is long, so that no table stores names of 32 KB.

    The names in rules must be bounded in the same way.
    """
    if len(name) <= MAX_NAME_LENGTH:
        return name
    return f"{name[:_KEPT_OF_LONG_NAMES]}...{sha256(name.encode('utf-8', 'backslashreplace')).hexdigest()[:32]}"


def _bounded_entity(entity: Entity) -> Entity:
    user, client_id = entity
    return (
        bounded(user) if isinstance(user, str) else user,
        bounded(client_id) if isinstance(client_id, str) else client_id,
    )


def tags_named(entity: Entity) -> Tags | None:
    """Return the user and client-id of the only bucket to which a rule for this entity applies.

    Return None if the entity contains ``<default>``, because such a rule applies to many buckets.
    """
    user, client_id = entity
    return None if user is DEFAULT or client_id is DEFAULT else Tags(user or "", client_id or "")


def _level_of(entity: Entity) -> tuple[bool | None, bool | None]:
    """Return the fields ``user`` and ``client_id`` of the ``Level`` of an entity's rule."""
    user, client_id = entity
    return None if user is None else user is not DEFAULT, None if client_id is None else client_id is not DEFAULT


class RuleTable:
    """All rules that set a limit of one kind of quota. Finds the rule that applies to a user and client-id."""

    __slots__ = ("_at_level", "_types", "_walked", "by_entity", "kind")

    def __init__(self, kind: QuotaKind, rules: Iterable[QuotaRule]) -> None:
        self.kind = kind
        self.by_entity = {
            _bounded_entity((rule.user, rule.client_id)): rule for rule in rules if self.kind.limit_of(rule) is not None
        }
        self._at_level = Counter(map(_level_of, self.by_entity))  # the number of rules of each level
        self._count_levels()

    def copy(self) -> "RuleTable":
        """Return a table of the same kind with the same rules."""
        copy = RuleTable(self.kind, ())
        copy.by_entity = self.by_entity.copy()
        copy._at_level = Counter(self._at_level)
        copy._count_levels()
        return copy

    def swap(self, other: "RuleTable") -> None:
        """Exchange the rules with those of ``other``. The time that this takes does not depend on their number."""
        self.by_entity, other.by_entity = other.by_entity, self.by_entity
        self._at_level, other._at_level = other._at_level, self._at_level  # noqa: SLF001 - same class
        self._count_levels()
        other._count_levels()  # noqa: SLF001 - same class

    def put(self, entity: Entity, rule: QuotaRule | None) -> Tags | None:
        """Set the rule of an entity, or remove it if ``rule`` is None. The names in ``entity`` must be ``bounded``.

        A rule without a limit of this kind has the same effect as None.

        Return the user and client-id of the bucket that gained a rule of its own, or lost it, if there is one. That is
        a rule for exactly its user and client-id, without ``<default>``.
        """
        was_there = entity in self.by_entity
        has_limit = rule is not None and self.kind.key in rule.limits
        if has_limit:
            self.by_entity[entity] = cast("QuotaRule", rule)
        elif was_there:
            del self.by_entity[entity]
        if has_limit == was_there:
            return None
        level = _level_of(entity)
        self._at_level[level] += 1 if has_limit else -1
        if self._at_level[level] == has_limit:  # the first rule of its level, or the last
            self._count_levels()
        return tags_named(entity)

    def _count_levels(self) -> None:
        # Only kinds of entity that still have rules count. Older brokers count others too, but find the same limits.
        self._types = 0
        for (user, client_id), count in self._at_level.items():
            if count:
                self._types |= _CLIENT_ID if user is None else _USER if client_id is None else _USER_CLIENT_ID
        self._walked = tuple(level for level in LEVELS[:6] if self._at_level[level.user, level.client_id])

    def __len__(self) -> int:
        return len(self.by_entity)

    def rules(self) -> tuple[QuotaRule, ...]:
        """Return all rules of this table."""
        return tuple(self.by_entity.values())

    def names(self, tags: Tags) -> bool:
        """Return whether a rule names exactly the user and client-id in ``tags``, without ``<default>``."""
        return (tags.user or None, tags.client_id or None) in self.by_entity

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
            if level.entity(user, client_id) in self.by_entity:
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
            rule = self.by_entity.get(level.entity(*tags))
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
        rule = self.by_entity.get(level.entity(user, client_id))
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


class RuleTables:
    """The rules of all kinds of quota, which all brokers of a proxy share."""

    def __init__(self, config: ProxyConfig) -> None:
        self.tables: Final = {kind: RuleTable(kind, rules_of_kind(config, kind)) for kind in BUCKET_KINDS}
        self.throttle_times: Final = {kind: RuleThrottleTimes() for kind in BUCKET_KINDS}
        self.connections: Final = RuleTable(QuotaKind.CONNECTIONS, config.quotas)
        self.addresses: Final = AddressLimits(config.ip_quotas)
        self._defaults = _static_defaults(config)

    def copy(self) -> "RuleTables":
        """Return tables with the same rules, in which a thread can make changes before they are put in force."""
        copy = RuleTables(ProxyConfig(listeners=()))
        for kind, table in self.tables.items():
            copy.tables[kind] = table.copy()
        copy.connections.swap(self.connections.copy())
        copy.addresses.swap(self.addresses.copy())
        copy._defaults = self._defaults
        return copy

    def swap(self, other: "RuleTables") -> None:
        """Exchange all rules with those of ``other``. The time that this takes does not depend on their number."""
        for kind, table in self.tables.items():
            table.swap(other.tables[kind])
        self.connections.swap(other.connections)
        self.addresses.swap(other.addresses)
        self._defaults, other._defaults = other._defaults, self._defaults  # noqa: SLF001 - same class

    def change(self, changes: QuotaChanges, config: ProxyConfig | None = None) -> RuleTableChanges:
        """Change single rules. Return what each broker must apply.

        If the settings of brokers may have changed, too, ``config`` has the new ones.
        """
        rules = changes.rules
        if config is not None and (defaults := _static_defaults(config)) != self._defaults:
            rules = {_OF_STATIC_DEFAULTS: self._written_default(), **rules}
            self._defaults = defaults
        tables: dict[QuotaKind, dict[Tags, bool]] = {}
        for given, rule in rules.items():
            entity = _bounded_entity(given)
            defaults = self._defaults if entity == _OF_STATIC_DEFAULTS else {}
            for table in (*self.tables.values(), self.connections):
                kind = table.kind
                new = rule if rule is not None and kind.key in rule.limits else defaults.get(kind)
                if new is not None or entity in table.by_entity:
                    named = tables.setdefault(kind, {})
                    tags = table.put(entity, new)
                    if tags is not None:
                        named[tags] = new is not None
        has_connections = tables.pop(QuotaKind.CONNECTIONS, None) is not None
        return RuleTableChanges(tables, has_connections, self.addresses.change(changes.ips) if changes.ips else {})

    def _written_default(self) -> QuotaRule | None:
        """Return the rule of the default client-id that is no static default."""
        found = (table.by_entity.get(_OF_STATIC_DEFAULTS) for table in (*self.tables.values(), self.connections))
        return next((rule for rule in found if rule is not None and rule not in self._defaults.values()), None)


def rules_of_kind(config: ProxyConfig, kind: QuotaKind) -> tuple[QuotaRule, ...]:
    """Return the rules of ``config`` that set a limit of this kind of quota, including the static default.

    A static default is a limit in the settings of old brokers, such as ``quota.producer.default``. It becomes a rule
    for the default client-id, unless ``config`` already has such a rule with a limit of this kind.
    """
    rules = tuple(rule for rule in config.quotas if kind.limit_of(rule) is not None)
    static = _static_defaults(config).get(kind)
    if static is None or any((rule.user, rule.client_id) == _OF_STATIC_DEFAULTS for rule in rules):
        return rules
    return (*rules, static)


def _static_defaults(config: ProxyConfig) -> dict[QuotaKind, QuotaRule]:
    """Return each static default as a rule for the default client-id, by its kind."""
    found = {}
    for kind in BUCKET_KINDS:
        setting = kind.spec.static_default
        limit = UNLIMITED if setting is None else getattr(config.kafka, setting.replace(".", "_"))
        if setting is not None and limit < UNLIMITED:
            found[kind] = QuotaRule(client_id=DEFAULT, limits={kind.key: float(limit)}, source=setting)
    return found
