"""Single rules that change while a proxy runs: which hold from now on, and, with None, whose do no more."""

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from kafka_quota_proxy.config.model import Default, IpRule, QuotaRule
from kafka_quota_proxy.proxy.quota.entity import Entity

Ip: TypeAlias = str | Default
# Names are ``bounded``, addresses canonical.
RuleChanges: TypeAlias = Mapping[Entity, QuotaRule | None]
IpChanges: TypeAlias = Mapping[Ip, IpRule | None]


class Changes(NamedTuple):
    """Those of users and client-ids, and those of addresses."""

    rules: RuleChanges
    ips: IpChanges


def merge_changes(*all_changes: Changes) -> Changes:
    """Return all of them as one; of a rule that changes more than once the last counts."""
    rules: dict[Entity, QuotaRule | None] = {}
    ips: dict[Ip, IpRule | None] = {}
    for changes in all_changes:
        rules.update(changes.rules)
        ips.update(changes.ips)
    return Changes(rules, ips)
