"""Single rules that change while the proxy runs. None stands for a rule that is removed."""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from kafka_quota_proxy.config.model import Default, IpRule, QuotaRule
from kafka_quota_proxy.proxy.quota.entity import Entity

Ip: TypeAlias = str | Default
# Names are ``bounded``, addresses canonical.
RuleChanges: TypeAlias = Mapping[Entity, QuotaRule | None]
IpChanges: TypeAlias = Mapping[Ip, IpRule | None]


class QuotaChanges(NamedTuple):
    """Changed rules of users and client-ids, and of addresses."""

    rules: RuleChanges
    ips: IpChanges


def merge_changes(*all_changes: QuotaChanges) -> QuotaChanges:
    """Return all changes as one. The last change of a rule wins."""
    rules: dict[Entity, QuotaRule | None] = {}
    ips: dict[Ip, IpRule | None] = {}
    for changes in all_changes:
        rules.update(changes.rules)
        ips.update(changes.ips)
    return QuotaChanges(rules, ips)
