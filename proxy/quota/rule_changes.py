"""Types for changes of single rules while the proxy runs. In these, None stands for a removed rule."""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from kafka_quota_proxy.config.model import Default, IpRule, QuotaRule
from kafka_quota_proxy.proxy.quota.entity import Entity

Ip: TypeAlias = str | Default
# Names are ``bounded``, and addresses have the spelling that ``address_limits.canonical`` returns.
RuleChanges: TypeAlias = Mapping[Entity, QuotaRule | None]
IpChanges: TypeAlias = Mapping[Ip, IpRule | None]


class QuotaChanges(NamedTuple):
    """The changed rules of users and client-ids (``rules``), and those of IP addresses (``ips``)."""

    rules: RuleChanges
    ips: IpChanges


def merge_changes(*all_changes: QuotaChanges) -> QuotaChanges:
    """Merge several sets of rule changes into one. If a rule changes more than once, its last change counts."""
    rules: dict[Entity, QuotaRule | None] = {}
    ips: dict[Ip, IpRule | None] = {}
    for changes in all_changes:
        rules.update(changes.rules)
        ips.update(changes.ips)
    return QuotaChanges(rules, ips)
