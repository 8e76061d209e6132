"""The rules of all kinds, kept once for all brokers of a proxy. A broker that is new costs nothing for each rule.

Each broker has buckets of its own (``quota.broker``) and follows the changes of these tables. Between a change and the
moment when every broker has followed it, nothing may be charged.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import DEFAULT, ProxyConfig, QuotaRule
from kafka_quota_proxy.config.quota_kinds import BUCKET_KINDS, QuotaKind
from kafka_quota_proxy.config.units import UNLIMITED
from kafka_quota_proxy.proxy.quota.address_limits import AddressLimits
from kafka_quota_proxy.proxy.quota.entity import Entity, RuleTable, Tags
from kafka_quota_proxy.proxy.quota.rule_changes import QuotaChanges, RuleChanges

_OF_STATIC_DEFAULTS: Final[Entity] = (None, DEFAULT)


class RuleTableChanges(NamedTuple):
    """What a change of rules means to the brokers.

    Attributes:
        tables: For each kind that changed, the buckets that a rule has come to name (True) or names no more (False).
        has_connections: Whether a rule of open connections changed.
        addresses: The same as in ``tables``, for addresses.
    """

    tables: Mapping[QuotaKind, Mapping[Tags, bool]]
    has_connections: bool
    addresses: Mapping[str, bool]


class RuleTables:
    """The rules of all kinds, for every broker."""

    def __init__(self, config: ProxyConfig) -> None:
        self.tables: Final = {kind: RuleTable(kind, rules_of_kind(config, kind)) for kind in BUCKET_KINDS}
        self.connections: Final = RuleTable(QuotaKind.CONNECTIONS, config.quotas)
        self.addresses: Final = AddressLimits(config.ip_quotas)

    def update(self, config: ProxyConfig) -> None:
        """Replace all rules by those of ``config``."""
        for kind, table in self.tables.items():
            table.update(rules_of_kind(config, kind))
        self.connections.update(config.quotas)
        self.addresses.update(config.ip_quotas)

    def change(self, config: ProxyConfig, changes: QuotaChanges) -> RuleTableChanges:
        """Change single rules, at a cost that does not depend on the others.

        Args:
            config: The settings; only the static defaults are read.
            changes: Entities as in ``RuleTable.put``.
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
    """Return the rules of ``kind``. The static default of old brokers is level 8, unless a rule has that level."""
    rules = tuple(rule for rule in config.quotas if kind.limit_of(rule) is not None)
    static = _static_default(config, kind)
    if static is None or any((rule.user, rule.client_id) == _OF_STATIC_DEFAULTS for rule in rules):
        return rules
    return (*rules, static)


def _static_default(config: ProxyConfig, kind: QuotaKind) -> QuotaRule | None:
    """Return the static default as a rule for the default client-id, if the settings have one."""
    setting = kind.spec.static_default
    if setting is None:
        return None
    default: int = getattr(config.kafka, setting.replace(".", "_"))
    if default >= UNLIMITED:
        return None
    return QuotaRule(client_id=DEFAULT, limits={kind.key: float(default)}, source=setting)


def _with_static_default(config: ProxyConfig, table: RuleTable, kind: QuotaKind, rules: RuleChanges) -> RuleChanges:
    """Return ``rules``, and with them the static default if it must be added at level 8 or removed there."""
    source = kind.spec.static_default
    if source is None:
        return rules
    is_changed = _OF_STATIC_DEFAULTS in rules
    current = rules[_OF_STATIC_DEFAULTS] if is_changed else table.rule(_OF_STATIC_DEFAULTS)
    if current is not None and kind.limit_of(current) is not None and current.source != source:
        return rules
    static = _static_default(config, kind)
    return {**rules, _OF_STATIC_DEFAULTS: static} if is_changed or current != static else rules
