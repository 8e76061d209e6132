"""Holds quotas that a user considers, and creates the buckets that count a client's use under these quotas.

The commands that replay a usage log need them: a replay computes how the logged clients would be throttled under the
quotas. This module needs no Spark.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from kafka_quota_proxy.config.model import ProxyConfig, QuotaRule, Shaping
from kafka_quota_proxy.config.quota_kinds import BYTE_RATES, QuotaKind
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.client_quota_manager import ClientQuotaManager
from kafka_quota_proxy.proxy.quota.entity import RuleTable

_KINDS: Final = {kind.label: kind for kind in (QuotaKind.PRODUCE, QuotaKind.FETCH)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedQuotas:
    """Quotas that a user considers, under which a usage log is replayed.

    Attributes:
        config: The configuration that contains the quota rules.
        shaping: How rates are measured, in Kafka's windows or with a token bucket, under rules that do not say so. None
            means as ``config`` says.
    """

    config: ProxyConfig
    shaping: Shaping | None = None  # None keeps the shaping of the configuration

    def shapings(self) -> set[Shaping]:
        """Return all ways in which the rules measure rates: in Kafka's windows, with a token bucket, or both.

        A rule without a way of its own uses the default.
        """
        default = self.shaping or self.config.shaping
        return {rule.shaping or default for rule in self.config.quotas}

    def tables(self) -> dict[str, RuleTable]:
        """Return two tables in which the quota rule for a user and client-id can be looked up.

        The keys are ``produce`` and ``fetch``.
        """
        return {label: RuleTable(kind, self.config.quotas) for label, kind in _KINDS.items()}

    def bucket(self, kind: str, user: str, client_id: str) -> Bucket:
        """Create the bucket that counts the traffic of a user and client-id under these quotas.

        ``kind`` is ``produce`` or ``fetch``.
        """
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
            shaping=self.shaping or config.shaping,
            burst_ms=config.burst_ms,
        )
        return manager.bucket(user=user, client_id=client_id, now_ms=0)
