"""The log of a running proxy reports when a client begins to be throttled, and when this ends, with a real Kafka."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Final

import confluent_kafka
import pytest

from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.processes import wait_until
from tests.end_to_end.support.proxy import Proxy

_RULES: Final = [{"client-id": "etl", "producer_byte_rate": 100_000}]
_SENT_BYTES: Final = 200_000
_WITHIN_S: Final = 60.0


def produce(proxy: Proxy, topic: str, count: int) -> None:
    """Send records of 200 kB, each in a request of its own."""
    settings = {"bootstrap.servers": proxy.address(), "client.id": "etl", "linger.ms": 0}
    producer = confluent_kafka.Producer(settings)
    for _ in range(count):
        producer.produce(topic, b"x" * _SENT_BYTES)
        assert producer.flush(30) == 0


def explained(proxy: Proxy) -> str:
    """Return what ``explain`` prints of the client."""
    command = [sys.executable, "-m", "proxy", "explain", str(proxy.file), "--client-id", "etl"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.proof
def test_text_names_rule_level_and_limit_as_explain_does(kafka_4: Kafka) -> None:
    topic = create_topic(kafka_4)
    with Proxy({"quotas": _RULES, "shaping": "paced"}, kafka_4) as proxy:
        produce(proxy, topic, 1)
        wait_until(lambda: " throttled: " in proxy.log, timeout_s=_WITHIN_S, what="the log names the client")
        (line,) = [one for one in proxy.log.splitlines() if " throttled: " in one]
        words = explained(proxy)

    found = re.fullmatch(
        r"\S+ WARNING server\.clients\.throttle_log throttled: client-id='etl' from 127\.0\.0\.1; "
        r"waits for throttle_time; producer_byte_rate: used more "
        r"than was left of its limit (.*), and waits \S+ s; .* per second in the last 11 s; rule (.*), level (.*)",
        line,
    )
    assert found is not None, line
    limit, rule, level = found.groups()
    assert f"producer_byte_rate: {limit}\n" in words
    assert f"  rule         {rule}\n" in words
    assert f"  level        {level}\n" in words
