"""Puts rules in force at a single broker, as a server does at all of its brokers."""

from collections.abc import Iterable

from kafka_quota_proxy.config.model import DEFAULT, IpRule, ProxyConfig, QuotaRule, Shaping
from kafka_quota_proxy.proxy.quota.address_limits import AddressLimits, Ip
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.quota.client_quota_manager import ClientQuotaManager
from kafka_quota_proxy.proxy.quota.connections import ConnectionQuotas
from kafka_quota_proxy.proxy.quota.entity import Entity, Tags
from kafka_quota_proxy.proxy.quota.rule_tables import QuotaChanges, RuleChanges


def update(
    quotas: BrokerQuotas, config: ProxyConfig, *, shaping: Shaping | None = None, changes: QuotaChanges | None = None
) -> None:
    """Put the rules of ``config`` in force. ``changes`` are the rules that differ, if the caller knows them."""
    if changes is None:
        tables = (*quotas.rules.tables.values(), quotas.rules.connections)
        rules: dict[Entity, QuotaRule | None] = {entity: None for table in tables for entity in table.by_entity}
        rules |= {(rule.user, rule.client_id): rule for rule in config.quotas}
        changes = QuotaChanges(rules, _address_changes(quotas.rules.addresses, config))
    quotas.update(config, shaping=shaping, changed=quotas.rules.change(changes, config))


def change(quotas: BrokerQuotas, config: ProxyConfig, rules: RuleChanges) -> None:
    """Put the changes of single rules in force. ``config`` already has these rules."""
    quotas.rules_changed(quotas.rules.change(QuotaChanges(rules, {})))


def replace_all(manager: ClientQuotaManager, rules: Iterable[QuotaRule]) -> None:
    """Put these rules in force in place of all others of one kind of quota."""
    wanted: dict[Entity, QuotaRule | None] = dict.fromkeys(manager.table.by_entity)
    wanted |= {(rule.user, rule.client_id): rule for rule in rules}
    named: dict[Tags, bool] = {}
    for entity, rule in wanted.items():
        tags = manager.table.put(entity, rule)
        if tags is not None:
            named[tags] = entity in manager.table.by_entity
    manager.rules_changed(named)


def update_addresses(quotas: ConnectionQuotas, config: ProxyConfig) -> None:
    """Put the limits on IP addresses of ``config`` in force."""
    quotas.rules_changed(quotas.limits.change(_address_changes(quotas.limits, config)))
    quotas.configure(config)


def _address_changes(limits: AddressLimits, config: ProxyConfig) -> dict[Ip, IpRule | None]:
    changes: dict[Ip, IpRule | None] = {DEFAULT: None, **dict.fromkeys(limits)}
    return changes | {rule.ip: rule for rule in config.ip_quotas}
