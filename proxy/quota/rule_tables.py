"""Contains the rules of all kinds of quota, which all brokers of a proxy share.

The usage is counted at each broker separately (``quota.broker``), except for how long each rule throttles. After a
change of rules, every broker must apply the change before anything is charged.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import DEFAULT, ProxyConfig, QuotaRule
from kafka_quota_proxy.config.quota_kinds import BUCKET_KINDS, QuotaKind
from kafka_quota_proxy.config.units import UNLIMITED
from kafka_quota_proxy.proxy.quota.address_limits import AddressLimits
from kafka_quota_proxy.proxy.quota.entity import Entity, RuleTable, Tags
from kafka_quota_proxy.proxy.quota.rule_changes import QuotaChanges, RuleChanges
from kafka_quota_proxy.proxy.quota.rule_throttle_times import RuleThrottleTimes

_OF_STATIC_DEFAULTS: Final[Entity] = (None, DEFAULT)


class RuleTableChanges(NamedTuple):
    """Contains what each broker must apply after rules were changed.

    Attributes:
        tables: For each kind of quota that has changed, the result of ``RuleTable.change``.
        has_connections: Whether a limit on open connections has changed.
        addresses: The result of ``AddressLimits.change``.
    """

    tables: Mapping[QuotaKind, Mapping[Tags, bool]]
    has_connections: bool
    addresses: Mapping[str, bool]


class RuleTables:
    """The rules of all kinds of quota, which all brokers of a proxy share."""

    def __init__(self, config: ProxyConfig) -> None:
        self.tables: Final = {kind: RuleTable(kind, rules_of_kind(config, kind)) for kind in BUCKET_KINDS}
        self.throttle_times: Final = {kind: RuleThrottleTimes() for kind in BUCKET_KINDS}
        self.connections: Final = RuleTable(QuotaKind.CONNECTIONS, config.quotas)
        self.addresses: Final = AddressLimits(config.ip_quotas)

    def copy(self) -> "RuleTables":
        """Return tables with the same rules, in which a thread can make changes before they are put in force."""
        copy = RuleTables(ProxyConfig(listeners=()))
        for kind, table in self.tables.items():
            copy.tables[kind] = table.copy()
        copy.connections.swap(self.connections.copy())
        copy.addresses.swap(self.addresses.copy())
        return copy

    def swap(self, other: "RuleTables") -> None:
        """Exchange all rules with those of ``other``. The time that this takes does not depend on their number."""
        for kind, table in self.tables.items():
            table.swap(other.tables[kind])
        self.connections.swap(other.connections)
        self.addresses.swap(other.addresses)

    def change(self, config: ProxyConfig, changes: QuotaChanges) -> RuleTableChanges:
        """Change single rules. Return what each broker must apply.

        The names of entities in ``changes`` must be ``bounded``. Of ``config``, only the static defaults are read.
        """
        tables: dict[QuotaKind, Mapping[Tags, bool]] = {}
        for kind, table in self.tables.items():
            has_default = kind.spec.static_default is not None
            rules = _with_static_default(config, table, kind, changes.rules) if has_default else changes.rules
            named = table.change(rules)
            if named is not None:
                tables[kind] = named
        return RuleTableChanges(
            tables=tables,
            has_connections=self.connections.change(changes.rules) is not None,
            addresses=self.addresses.change(changes.ips),
        )


def rules_of_kind(config: ProxyConfig, kind: QuotaKind) -> tuple[QuotaRule, ...]:
    """Return the rules of ``config`` that set a limit of this kind of quota, including the static default.

    A static default is a limit in the settings of old brokers, such as ``quota.producer.default``. It becomes a rule
    for the default client-id, unless ``config`` already has such a rule with a limit of this kind.
    """
    rules = tuple(rule for rule in config.quotas if kind.limit_of(rule) is not None)
    static = _static_default(config, kind)
    if static is None or any((rule.user, rule.client_id) == _OF_STATIC_DEFAULTS for rule in rules):
        return rules
    return (*rules, static)


def _static_default(config: ProxyConfig, kind: QuotaKind) -> QuotaRule | None:
    """Return the static default of this kind as a rule for the default client-id, or None if there is none."""
    setting = kind.spec.static_default
    if setting is None:
        return None
    default: int = getattr(config.kafka, setting.replace(".", "_"))
    if default >= UNLIMITED:
        return None
    return QuotaRule(client_id=DEFAULT, limits={kind.key: float(default)}, source=setting)


def _with_static_default(config: ProxyConfig, table: RuleTable, kind: QuotaKind, rules: RuleChanges) -> RuleChanges:
    """Return ``rules``, extended by a change that adds or removes the static default's rule if necessary."""
    source = kind.spec.static_default
    if source is None:
        return rules
    is_changed = _OF_STATIC_DEFAULTS in rules
    current = rules[_OF_STATIC_DEFAULTS] if is_changed else table.rule(_OF_STATIC_DEFAULTS)
    if current is not None and kind.limit_of(current) is not None and current.source != source:
        return rules
    static = _static_default(config, kind)
    return {**rules, _OF_STATIC_DEFAULTS: static} if is_changed or current != static else rules
