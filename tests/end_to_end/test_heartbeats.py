"""Fetches that wait for their quota delay no heartbeat. No group of any client rebalances."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import raw_client
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.load import KIB, batch_of
from tests.end_to_end.support.members import (
    SESSION_TIMEOUT_MS,
    aiokafka_member,
    java_member,
    librdkafka_member,
)
from tests.end_to_end.support.proxy import Proxy

_QUOTA = 28 * KIB
# A fetch returns at least one whole batch, nine seconds' worth of the quota. So a client waits for longer than the
# session timeout: at least 8 s when paced, and up to 18 s when sampled.
_BATCH_BYTES = 256 * KIB
_GROUPS = ("java", "librdkafka", "aiokafka")


@pytest.mark.parametrize(
    ("shape", "seconds"),
    [
        ("paced", 16),
        pytest.param("sampled", 120, marks=pytest.mark.long),
        pytest.param("paced", 120, marks=pytest.mark.long),
    ],
)
def test_group_under_a_tight_fetch_quota_does_not_rebalance(kafka_4: Kafka, shape: str, seconds: int) -> None:
    topic = create_topic(kafka_4)
    batch = batch_of(_BATCH_BYTES)
    with raw_client(kafka_4.listener(DIRECT).port) as client:
        for _ in range(40):
            assert client.produce(topic, batch).error_code == 0
    groups = {client_id: f"{client_id}-{topic}" for client_id in _GROUPS}
    rules = [{"client-id": "<default>", "consumer_byte_rate": _QUOTA}]

    with Proxy({"quotas": rules, "shaping": shape}, kafka_4) as proxy, ThreadPoolExecutor(len(_GROUPS)) as pool:
        running = {
            "java": pool.submit(java_member, kafka_4, proxy.address(), topic, groups["java"], seconds),
            "librdkafka": pool.submit(librdkafka_member, proxy.address(), topic, groups["librdkafka"], seconds),
            "aiokafka": pool.submit(aiokafka_member, proxy.address(), topic, groups["aiokafka"], seconds),
        }
        reports = {client_id: report.result() for client_id, report in running.items()}
        metrics = proxy.metrics()

    for client_id, report in reports.items():
        assert (client_id, report["assignments"], report["revocations"]) == (client_id, 1, 0)
        assert report["size_bytes"] > 0, client_id
        waited_s = metrics.total("kafka_quota_proxy_throttle_seconds_total", kind="fetch", client_id=client_id)
        waits = metrics.total("kafka_quota_proxy_throttled_requests_total", kind="fetch", client_id=client_id)
        assert waited_s / waits > SESSION_TIMEOUT_MS / 1_000, client_id
