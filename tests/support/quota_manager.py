"""Makes quota managers of ``producer_byte_rate``, for the tests of token buckets and rates."""

from kafka_quota_proxy.config.model import EntityName, QuotaRule, Shaping
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.client_quota_manager import ClientQuotaManager
from tests.support.rules_in_force import replace_all

# The clock of a test starts at each of these values, because a monotonic clock may start anywhere.
STARTS_MS = (0, 3, 86_400_000, 1_767_225_600_000)


def rule(
    user: EntityName = None, client_id: EntityName = None, limit: float = 1_000.0, shaping: Shaping | None = None
) -> QuotaRule:
    return QuotaRule(user=user, client_id=client_id, producer_byte_rate=limit, shaping=shaping)


def manager_of(
    *rules: QuotaRule,
    shaping: Shaping = Shaping.SAMPLED,
    burst_ms: int = 1_000,
    max_throttle_time_ms: int | None = None,
) -> ClientQuotaManager:
    return ClientQuotaManager(
        QuotaKind.PRODUCE, rules, shaping=shaping, burst_ms=burst_ms, max_throttle_time_ms=max_throttle_time_ms
    )


def replace_rules(
    manager: ClientQuotaManager,
    *rules: QuotaRule,
    shaping: Shaping = Shaping.SAMPLED,
    burst_ms: int = 1_000,
    max_throttle_time_ms: int | None = None,
) -> None:
    replace_all(manager, rules)
    manager.configure(shaping=shaping, burst_ms=burst_ms, max_throttle_time_ms=max_throttle_time_ms)


def bucket_of_alice(manager: ClientQuotaManager, now_ms: int = 0) -> Bucket:
    return manager.bucket(user="alice", client_id="etl", now_ms=now_ms)
