"""Tests that an observed bucket counts the throttling that enforcement would have caused."""

from kafka_quota_proxy.config.model import QuotaRule, Shaping
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.client_quota_manager import ClientQuotaManager


def bucket_of(shaping: Shaping = Shaping.SAMPLED, *, max_throttle_time_ms: int | None = None) -> Bucket:
    """Return a bucket with a limit of 500 B/s."""
    rule = QuotaRule(client_id="etl", producer_byte_rate=500.0)
    manager = ClientQuotaManager(QuotaKind.PRODUCE, [rule], shaping=shaping, max_throttle_time_ms=max_throttle_time_ms)
    return manager.bucket(user="ANONYMOUS", client_id="etl", now_ms=0)


def send(bucket: Bucket, amount: int, *, now_ms: int, took_ms: int = 0) -> None:
    """Charge a request. If it is over the limit, count the wait that it would have had."""
    wait_ms = bucket.charge(amount, now_ms=now_ms)
    if wait_ms > 0:
        bucket.observe(wait_ms, took_ms=took_ms, now_ms=now_ms)


def test_requests_during_a_wait_add_no_time() -> None:
    bucket = bucket_of()
    send(bucket, 6_000, now_ms=0)
    for now_ms in range(10, 2_000, 10):
        send(bucket, 1_000, now_ms=now_ms)

    assert bucket.throttling.observed_requests == 1
    assert bucket.throttling.observed_time_ms == 2_000


def test_one_held_request_passes_when_the_wait_ends() -> None:
    bucket = bucket_of()
    send(bucket, 6_000, now_ms=0)
    send(bucket, 500, now_ms=1_000)
    send(bucket, 500, now_ms=2_500)

    # 6,500 B in ten seconds are 30 % over 500 B/s, which means 3 s from 2,000 ms on. The last request would wait.
    assert bucket.throttling.observed_requests == 2
    assert bucket.throttling.observed_time_ms == 2_000 + 3_000


def test_slow_broker_delays_the_held_charge() -> None:
    bucket = bucket_of(Shaping.PACED)
    send(bucket, 1_000, now_ms=0)
    send(bucket, 250, now_ms=500, took_ms=400)
    send(bucket, 250, now_ms=1_400, took_ms=400)

    # A debt of 500 B takes a second. The next request is charged at 1,400 ms, when 200 B of it are paid.
    assert bucket.throttling.observed_time_ms == 1_000 + 100


def test_observed_wait_is_bounded_by_max_throttle_time() -> None:
    bucket = bucket_of(max_throttle_time_ms=25_000)
    send(bucket, 100_000, now_ms=0)

    assert bucket.throttling.observed_time_ms == 25_000


def test_shadow_restarts_after_a_request_with_room() -> None:
    bucket = bucket_of(Shaping.PACED)
    send(bucket, 1_000, now_ms=0)
    send(bucket, 100, now_ms=60_000)
    send(bucket, 500, now_ms=60_000)

    assert bucket.throttling.observed_time_ms == 1_000 + 200


def test_first_enforced_request_within_the_limit_owes_nothing_of_the_last_observed_one() -> None:
    bucket = bucket_of()
    send(bucket, 60_000, now_ms=0)

    assert bucket.silence(bucket.charge(10, now_ms=30_000), now_ms=30_000) == 0
    assert bucket.debt(now_ms=30_000) == 0
