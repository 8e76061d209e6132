"""Records ``/metrics`` of proxies before and during faults, for the tests of the alert rules.

``python -m tests.end_to_end.support.fault_recording`` writes ``tests/data/faults.json``: the series that rules about
faults query, once a second. Each proxy runs in front of the same real Kafka. After ten seconds clients and operators
make mistakes, and after another ten seconds the broker ends.
"""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import confluent_kafka
from prometheus_client.parser import text_string_to_metric_families

from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.clients import QUIET, create_topic
from tests.end_to_end.support.frames import raw_client
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.load import KIB, batch_of
from tests.end_to_end.support.processes import free_port
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.quota_fleet import Admin

RECORDING: Final = Path(__file__).parents[2] / "data" / "faults.json"
MISTAKES_S: Final = 10  # samples before the mistakes
END_S: Final = 20  # samples before the end of the broker
_SECONDS: Final = 40
_UNKNOWN_API: Final = 999
_SERIES: Final = (
    "kafka_quota_proxy_config_last_reload_successful",
    "kafka_quota_proxy_quotas_topic_connected",
    "kafka_quota_proxy_quotas_topic_not_understood_records_total",
    "kafka_quota_proxy_broker_quotas_connected",
    "kafka_quota_proxy_store_topic_connected",
    "kafka_quota_proxy_store_topic_not_understood_records_total",
    "kafka_quota_proxy_usage_log_last_write_successful",
    "kafka_quota_proxy_protocol_errors_total",
    "kafka_quota_proxy_unknown_api_total",
    "kafka_quota_proxy_bucket_overflows_total",
    "kafka_quota_proxy_cluster_poll_successful",
    "kafka_quota_proxy_quota_changes_total",
)


def _settings(kafka: Kafka, topics: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the configurations by the name of their proxy."""
    cluster = {"bootstrap_servers": kafka.bootstrap_servers}
    return {
        "small": {"max_buckets": 1, "quotas": [{"client-id": "<default>", "producer_byte_rate": KIB}]},
        "topic": {"quotas_from": f"kafka://{kafka.bootstrap_servers}/{topics['quotas']}"},
        "broker": {"quotas_from": "broker"},
        "store": {
            "store": {"kafka": {**cluster, "topic": topics["store"]}, "directory": "quotas.d", "changes_per_second": 1},
            "principals": {"admins": ["ANONYMOUS"]},
        },
        "cluster": {
            "replication": {"from_cluster": True, "poll_interval": "1s", "admin_client": cluster},
            "usage_log": {"interval": "1s", "directory": "usage", "rotate_interval": "1s"},
        },
    }


def _make_mistakes(kafka: Kafka, topics: Mapping[str, str], proxies: Mapping[str, Proxy], written: str) -> None:
    """Do everything that clients and operators should not do."""
    with raw_client(proxies["small"].port(DIRECT)) as client:
        client.send(_UNKNOWN_API, 0, b"")
    for number in range(2):
        with raw_client(proxies["small"].port(DIRECT), client_id=f"client-{number}") as client:
            client.produce(written, batch_of(100 * KIB))  # so much that its bucket stays in use
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers, **QUIET})
    for topic in (topics["quotas"], topics["store"]):
        producer.produce(topic, key=b"no key of ours", value=b"{")
    assert producer.flush(30) == 0
    with Admin(proxies["store"].port(DIRECT)) as admin:
        for rate in range(20):
            admin.alter((("user", "alice"),), {"producer_byte_rate": 1_000.0 + rate})
    usage = proxies["cluster"].file.with_name("usage")
    shutil.rmtree(usage)
    usage.touch()
    with raw_client(proxies["cluster"].port(DIRECT)) as client:
        client.produce(written, batch_of(KIB))
    proxies["broker"].write("no configuration")
    proxies["broker"].process.signal(signal.SIGHUP)


def _send_no_kafka(proxy: Proxy) -> None:
    for _ in range(5):
        with raw_client(proxy.port(DIRECT)) as client:
            client.send_bytes(b"GET / HTTP/1.1\r\n\r\n")


def _samples(proxies: Mapping[str, Proxy]) -> dict[str, int]:
    """Return the value of each series that the rules query. The label ``instance`` is the name of the proxy."""
    found = {}
    for instance, proxy in proxies.items():
        for family in text_string_to_metric_families(proxy.admin("/metrics")):
            for sample in family.samples:
                if sample.name in _SERIES:
                    labels = {"instance": instance, **sample.labels}
                    text = ",".join(f'{label}="{value}"' for label, value in labels.items())
                    found[f"{sample.name}{{{text}}}"] = int(sample.value)
    return found


def record() -> None:
    """Write the recording. A series that does not exist yet has no value."""
    with ExitStack() as stack:
        kafka = stack.enter_context(Kafka(KAFKA_4))
        topics = {name: create_topic(kafka, config={"cleanup.policy": "compact"}) for name in ("quotas", "store")}
        written = create_topic(kafka)
        proxies = {}
        for name, settings in _settings(kafka, topics).items():
            listener = {"name": DIRECT, "bind": f"127.0.0.1:{free_port()}", "upstream": kafka.listener(DIRECT).address}
            proxies[name] = stack.enter_context(Proxy({"listeners": [listener], **settings}))
        events: dict[int, Callable[[], None]] = {
            MISTAKES_S: lambda: _make_mistakes(kafka, topics, proxies, written),
            END_S: kafka.broker.kill,
        }
        time.sleep(5)  # until all have read their sources
        scrapes = []
        for second in range(_SECONDS):
            events.get(second, lambda: None)()
            if MISTAKES_S <= second < END_S:
                _send_no_kafka(proxies["small"])
            time.sleep(1)
            scrapes.append(_samples(proxies))
    names = sorted({name for one in scrapes for name in one})
    lines = [f"{json.dumps(name)}: {json.dumps([one.get(name) for one in scrapes])}" for name in names]
    RECORDING.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    record()
