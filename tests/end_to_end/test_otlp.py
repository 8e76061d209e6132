"""The metrics that the proxy sends by OTLP are those of ``/metrics``, as the OpenTelemetry Collector receives them."""

from __future__ import annotations

import socket
import time
from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.load import KIB, produce_flood
from tests.end_to_end.support.otlp import Key, key, receiver, wait_for_pushes
from tests.end_to_end.support.processes import wait_until
from tests.end_to_end.support.proxy import Proxy

_CLIENT: Final = 'a "quoted"\\client'
_BUCKET: Final = {"kind": "produce", "user": "", "client_id": _CLIENT}


def _scrape(proxy: Proxy) -> dict[Key, float]:
    families = text_string_to_metric_families(proxy.admin("/metrics"))
    return {key(sample.name, sample.labels): float(sample.value) for family in families for sample in family.samples}


@pytest.mark.long
@pytest.mark.timeout(1_000)  # the first run builds the receiver, in minutes
def test_a_collector_receives_the_values_of_metrics(kafka_4: Kafka) -> None:
    with receiver() as collector:
        settings = {
            "quotas": [{"client-id": "<default>", "producer_byte_rate": 100 * KIB}],
            "otlp": {"endpoint": collector.endpoint, "interval": "1s"},
        }
        with Proxy(settings, kafka_4) as proxy:
            topic = create_topic(kafka_4)
            produce_flood(proxy.port(), topic, client_id=_CLIENT, request_bytes=200 * KIB, seconds=4)
            wait_until(
                lambda: proxy.metrics().total("kafka_quota_proxy_disconnects_total") == 1,
                timeout_s=10,
                what="the client's connection ends",
            )
            before = _scrape(proxy)
            _, pushed = wait_for_pushes(collector, after_ns=time.time_ns())
            after = _scrape(proxy)
            name = ("kafka-quota-proxy", f"{socket.gethostname()}:{proxy.port()}")
            assert {(one["service.name"], one["service.instance.id"]) for one in collector.resources()} == {name}

    assert pushed.keys() == before.keys() == after.keys()
    # What changes meanwhile is the time, and what the process uses: a scrape has a thread and a connection of its own.
    # Counters lie between.
    changed = {one for one in before if repr(before[one]) != repr(after[one]) or one[0].startswith("process_")}
    wrong = {one for one in before.keys() - changed if repr(pushed[one]) != repr(before[one])}
    assert wrong == set()
    rising = {one for one in changed if one[0].endswith(("_total", "_count", "_sum", "_bucket"))}
    assert [one for one in rising if not before[one] <= pushed[one] <= after[one]] == []
    rule = {**_BUCKET, "client_id": "<default>"}
    steady = [
        key("kafka_quota_proxy_bytes_total", _BUCKET),
        key("kafka_quota_proxy_throttle_seconds_total", _BUCKET),
        key("kafka_quota_proxy_rule_throttle_seconds_total", rule),
        key("kafka_quota_proxy_quota_limit", rule),
        key("kafka_quota_proxy_added_latency_seconds_bucket", {"api": "Produce", "le": "+Inf"}),
    ]
    assert [one for one in steady if one in changed or pushed[one] <= 0] == []
    assert len(before.keys() - changed) > 50
