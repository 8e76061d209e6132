"""Holds the quotas under which a usage log is replayed, and creates buckets for them.

A replay computes how the logged clients would be throttled under these quotas. This module needs no Spark.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from kafka_quota_proxy.config.model import ProxyConfig, QuotaRule, Shaping
from kafka_quota_proxy.config.quota_kinds import BYTE_RATES, QuotaKind
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.client_quota_manager import ClientQuotaManager
from kafka_quota_proxy.proxy.quota.rule_tables import RuleTable

_KINDS: Final = {kind.label: kind for kind in (QuotaKind.PRODUCE, QuotaKind.FETCH)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateQuotas:
    """The quotas under which a log is replayed."""

    config: ProxyConfig

    def shapings(self) -> set[Shaping]:
        """Return all ways of measuring rates that the rules use, whether a rule sets its own or has the default."""
        return {rule.shaping or self.config.shaping for rule in self.config.quotas}

    def tables(self) -> dict[str, RuleTable]:
        """Return the tables in which the rule of an entity is looked up. The keys are ``produce`` and ``fetch``."""
        return {label: RuleTable(kind, self.config.quotas) for label, kind in _KINDS.items()}

    def bucket(self, kind: str, user: str, client_id: str) -> Bucket:
        """Create a bucket with the limit that the quotas give to this user and client-id."""
        return self._bucket(kind, user, client_id, self.config.quotas)

    def buckets(
        self, limits: Iterable[float], table: RuleTable, *, kind: str, user: str, client_id: str
    ) -> list[Bucket]:
        """Create a bucket for the user and client-id under each of these limits, in bytes per second.

        A bucket has the limit instead of the one in the rule that ``table`` has for the user and client-id. Everything
        else, such as the way of measuring rates, is as in this rule. Without such a rule, the list is empty.
        """
        rule = table.resolve(user=user, client_id=client_id).rule
        rules = [replace(rule, limits={**rule.limits, **dict.fromkeys(BYTE_RATES, limit)}) for limit in limits if rule]
        return [self._bucket(kind, user, client_id, [rule]) for rule in rules]

    def _bucket(self, kind: str, user: str, client_id: str, rules: Iterable[QuotaRule]) -> Bucket:
        config = self.config
        manager = ClientQuotaManager(
            _KINDS[kind],
            rules,
            kafka=config.kafka,
            shaping=config.shaping,
            burst_ms=config.burst_ms,
        )
        return manager.bucket(user=user, client_id=client_id, now_ms=0)
