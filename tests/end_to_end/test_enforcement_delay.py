"""``enforcement: delay``: the proxy holds a response for its throttle time, as brokers before 2.0 did.

Later clients wait for the announced throttle time, so they must not wait twice.
"""

from __future__ import annotations

import time
from typing import Final

import confluent_kafka
import pytest

from kafka_quota_proxy.protocol.throttle_time import client_throttles_itself
from tests.end_to_end.support.artifacts import KAFKA_3_9, KAFKA_4, KAFKA_4_3
from tests.end_to_end.support.clients import QUIET, create_topic
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.load import KIB
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.throttles_itself import throttles_itself

_QUOTA: Final = 128 * KIB
# Three seconds' worth of the quota. One passes at once, so each wait is two seconds.
_RECORD_BYTES: Final = 3 * _QUOTA
_RECORDS: Final = 4
_WAIT_S: Final = 2


def _send(proxy: Proxy, topic: str, client_id: str) -> tuple[float, float]:
    """Return the seconds until the first record was acknowledged, and until the last."""
    settings = {"bootstrap.servers": proxy.address(), "client.id": client_id, "linger.ms": 0, **QUIET}
    producer = confluent_kafka.Producer(settings)
    producer.list_topics(topic, timeout=30)
    times_s = [time.monotonic()]
    for _ in range(_RECORDS):
        producer.produce(topic, bytes(_RECORD_BYTES), partition=0)
        assert producer.flush(60) == 0
        times_s.append(time.monotonic())
    return times_s[1] - times_s[0], times_s[-1] - times_s[0]


def test_delayed_producer_sees_its_throttle_time_as_latency_and_gets_its_quota(kafka_4: Kafka) -> None:
    topic = create_topic(kafka_4)
    rules = [
        {"client-id": "delayed", "producer_byte_rate": _QUOTA, "enforcement": "delay"},
        {"client-id": "at-once", "producer_byte_rate": _QUOTA},
    ]
    with Proxy({"shaping": "paced", "max_throttle_time": None, "quotas": rules}, kafka_4) as proxy:
        first_s, took_s = _send(proxy, topic, "delayed")
        at_once_s, _ = _send(proxy, topic, "at-once")
        throttled_s = proxy.metrics().total("kafka_quota_proxy_throttle_seconds_total", client_id="delayed")

    assert first_s > _WAIT_S * 0.95
    assert at_once_s < first_s - _WAIT_S / 2
    # It waits for what is over its quota, and not twice.
    assert took_s > throttled_s * 0.98
    assert 0.9 * _WAIT_S < throttled_s < (_RECORDS * _RECORD_BYTES / _QUOTA - 1) * 1.03
    assert (_RECORDS * _RECORD_BYTES - _QUOTA) / took_s < _QUOTA * 1.03


@pytest.mark.parametrize(
    "version",
    [pytest.param(KAFKA_3_9, marks=pytest.mark.long), pytest.param(KAFKA_4_3, marks=pytest.mark.long), KAFKA_4],
)
def test_no_java_client_would_wait_twice(version: str) -> None:
    """Releases before 4.4 wait for fewer throttle times than 4.4, which the table of APIs follows."""
    says = throttles_itself(version)

    assert len(says) > 250
    assert [key for key, waits in says.items() if waits and not client_throttles_itself(*key)] == []
