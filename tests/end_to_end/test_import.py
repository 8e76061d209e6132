"""``import`` makes a usage log of the client metrics of a real Kafka, from a real Prometheus.

Prometheus scrapes the broker through the JMX exporter without rules. The broker has a high default quota, so that it
has metrics of all clients, and a low quota for one of them.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow.parquet as pq
import pytest
import yaml

from kafka_quota_proxy.pipeline.__main__ import main
from tests.end_to_end.support.artifacts import KAFKA_4, jmx_exporter
from tests.end_to_end.support.broker_quotas import DEFAULT, BrokerQuotas, Entity
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.frames import raw_client
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.load import batch_of
from tests.end_to_end.support.logins import add_scram_users, log_in_scram
from tests.end_to_end.support.processes import free_port
from tests.end_to_end.support.prometheus import Prometheus

pytestmark = pytest.mark.long

LOGIN: Final = "LOGIN"
CONFIG: Final[dict[str, str | int]] = {
    "listener.security.protocol.map": f"{LOGIN}:SASL_PLAINTEXT,{DIRECT}:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    f"listener.name.{LOGIN.lower()}.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
}
SECONDS: Final = 15
SCRAPES_S: Final = 2
STEP_S: Final = 4
# Kafka's windows and an incomplete step have to pass before the last bytes have left the rates.
DRAIN_S: Final = 11 + STEP_S + 1
RATE: Final = 100_000
LIMIT: Final = 50_000
# Kafka counts the last bytes of a load for 10 to 12 s, and divides them by 10 to 11 s.
STEADY: Final = 0.15
IN_BURSTS: Final = 0.2


class Client(NamedTuple):
    kind: str
    user: str
    client_id: str


GREEDY: Final = Client("produce", "alice", "etl")
CLIENTS: Final = (
    GREEDY,
    # Kafka writes this user percent-encoded, and quotes this client-id.
    Client("produce", 'bob/"b" 100%', 'my:app "1", *'),
    Client("fetch", "carol", "reader"),
)


EXPECTED_SHARES: Final = {one: pytest.approx(1, abs=IN_BURSTS if one is GREEDY else STEADY) for one in CLIENTS}


class Measured(NamedTuple):
    """What the broker charged clients for, in bytes, and where Kafka's own metrics of it are."""

    charged: Counter[Client]
    prometheus: str
    from_s: int


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    directory = tmp_path_factory.mktemp("import")
    kinds = ("Produce", "Fetch", "BrokerTopicMetrics")
    # The other MBeans would take a busy machine longer than a scrape may.
    rules = {"includeObjectNames": [f"kafka.server:type={kind},*" for kind in kinds]}
    (exporter := directory / "exporter.yaml").write_text(yaml.safe_dump(rules))
    target = f"127.0.0.1:{free_port()}"
    agent = f"-javaagent:{jmx_exporter()}={target}:{exporter}"
    with (
        Kafka(KAFKA_4, proxied=(), unproxied=(LOGIN,), config=CONFIG, java_options=(agent,)) as kafka,
        Prometheus([target], scrape_interval_s=SCRAPES_S) as prometheus,
    ):
        add_scram_users(kafka, [client.user for client in CLIENTS], "SCRAM-SHA-256")
        written, full = create_topic(kafka), create_topic(kafka)
        with raw_client(kafka.listener(DIRECT).port) as client:
            client.produce(full, batch_of(RATE // 10))
        charged: Counter[Client] = Counter()
        topics = {"produce": written, "fetch": full}
        from_s = int(time.time()) // STEP_S * STEP_S
        with BrokerQuotas(kafka) as quotas:
            everyone = {"producer_byte_rate": 1e15, "consumer_byte_rate": 1e15}
            quotas.replace(
                {
                    Entity(DEFAULT, DEFAULT): everyone,
                    Entity(GREEDY.user, GREEDY.client_id): {"producer_byte_rate": LIMIT},
                }
            )
            with ThreadPoolExecutor(len(CLIENTS)) as pool:
                running = {one: pool.submit(ask, kafka, one, topics[one.kind], seconds=SECONDS) for one in CLIENTS}
            for one, sent in running.items():
                charged[one] += sent.result()
            time.sleep(DRAIN_S)
        yield Measured(charged, prometheus.url, from_s)


def ask(kafka: Kafka, client: Client, topic: str, *, seconds: float) -> int:
    """Send requests of a client at ``RATE``, at least one, and return how many bytes the broker charges for them."""
    batch = batch_of(RATE // 10)
    charged = 0
    with raw_client(kafka.listener(LOGIN).port, client_id=client.client_id) as connection:
        log_in_scram(connection, client.user)
        start_s, due_s = time.monotonic(), 0.0
        while True:
            before = connection.sent_bytes, connection.received_bytes
            if client.kind == "produce":
                wait_ms = connection.produce(topic, batch).throttle_time_ms
                charged += connection.sent_bytes - before[0] - 4  # the length of a frame is not charged
            else:
                wait_ms = connection.fetch(topic, offset=0, max_bytes=RATE // 10).throttle_time_ms
                charged += connection.received_bytes - before[1] - 4
            due_s = max(due_s + 0.1, time.monotonic() - start_s + wait_ms / 1_000)
            if due_s >= seconds:
                return charged
            time.sleep(max(0, start_s + due_s - time.monotonic()))


def records_of(log: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(log.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


def amounts(records: list[dict[str, Any]]) -> Counter[Client]:
    found: Counter[Client] = Counter()
    for one in records:
        found[Client(one["kind"], one["user"], one["client_id"])] += one["amount"]
    return found


def shares(imported: Counter[Client], charged: Counter[Client]) -> dict[Client, float]:
    """Return the imported amounts, divided by what the broker charged for."""
    return {one: imported[one] / sent for one, sent in charged.items()}


@pytest.fixture(scope="module")
def imported(measured: Measured, tmp_path_factory: pytest.TempPathFactory) -> Path:
    log = tmp_path_factory.mktemp("prometheus") / "usage"
    times = ["--from", iso(measured.from_s), "--until", iso(int(time.time()) // STEP_S * STEP_S)]
    words = ["--url", measured.prometheus, *times, "--step", f"{STEP_S}s", "--out", str(log)]
    assert main(["import", "prometheus", *words]) == 0
    return log


def iso(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).isoformat()


def test_prometheus_has_what_clients_sent(measured: Measured, imported: Path) -> None:
    records = records_of(imported)

    found = amounts(records)
    sys.stdout.write(f"Prometheus: {shares(found, measured.charged)}\n")
    assert shares(found, measured.charged) == EXPECTED_SHARES
    assert {(one["resolution_ms"], one["broker"]) for one in records} == {(11_000, 1)}
    throttled = {one["client_id"] for one in records if one["throttle_time_ms"]}
    assert throttled == {GREEDY.client_id}
