"""Puts rules in force at a single broker, as a server does at all of its brokers."""

from kafka_quota_proxy.config.model import ProxyConfig, Shaping
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.quota.connections import ConnectionQuotas
from kafka_quota_proxy.proxy.quota.rule_tables import QuotaChanges, RuleChanges, RuleTables


def update(
    quotas: BrokerQuotas, config: ProxyConfig, *, shaping: Shaping | None = None, changes: QuotaChanges | None = None
) -> None:
    """Put the rules of ``config`` in force. ``changes`` are the rules that differ, if the caller knows them."""
    if changes is None:
        quotas.rules.swap(RuleTables(config))
        quotas.update(config, shaping=shaping)
    else:
        quotas.update(config, shaping=shaping, changed=quotas.rules.change(changes, config))


def change(quotas: BrokerQuotas, config: ProxyConfig, rules: RuleChanges) -> None:
    """Put the changes of single rules in force. ``config`` already has these rules."""
    quotas.rules_changed(quotas.rules.change(QuotaChanges(rules, {})))


def update_addresses(quotas: ConnectionQuotas, config: ProxyConfig) -> None:
    """Put the limits on IP addresses of ``config`` in force."""
    quotas.limits.update(config.ip_quotas)
    quotas.rules_changed(None)
    quotas.configure(config)
