"""An operator sees who is throttled now, by which rule and since when, with a real proxy and a real producer."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.request import urlopen

import confluent_kafka
import pytest

from kafka_quota_proxy.testing import ThrottlingProxy

_LIMIT: Final = 100_000
_TIMEOUT_S: Final = 30.0


@contextmanager
def producing(proxy: ThrottlingProxy, client_id: str) -> Iterator[None]:
    """Produce as much as the client may, until the block ends."""
    settings = {"bootstrap.servers": proxy.bootstrap_servers, "client.id": client_id, "linger.ms": 5}
    producer = confluent_kafka.Producer(settings)
    is_over = threading.Event()

    def produce() -> None:
        while not is_over.is_set():
            try:
                producer.produce("orders", bytes(10_000), partition=0)
            except BufferError:
                producer.poll(0.05)
            producer.poll(0)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        producer.purge()


def throttled_row(proxy: ThrottlingProxy) -> dict[str, Any]:
    """Wait until a client is throttled, and return its row."""
    until_s = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < until_s:
        with urlopen(f"http://{proxy.admin}/clients?kind=produce&client_id=etl", timeout=10) as response:
            rows: list[dict[str, Any]] = json.load(response)["clients"]
        if rows and rows[0]["throttled"] and rows[0]["throttled_for_ms"] > 500:
            return rows[0]
        time.sleep(0.1)
    raise AssertionError("no client was throttled")


def top(proxy: ThrottlingProxy, *arguments: str) -> str:
    command = [sys.executable, "-m", "kafka_quota_proxy.proxy", "top", "--url", f"http://{proxy.admin}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S).stdout


@pytest.mark.proof
def test_a_throttled_producer_is_seen_with_its_rule_and_since_when() -> None:
    rule = {"client-id": "etl", "producer_byte_rate": _LIMIT, "shaping": "paced"}
    with ThrottlingProxy(quotas=[rule]) as proxy:
        began = datetime.now(UTC)
        with producing(proxy, "etl"):
            row = throttled_row(proxy)
            later = throttled_row(proxy)
            told = json.loads(top(proxy, "--once", "--json", "--kind", "produce"))
            table = top(proxy, "--once")

    since = datetime.fromisoformat(row["throttled_since"])
    assert began < since <= datetime.now(UTC) - timedelta(milliseconds=500)
    assert row["throttle_seconds_last_minute"] > 0.3
    assert (row["limit"], row["rule"]["client-id"], row["rule"]["user"], row["level"]) == (_LIMIT, "etl", None, 7)
    assert row["rule"]["source"].rpartition("/")[2].startswith("proxy.yaml:")
    assert (row["user"], row["client_id"], row["addresses"]) == ("ANONYMOUS", "etl", ["127.0.0.1"])
    assert row["connections"] >= 1
    # The stretch goes on, so its begin stays, but for the ms between two clocks.
    assert abs(datetime.fromisoformat(later["throttled_since"]) - since) < timedelta(milliseconds=50)
    (one,) = told["clients"]
    assert one.keys() == row.keys()
    assert (one["client_id"], one["throttled"], told["total"]) == ("etl", True, 1)
    assert abs(datetime.fromisoformat(one["throttled_since"]) - since) < timedelta(milliseconds=50)
    assert one["throttled_for_ms"] > row["throttled_for_ms"]
    assert any(line.split()[:2] == ["produce", "etl"] and "proxy.yaml:" in line for line in table.splitlines())
