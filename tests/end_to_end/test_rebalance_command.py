"""The command ``rebalance`` forecasts the end of a move from its first quarter, or says that it never ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.processes import scratch
from tests.end_to_end.support.tools import producer_performance

_ROOT: Final = Path(__file__).parents[2]
_MB: Final = 1_000_000
_SIZE: Final = 160 * _MB
_INCOMING: Final = 3 * _MB
_TOO_LOW: Final = _MB // 5  # a busy machine produces more than that, too
_TOPIC: Final = "moving"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Kafka]:
    with Kafka(KAFKA_4, nodes=3, config={"log.segment.bytes": 64 * _MB}) as kafka:
        admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
        admin.create_topics([NewTopic(_TOPIC, replica_assignments={0: [1]})])
        admin.close()
        _produce(kafka, records=_SIZE // 100_000, record_size_bytes=100_000)
        yield kafka


def _produce(kafka: Kafka, *, records: int, record_size_bytes: int, throughput: int = -1) -> None:
    producer_performance(
        kafka,
        bootstrap_servers=kafka.bootstrap_servers,
        topic=_TOPIC,
        records=records,
        record_size_bytes=record_size_bytes,
        throughput=throughput,
    )


@contextmanager
def _steady_producer(kafka: Kafka) -> Iterator[None]:
    """Produce ``_INCOMING`` bytes a second, in ten parts."""
    is_flowing, is_over = threading.Event(), threading.Event()
    record = os.urandom(10_000)

    def produce() -> None:
        producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, linger_ms=20)
        producer.send(_TOPIC, record).get(timeout=20)
        is_flowing.set()
        due_s = time.monotonic()
        while not is_over.wait(max(0, due_s - time.monotonic())):
            due_s = max(due_s + 0.1, time.monotonic())  # delays of the machine are not caught up
            for _ in range(_INCOMING // 10 // len(record)):
                producer.send(_TOPIC, record)
        producer.close()

    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(produce)
        try:
            assert is_flowing.wait(30)
            yield
        finally:
            is_over.set()
            running.result()


@contextmanager
def _file(kafka: Kafka) -> Iterator[Path]:
    with scratch("rebalance") as directory:
        path = directory / "proxy.yaml"
        listener = {"name": "clients", "bind": "127.0.0.1:9092", "upstream": kafka.bootstrap_servers.split(",")[0]}
        path.write_text(yaml.safe_dump({"listeners": [listener]}))
        yield path


def _reassign(kafka: Kafka, node_id: int, *arguments: str) -> None:
    with scratch("plan") as directory:
        plan = directory / "plan.json"
        plan.write_text(json.dumps({"partitions": [{"topic": _TOPIC, "partition": 0, "replicas": [node_id]}]}))
        where = ("--bootstrap-server", kafka.bootstrap_servers, "--reassignment-json-file", plan)
        kafka.run_java("org.apache.kafka.tools.reassign.ReassignPartitionsCommand", *where, *arguments)


def _rebalance(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kafka_quota_proxy.proxy", "rebalance", str(path), *arguments]
    return subprocess.run(command, cwd=_ROOT, text=True, capture_output=True, check=False, timeout=120)


def _reports(run: subprocess.CompletedProcess[str]) -> list[Mapping[str, Any]]:
    assert run.stderr == ""
    return [json.loads(line) for line in run.stdout.splitlines()]


@pytest.mark.long
def test_a_move_under_a_throttle_below_the_incoming_rate_never_ends(cluster: Kafka) -> None:
    with _file(cluster) as path, _steady_producer(cluster):
        _reassign(cluster, 2, "--execute", "--throttle", str(_TOO_LOW))

        ended = _rebalance(path, "--json", "--by", "30s")

        _reassign(cluster, 2, "--cancel")
        (report,) = _reports(ended)
        assert (ended.returncode, report["state"]) == (1, "never ends"), report
        assert 0 < report["rate"] < report["incoming_rate"]
        by_s = report["by"]["time_left_ms"] / 1_000
        assert report["by"]["rate"] == pytest.approx(report["left_bytes"] / by_s + report["incoming_rate"], rel=1e-3)
