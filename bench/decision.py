"""Measures one decision: find the quota, record the bytes, and compute the throttle time. No network is used."""

import random
import time

from bench.figures import Sample
from bench.rows import Row
from kafka_quota_proxy.config.model import DEFAULT, QuotaRule, Shaping
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.quota.client_quota_manager import ClientQuotaManager

BUCKETS = 100_000
ACTIVE = 1_000
DECISIONS = 300_000
REQUEST_SIZE_BYTES = 1_024
# Virtual time between two decisions: 100,000 a second, so that windows turn over while we measure.
DECISIONS_PER_MS = 100


def measure(row: Row) -> Sample:
    """Measure decisions for clients in random order, so that CPU caches do not help."""
    names = [(f"user-{n % 1_000}", f"client-{n}") for n in range(BUCKETS)]
    manager = _manager(row.key, names)
    for user, client_id in names:
        manager.record_and_get_throttle_time_ms(REQUEST_SIZE_BYTES, user=user, client_id=client_id, now_ms=0)
    # Active buckets are also apart in memory, because they were not created one after the other.
    active = names if row.key == "decision-all" else names[:: BUCKETS // ACTIVE]
    charged = random.Random(1).choices(active, k=DECISIONS)  # noqa: S311  the same order in each run
    decide = _decide_kept if row.key == "decision-kept" else _decide
    seconds, throttled = decide(manager, charged)
    return {"decision_us": seconds / DECISIONS * 1e6, "throttled_ratio": throttled / DECISIONS}


def _manager(key: str, names: list[tuple[str, str]]) -> ClientQuotaManager:
    if key in ("decision-own-rules", "decision-paced"):
        rules = [QuotaRule(user=user, client_id=client_id, producer_byte_rate=1.0) for user, client_id in names]
        shaping = Shaping.PACED if key == "decision-paced" else Shaping.SAMPLED
        return ClientQuotaManager(QuotaKind.PRODUCE, rules, shaping=shaping)
    return ClientQuotaManager(QuotaKind.PRODUCE, [QuotaRule(client_id=DEFAULT, producer_byte_rate=1e9)])


def _decide(manager: ClientQuotaManager, charged: list[tuple[str, str]]) -> tuple[float, int]:
    throttled = 0
    start = time.perf_counter()
    for n, (user, client_id) in enumerate(charged):
        throttled += (
            manager.record_and_get_throttle_time_ms(
                REQUEST_SIZE_BYTES, user=user, client_id=client_id, now_ms=n // DECISIONS_PER_MS
            )
            > 0
        )
    return time.perf_counter() - start, throttled


def _decide_kept(manager: ClientQuotaManager, charged: list[tuple[str, str]]) -> tuple[float, int]:
    """Decide like a connection, which looks up its bucket only after rules have changed."""
    kept = [(*names, manager.bucket(user=names[0], client_id=names[1], now_ms=0)) for names in charged]
    throttled = 0
    start = time.perf_counter()
    for n, (user, client_id, bucket) in enumerate(kept):
        now_ms = n // DECISIONS_PER_MS
        if bucket.generation != manager.generation:
            bucket = manager.bucket(user=user, client_id=client_id, now_ms=now_ms)
        throttled += bucket.charge(REQUEST_SIZE_BYTES, now_ms=now_ms) > 0
    return time.perf_counter() - start, throttled
