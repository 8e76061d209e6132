"""Tests the log lines about throttled clients, and how often they are logged."""

import logging

import pytest

from kafka_quota_proxy.config.model import QuotaRule
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.client_quota_manager import ClientQuotaManager
from kafka_quota_proxy.proxy.server.throttle_log import ThrottleLog, describe

MINUTE_MS = 60_000


def throttled_bucket(*, client_id: str = "etl", is_enforced: bool = True) -> Bucket:
    """Return a bucket with a quota of 500 B/s that was charged 6,300 bytes at once, and throttled."""
    rule = QuotaRule(client_id=client_id, producer_byte_rate=500.0, source="proxy.yaml:7")
    bucket = ClientQuotaManager(QuotaKind.PRODUCE, [rule]).bucket(user="ANONYMOUS", client_id=client_id, now_ms=0)
    wait_ms = bucket.charge(6_300, now_ms=0)
    if is_enforced:
        bucket.throttled(wait_ms, now_ms=0)
    else:
        bucket.observe(wait_ms, took_ms=0, now_ms=0)
    return bucket


def levels(caplog: pytest.LogCaptureFixture) -> list[int]:
    return [record.levelno for record in caplog.records]


def test_the_line_names_client_rate_limit_rule_and_wait() -> None:
    line = describe(throttled_bucket(), now_ms=0)

    # 6,300 B in a window of 10 s; (630 - 500) / 500 * 10 s = 2.6 s
    assert line == (
        "throttled: produce of user='' client-id='etl': 630 B/s against 500 B/s, "
        "by proxy.yaml:7 (level 7, client-id); throttled for 2.6 s in all"
    )


def test_log_line_marks_observed_throttling() -> None:
    assert describe(throttled_bucket(is_enforced=False), now_ms=0).startswith("over its quota, observed only: ")


def test_a_client_id_with_a_line_feed_stays_on_its_line() -> None:
    assert "\n" not in describe(throttled_bucket(client_id="a\nb"), now_ms=0)


def test_first_throttle_is_a_warning_and_later_ones_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log, bucket = ThrottleLog(), throttled_bucket()

    for now_ms in (0, 1_000, MINUTE_MS - 1, MINUTE_MS, MINUTE_MS + 1, 2 * MINUTE_MS):
        log.write([bucket], now_ms=now_ms)

    assert levels(caplog) == [logging.WARNING, logging.INFO, logging.INFO]


def test_each_bucket_has_its_own_minute(caplog: pytest.LogCaptureFixture) -> None:
    log = ThrottleLog()

    log.write([throttled_bucket(client_id="etl")], now_ms=0)
    log.write([throttled_bucket(client_id="reports")], now_ms=1)

    assert levels(caplog) == [logging.WARNING, logging.WARNING]


def test_a_bucket_that_was_quiet_for_over_two_minutes_is_a_warning_again(caplog: pytest.LogCaptureFixture) -> None:
    log, bucket = ThrottleLog(), throttled_bucket()

    log.write([bucket], now_ms=0)
    log.write([], now_ms=2 * MINUTE_MS + 1)
    log.write([bucket], now_ms=2 * MINUTE_MS + 2)

    assert levels(caplog) == [logging.WARNING, logging.WARNING]


def test_many_names_fill_neither_the_log_nor_the_memory(caplog: pytest.LogCaptureFixture) -> None:
    log = ThrottleLog()
    flood = [throttled_bucket(client_id=str(number)) for number in range(1_500)]

    log.write(flood, now_ms=0)
    log.write(flood, now_ms=1)

    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1_002
    assert lines[1_000] == "500 more are over their quotas; not logged, since 1000 were logged recently"
    assert len(log._logged_ms) == 1_000
