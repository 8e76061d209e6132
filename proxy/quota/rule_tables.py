"""The rules that hold at every broker of a proxy, kept once: a broker that is first seen costs none of them anything.

Who counts (``proxy.quota.broker``) keeps buckets of his own, and is told what has changed under them. Rules that are
changed are in force when all who count have followed, so nobody is to be charged in between.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import DEFAULT, ProxyConfig, QuotaRule
from kafka_quota_proxy.config.quota_kinds import BUCKET_KINDS, QuotaKind
from kafka_quota_proxy.config.units import UNLIMITED
from kafka_quota_proxy.proxy.quota.address_limits import AddressLimits
from kafka_quota_proxy.proxy.quota.entity import Entity, RuleTable, Tags
from kafka_quota_proxy.proxy.quota.rule_changes import Changes, RuleChanges

_OF_STATIC_DEFAULTS: Final[Entity] = (None, DEFAULT)


class RuleTableChanges(NamedTuple):
    """What a change of rules is to those who count.

    Attributes:
        tables: Of each kind that has changed, the buckets that a rule names now (True), or no longer (False).
        has_connections: Whether a rule of open connections has changed.
        addresses: As ``tables``, of addresses.
    """

    tables: Mapping[QuotaKind, Mapping[Tags, bool]]
    has_connections: bool
    addresses: Mapping[str, bool]


class RuleTables:
    """The rules of all kinds. Nothing here knows a broker."""

    def __init__(self, config: ProxyConfig) -> None:
        self.tables: Final = {kind: RuleTable(kind, rules_of_kind(config, kind)) for kind in BUCKET_KINDS}
        self.connections: Final = RuleTable(QuotaKind.CONNECTIONS, config.quotas)
        self.addresses: Final = AddressLimits(config.ip_quotas)

    def update(self, config: ProxyConfig) -> None:
        """Put the rules of ``config`` in the place of those in force."""
        for kind, table in self.tables.items():
            table.update(rules_of_kind(config, kind))
        self.connections.update(config.quotas)
        self.addresses.update(config.ip_quotas)

    def change(self, config: ProxyConfig, changes: Changes) -> RuleTableChanges:
        """Put single rules in force, or, with None, none; return what those who count are to follow.

        Costs what they are, however many others there are. Of ``config`` the static defaults count. Entities as for
        ``RuleTable.put``.
        """
        tables: dict[QuotaKind, Mapping[Tags, bool]] = {}
        for kind, table in self.tables.items():
            named = table.change(_with_static_default(config, table, kind, changes.rules))
            if named is not None:
                tables[kind] = named
        return RuleTableChanges(
            tables=tables,
            has_connections=self.connections.change(changes.rules) is not None,
            addresses=self.addresses.change(changes.ips),
        )


def rules_of_kind(config: ProxyConfig, kind: QuotaKind) -> tuple[QuotaRule, ...]:
    """Return the rules of ``kind``, with the static default of old brokers as level 8 where no rule stands there."""
    rules = tuple(rule for rule in config.quotas if kind.limit_of(rule) is not None)
    static = _static_default(config, kind)
    if static is None or any((rule.user, rule.client_id) == _OF_STATIC_DEFAULTS for rule in rules):
        return rules
    return (*rules, static)


def _static_default(config: ProxyConfig, kind: QuotaKind) -> QuotaRule | None:
    """Return the rule of a kind that holds where none stands for the default client-id."""
    setting = kind.spec.static_default
    if setting is None:
        return None
    default: int = getattr(config.kafka, setting.replace(".", "_"))
    if default >= UNLIMITED:
        return None
    return QuotaRule(client_id=DEFAULT, limits={kind.key: float(default)}, source=setting)


def _with_static_default(config: ProxyConfig, table: RuleTable, kind: QuotaKind, rules: RuleChanges) -> RuleChanges:
    """Return ``rules`` with the static default as level 8 where by now it has to stand there, or no longer."""
    source = kind.spec.static_default
    if source is None:
        return rules
    is_changed = _OF_STATIC_DEFAULTS in rules
    standing = rules[_OF_STATIC_DEFAULTS] if is_changed else table.rule(_OF_STATIC_DEFAULTS)
    if standing is not None and kind.limit_of(standing) is not None and standing.source != source:
        return rules
    static = _static_default(config, kind)
    return {**rules, _OF_STATIC_DEFAULTS: static} if is_changed or standing != static else rules
