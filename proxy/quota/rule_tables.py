"""Contains the rules of all kinds of quota, which all brokers of a proxy share.

The usage is counted at each broker separately (``quota.broker``). After a change of rules, every broker must apply the
change before anything is charged.
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
    """Says which limits have changed. It is passed to each broker, which must apply the changes.

    A rule is an entity's own if it names exactly this user, client-id or address, without ``<default>``.

    Attributes:
        tables: For each kind of quota with changed rules, the users and client-ids that gained a rule of their own
            (True) or lost it (False).
        has_connections: Whether a limit on open connections has changed.
        addresses: The IP addresses that gained a limit of their own (True) or lost it (False).
    """

    tables: Mapping[QuotaKind, Mapping[Tags, bool]]
    has_connections: bool
    addresses: Mapping[str, bool]


class RuleTables:
    """The rules of all kinds of quota, which all brokers of a proxy share."""

    def __init__(self, config: ProxyConfig) -> None:
        self.tables: Final = {kind: RuleTable(kind, rules_of_kind(config, kind)) for kind in BUCKET_KINDS}
        self.connections: Final = RuleTable(QuotaKind.CONNECTIONS, config.quotas)
        self.addresses: Final = AddressLimits(config.ip_quotas)

    def update(self, config: ProxyConfig) -> None:
        """Replace all rules by the rules of ``config``."""
        for kind, table in self.tables.items():
            table.update(rules_of_kind(config, kind))
        self.connections.update(config.quotas)
        self.addresses.update(config.ip_quotas)

    def change(self, config: ProxyConfig, changes: QuotaChanges) -> RuleTableChanges:
        """Change single rules. Return the changes that each broker must apply.

        The users and client-ids in ``changes`` must have been passed through ``entity.bounded``, which shortens long
        names. Of ``config``, only static defaults are read, such as ``quota.producer.default``.
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
    """Return the static default of this kind of quota as a rule for the default client-id, or None if there is none.

    A static default is a limit in the settings of old brokers, such as ``quota.producer.default``.
    """
    setting = kind.spec.static_default
    if setting is None:
        return None
    default: int = getattr(config.kafka, setting.replace(".", "_"))
    if default >= UNLIMITED:
        return None
    return QuotaRule(client_id=DEFAULT, limits={kind.key: float(default)}, source=setting)


def _with_static_default(config: ProxyConfig, table: RuleTable, kind: QuotaKind, rules: RuleChanges) -> RuleChanges:
    """Return the changed rules ``rules``, with the static default's rule added or removed if necessary.

    A static default is a limit in the settings of old brokers, such as ``quota.producer.default``. It applies as a rule
    for the default client-id while no other rule for the default client-id sets this kind of limit.
    """
    source = kind.spec.static_default
    if source is None:
        return rules
    is_changed = _OF_STATIC_DEFAULTS in rules
    current = rules[_OF_STATIC_DEFAULTS] if is_changed else table.rule(_OF_STATIC_DEFAULTS)
    if current is not None and kind.limit_of(current) is not None and current.source != source:
        return rules
    static = _static_default(config, kind)
    return {**rules, _OF_STATIC_DEFAULTS: static} if is_changed or current != static else rules
