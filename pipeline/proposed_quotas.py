"""The quotas under which a log is replayed, and the buckets that they create.

This module needs no Spark.
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
    """The quotas under which a log is replayed. ``shaping`` overrides the shaping of the configuration."""

    config: ProxyConfig
    shaping: Shaping | None = None  # None keeps the shaping of the configuration

    def shapings(self) -> set[Shaping]:
        """Return each kind of shaping that a rule uses."""
        default = self.shaping or self.config.shaping
        return {rule.shaping or default for rule in self.config.quotas}

    def tables(self) -> dict[str, RuleTable]:
        """Return the rule table of each kind of quota, by label, such as ``produce``."""
        return {label: RuleTable(kind, self.config.quotas) for label, kind in _KINDS.items()}

    def bucket(self, kind: str, user: str, client_id: str) -> Bucket:
        """Create a bucket with the limit that the quotas give to this user and client-id."""
        return self._bucket(kind, user, client_id, self.config.quotas)

    def buckets(
        self, limits: Iterable[float], table: RuleTable, *, kind: str, user: str, client_id: str
    ) -> list[Bucket]:
        """Create a bucket for each limit, in bytes per second. The entity's rule determines its other settings."""
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
