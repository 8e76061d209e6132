"""Tests what is counted of the usage of one entity."""

import pytest

from kafka_quota_proxy.config.model import Address, Listener, ProxyConfig, QuotaRule
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.quota.bucket import Bucket

NOW_MS = 86_400_000
LISTENER = Listener(
    name="clients", bind=Address(host="127.0.0.1", port=9092), upstream=Address(host="127.0.0.1", port=19092)
)
CONFIG = ProxyConfig(listeners=(LISTENER,), quotas=(QuotaRule(client_id="etl", producer_byte_rate=1_000.0),))


def etl() -> Bucket:
    return BrokerQuotas(CONFIG).bucket(QuotaKind.PRODUCE, principal="bob", client_id="etl", now_ms=NOW_MS)


def test_usage_before_a_change_is_divided_by_the_limit_of_then() -> None:
    bucket = etl()
    bucket.charge(500, now_ms=NOW_MS)

    bucket.usage.set_limit(100.0)
    bucket.charge(50, now_ms=NOW_MS)

    assert bucket.usage.used_s == pytest.approx(1.0)
    assert (bucket.usage.amount, bucket.usage.requests) == (550, 2)
