"""Shows every place of the proxy where a kind of quota appears, for a kind that does not exist.

A test copies the proxy, and adds the kind as one row to the copy's table of quota kinds. Then the test runs
``python -m tests.support.made_up_kind DIRECTORY``, which prints a JSON object.
"""

import asyncio
import contextlib
import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafka_quota_proxy.config.load import load
from kafka_quota_proxy.config.quota_kinds import KIND_OF_KEY
from kafka_quota_proxy.proxy.__main__ import main
from kafka_quota_proxy.proxy.admin.metrics.exposition import write
from kafka_quota_proxy.proxy.admin.metrics.registry import MetricRegistry
from kafka_quota_proxy.proxy.server.server import Server
from kafka_quota_proxy.proxy.usage.meter import Meter, MeteredBroker
from kafka_quota_proxy.proxy.usage.record import Timeline
from tests.support.quota_page import page
from tests.support.reloads import Reloads

KEY = "frame_rate"
FILE = f"""
listeners: [{{name: clients, bind: 127.0.0.1:0, upstream: 127.0.0.1:19092}}]
usage_log: {{directory: usage}}
quotas: [{{user: alice, {KEY}: 5k}}]
"""


def shown(directory: Path) -> dict[str, Any]:
    path = directory / "c.yaml"
    path.write_text(FILE)
    config = load(path).config
    with contextlib.redirect_stdout(io.StringIO()) as explained:
        main(["explain", str(path), "--user", "alice", "--json"])

    server = Server(replace(config, usage_log=None))
    quotas = server.brokers.quotas[0]
    bucket = quotas.bucket(KIND_OF_KEY[KEY], principal="alice", client_id="etl", now_ms=0)
    bucket.charge(70, now_ms=0)
    metrics = b"".join(write(MetricRegistry(server, Reloads()).collect(1, lambda: None), lambda: None)).decode()
    meter = Meter("p1", Timeline(wall_ms=0, now_ms=0))
    batches = meter.read([MeteredBroker(1, quotas, enforces=True)], [], wall_ms=1_000, now_ms=1_000)
    records = [json.loads(line) for batch in batches if batch is not None for line in batch.lines()]
    return {
        "file": dict(config.quotas[0].limits),
        "explain": json.loads(explained.getvalue())[KEY]["limit"],
        "metrics": [line for line in metrics.splitlines() if "frame" in line and not line.startswith("#")],
        "usage_log": [(record["kind"], record["amount"], record["limit"]) for record in records],
        "store": asyncio.run(_stored(directory)),
    }


async def _stored(directory: Path) -> dict[str, float]:
    async with page(directory) as one:
        await one.post({"changes": [{"entity": {"user": "bob"}, "limits": {KEY: 7}}]})
        (rule,) = [rule for rule in one.server.quota_manager.rules.quotas if rule.user == "bob"]
        return dict(rule.limits)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(shown(Path(sys.argv[1]))))
