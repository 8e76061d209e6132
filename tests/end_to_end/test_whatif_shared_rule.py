"""``whatif`` forecasts what one user rule does to several clients of a real Kafka that share it.

The same load runs without limits, which gives the log for the forecast, and then under the rule.
"""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import pytest
import yaml

from tests.end_to_end.support.clients import QUIET, create_topic
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.processes import run
from tests.end_to_end.support.proxy import Proxy
from tests.pipeline.support import JAVA_OPTIONS, SHORT_LIVED

CLIENTS: Final = 6
SECONDS: Final = 10
RECORD_BYTES: Final = 10_000
RATE: Final = 100_000
# 6 clients ask for twice the limit, and none of them alone exceeds it.
LIMIT: Final = 300_000
RULE: Final = {"user": "ANONYMOUS", "producer_byte_rate": LIMIT}
QUOTAS: Final[dict[str, dict[str, Any]]] = {
    shaping: {"quotas": [RULE], "shaping": shaping} for shaping in ("sampled", "paced")
}
TOLERANCE: Final = 0.1
ROOT: Final = Path(__file__).parents[2]
SMALL: Final = (f"{JAVA_OPTIONS}={SHORT_LIVED}", "spark.sql.shuffle.partitions=2", "spark.sql.codegen.wholeStage=false")

Record = dict[str, Any]


def produce(address: str, topic: str, client_id: str, start_s: float) -> None:
    """Produce ``RATE`` bytes a second from ``start_s`` on. A throttled client sends later."""
    settings = {"bootstrap.servers": address, "client.id": client_id, "linger.ms": 20, "acks": 1, "batch.size": 32_000}
    producer = confluent_kafka.Producer({**settings, **QUIET})
    producer.list_topics(topic, timeout=30)
    for tenth in range(10 * SECONDS):
        while time.monotonic() < start_s + tenth / 10:
            producer.poll(0.01)
        for _ in range(RATE // 10 // RECORD_BYTES):
            producer.produce(topic, bytes(RECORD_BYTES), partition=0)
    assert producer.flush(120) == 0


def measured(kafka: Kafka, usage: Path, settings: Mapping[str, object]) -> list[Record]:
    """Run the load through a proxy with these settings, and return its usage log."""
    usage.mkdir()
    log = {"directory": str(usage), "interval": "1s", "proxy": "p1"}
    topic = create_topic(kafka)
    with Proxy({**settings, "usage_log": log}, kafka) as proxy, ThreadPoolExecutor(CLIENTS) as pool:
        # Loads start on a full second, like the intervals of the log.
        start_s = time.monotonic() + 3 - time.time() % 1
        ids = [f"app-{number}" for number in range(CLIENTS)]
        for done in [pool.submit(produce, proxy.address(), topic, client_id, start_s) for client_id in ids]:
            done.result()
        assert proxy.stop() == 0
    lines = [line for path in usage.glob("usage-p1-*.jsonl") for line in path.read_text().splitlines()]
    return [one for one in map(json.loads, lines) if one["kind"] == "produce"]


def forecast(directory: Path, usage: Path, quotas: Mapping[str, object]) -> dict[str, str]:
    """Return the only row of the forecast under the rule."""
    file, out = directory / "quotas.yaml", directory / "forecast"
    file.write_text(yaml.safe_dump({**quotas}))
    words: list[str | Path] = ["whatif", "--usage", usage, "--quotas", file, "--out", out]
    words += [word for setting in SMALL for word in ("--conf", setting)]
    run([sys.executable, "-m", "kafka_quota_proxy.pipeline", *words], timeout_s=300, cwd=ROOT)
    (path,) = (out / "entities").glob("*.csv")
    with path.open(encoding="utf-8", newline="") as rows:
        (row,) = csv.DictReader(rows)
    return row


@pytest.mark.pipeline
@pytest.mark.parametrize("shaping", QUOTAS)
def test_forecast_for_clients_that_share_a_user_rule_is_within_a_tenth(
    kafka_4: Kafka, tmp_path: Path, shaping: str
) -> None:
    observed = measured(kafka_4, tmp_path / "observed", {"enforcement": "observe"})
    row = forecast(tmp_path, tmp_path / "observed", QUOTAS[shaping])

    happened = measured(kafka_4, tmp_path / "happened", QUOTAS[shaping])

    asked = {one["client_id"] for one in observed}
    its = {(one["user"], one["client_id"]) for one in happened}
    lasted_ms = max(one["start_ms"] + one["interval_ms"] for one in happened) - min(one["start_ms"] for one in happened)
    throttled_ms = sum(one["throttle_time_ms"] for one in happened)
    pairs = {
        "throttle_time_ms": throttled_ms,
        "achieved_rate": sum(one["amount"] for one in happened) * 1_000 / lasted_ms,
        "throttled_share": throttled_ms / lasted_ms,
    }
    sys.stdout.write(f"forecast and result: { {name: (row[name], result) for name, result in pairs.items()} }\n")
    assert (len(asked), its, row["clients"]) == (CLIENTS, {("ANONYMOUS", "")}, str(CLIENTS))
    assert {name: float(row[name]) for name in pairs} == pytest.approx(pairs, rel=TOLERANCE)
    assert throttled_ms > 0.5 * lasted_ms  # otherwise the forecast would prove nothing
