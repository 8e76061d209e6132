"""``whatif`` forecasts what one user rule does to several clients of a real Kafka that share it.

The same load runs without limits, which gives the log for the forecast, and then under the rule.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.processes import run
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.scheduled import Librdkafka, Load, every, run_all, topics_of
from tests.pipeline.support import JAVA_OPTIONS, SHORT_LIVED

CLIENTS: Final = 6
SECONDS: Final = 10
# 6 clients of 100 kB/s each ask for twice the limit, and none of them alone exceeds it.
LIMIT: Final = 300_000
RULE: Final = {"user": "ANONYMOUS", "producer_byte_rate": LIMIT}
TOLERANCE: Final = 0.1
ROOT: Final = Path(__file__).parents[2]
SMALL: Final = (f"{JAVA_OPTIONS}={SHORT_LIVED}", "spark.sql.shuffle.partitions=2", "spark.sql.codegen.wholeStage=false")

Record = dict[str, Any]


def measured(kafka: Kafka, usage: Path, settings: Mapping[str, object]) -> list[Record]:
    """Run the load through a proxy with these settings, and return its usage log."""
    client = Librdkafka(settings={"linger.ms": 20, "acks": 1, "batch.size": 32_000})
    loads = [Load(f"app-{at}", "produce", client, every(0.1, SECONDS, lambda _: 10)) for at in range(CLIENTS)]
    usage.mkdir()
    log = {"directory": str(usage), "interval": "1s", "proxy": "p1"}
    topics = topics_of(kafka, loads)
    with Proxy({**settings, "usage_log": log}, kafka) as proxy:
        run_all(loads, proxy.address(), topics, head_start_s=3)
        assert proxy.stop() == 0
    lines = [line for path in usage.glob("usage-p1-*.jsonl") for line in path.read_text().splitlines()]
    return [one for one in map(json.loads, lines) if one["kind"] == "produce"]


def forecast(directory: Path, usage: Path) -> dict[str, str]:
    """Return the only row of the forecast under the rule."""
    quotas, out = directory / "quotas.yaml", directory / "forecast"
    quotas.write_text(yaml.safe_dump({"quotas": [RULE]}))
    words: list[str | Path] = ["whatif", "--usage", usage, "--quotas", quotas, "--out", out]
    words += [word for setting in SMALL for word in ("--conf", setting)]
    run([sys.executable, "-m", "kafka_quota_proxy.pipeline", *words], timeout_s=300, cwd=ROOT)
    (path,) = (out / "entities").glob("*.csv")
    with path.open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    return row


@pytest.mark.pipeline
def test_forecast_for_clients_that_share_a_user_rule_is_within_a_tenth(kafka_4: Kafka, tmp_path: Path) -> None:
    observed = measured(kafka_4, tmp_path / "observed", {"enforcement": "observe"})
    row = forecast(tmp_path, tmp_path / "observed")

    happened = measured(kafka_4, tmp_path / "happened", {"quotas": [RULE]})

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
