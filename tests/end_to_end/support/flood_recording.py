"""Records ``/metrics`` of a proxy under floods and calm clients, for the tests of the alert rules.

``python -m tests.end_to_end.support.flood_recording [SECONDS]`` writes ``tests/data/floods.json``: the series that the
rules query, every 15 s. The proxy has default settings, and runs in front of a real Kafka. Each client has a quota of
256 KiB/s, and runs once with a sampled and once with a paced quota:

* floods: a producer and a consumer of Java (Kafka's own performance tools) and of librdkafka;
* calm: a producer at 0.6 of its quota, and thirty connections that all write at once every ten seconds, at 0.6 of
  the quota on average.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Event
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from tests.end_to_end.support.artifacts import KAFKA_4, java
from tests.end_to_end.support.crowds import KIB, topic_to_read, topic_to_write
from tests.end_to_end.support.endless import BUFFER_BYTES, RECORD_BYTES, consume_endlessly, produce_endlessly
from tests.end_to_end.support.frames import PRODUCE, PRODUCE_VERSION, RawClient, produce_body, record_batch
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.processes import Process, scratch
from tests.end_to_end.support.proxy import Proxy

RECORDING: Final = Path(__file__).parents[2] / "data" / "floods.json"
_SERIES: Final = (
    "kafka_quota_proxy_bytes_total",
    "kafka_quota_proxy_requests_total",
    "kafka_quota_proxy_throttled_requests_total",
    "kafka_quota_proxy_throttle_seconds_total",
    "kafka_quota_proxy_quota_utilisation_ratio",
    "kafka_quota_proxy_quota_used_seconds_total",
)
_SHAPES: Final = ("sampled", "paced")
_QUOTA: Final = 256 * KIB
_CALM: Final = 0.6
_INTERVAL_S: Final = 15
_WARM_UP_S: Final = 60
_SECONDS: Final = 600
_CROWD: Final = 30
_CROWD_EVERY_S: Final = 10.0
_KAFKA_TOOLS: Final = "org.apache.kafka.tools."


def _java(kafka: Kafka, directory: Path, name: str, *arguments: str) -> Process:
    tool = f"{_KAFKA_TOOLS}{arguments[0]}"
    command = (java(), "-Xmx256m", "-XX:+UseSerialGC", "-cp", kafka.classpath, tool, *arguments[1:])
    return Process(command, log=directory / f"{name}.log")


def _java_producer(kafka: Kafka, directory: Path, address: str, topic: str, client_id: str) -> Process:
    settings = (f"bootstrap.servers={address}", f"client.id={client_id}", f"buffer.memory={BUFFER_BYTES}")
    counts = ("--num-records", "1000000000", "--record-size", str(RECORD_BYTES), "--throughput", "-1")
    return _java(
        kafka, directory, client_id, "ProducerPerformance", "--topic", topic, *counts, "--producer-props", *settings
    )


def _java_consumer(kafka: Kafka, directory: Path, address: str, topic: str, client_id: str) -> Process:
    file = directory / f"{client_id}.properties"
    file.write_text(f"client.id={client_id}\n")
    words = ("--bootstrap-server", address, "--topic", topic, "--consumer.config", str(file))
    # The tool would end after ``--timeout`` milliseconds without a record.
    counts = ("--messages", "1000000000", "--timeout", "3600000")
    return _java(kafka, directory, client_id, "ConsumerPerformance", *words, *counts)


def _crowd(port: int, topic: str, client_id: str, end: Event) -> None:
    """Let thirty connections write at the same time, once every ten seconds."""
    clients = [RawClient(port, client_id=client_id, timeout_s=60) for _ in range(_CROWD)]
    size = int(_QUOTA * _CALM * _CROWD_EVERY_S / _CROWD)
    body = produce_body(topic, record_batch([os.urandom(size)]), acks=1)
    begin_s = time.monotonic()
    while not end.is_set():
        for client in clients:
            client.send(PRODUCE, PRODUCE_VERSION, body)
        for client in clients:
            client.receive()
        begin_s += _CROWD_EVERY_S
        end.wait(max(0.0, begin_s - time.monotonic()))
    for client in clients:
        client.close()


def _scrapes(proxy: Proxy, seconds: int) -> Iterator[dict[str, float]]:
    at_s = time.monotonic()
    for _ in range(seconds // _INTERVAL_S + 1):
        time.sleep(max(0.0, at_s - time.monotonic()))
        at_s += _INTERVAL_S
        found = {}
        for family in text_string_to_metric_families(proxy.admin("/metrics")):
            for sample in family.samples:
                if sample.name in _SERIES and sample.labels["client_id"]:
                    labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
                    found[f"{sample.name}{{{labels}}}"] = round(sample.value, 3)
        yield found


def record(seconds: int = _SECONDS) -> None:
    """Run all clients, and write the recording."""
    end = Event()
    with ExitStack() as stack:
        kafka = stack.enter_context(Kafka(KAFKA_4, config={"log.retention.check.interval.ms": 30_000}))
        directory = stack.enter_context(scratch("recording"))
        to_read = topic_to_read(kafka, size_bytes=int(_QUOTA * (seconds + _WARM_UP_S) * 1.3)).name
        to_write = topic_to_write(kafka).name
        rules: list[dict[str, object]] = []

        def limited(name: str, shape: str, key: str) -> str:
            rules.append({"client-id": f"{name}-{shape}", key: _QUOTA, "shaping": shape})
            return f"{name}-{shape}"

        threads: list[Callable[[], None]] = []
        processes: list[Callable[[], Process]] = []
        address, port = kafka.listener().advertised_address, kafka.listener().advertised_port
        for shape in _SHAPES:
            ids = {
                name: limited(name, shape, key)
                for name, key in (
                    ("java-producer", "producer_byte_rate"),
                    ("java-consumer", "consumer_byte_rate"),
                    ("librdkafka-producer", "producer_byte_rate"),
                    ("librdkafka-consumer", "consumer_byte_rate"),
                    ("calm-producer", "producer_byte_rate"),
                    ("calm-crowd", "producer_byte_rate"),
                )
            }
            processes += [
                partial(_java_producer, kafka, directory, address, to_write, ids["java-producer"]),
                partial(_java_consumer, kafka, directory, address, to_read, ids["java-consumer"]),
            ]
            calm_rate = _QUOTA * _CALM
            threads += [
                partial(produce_endlessly, address, to_write, ids["librdkafka-producer"], end),
                partial(consume_endlessly, address, to_read, ids["librdkafka-consumer"], end),
                partial(produce_endlessly, address, to_write, ids["calm-producer"], end, bytes_a_second=calm_rate),
                partial(_crowd, port, to_write, ids["calm-crowd"], end),
            ]
        proxy = stack.enter_context(Proxy({"quotas": rules}, kafka))
        pool = stack.enter_context(ThreadPoolExecutor(len(threads)))
        stack.callback(end.set)
        running = [pool.submit(run) for run in threads]
        for start in processes:
            stack.callback(start().kill)
        time.sleep(_WARM_UP_S)
        _write(list(_scrapes(proxy, seconds)))
        end.set()
        for one in running:
            one.result()


def _write(scrapes: list[dict[str, float]]) -> None:
    names = sorted(scrapes[-1])
    lines = [f"{json.dumps(name)}: {json.dumps([one[name] for one in scrapes])}" for name in names]
    RECORDING.parent.mkdir(exist_ok=True)
    RECORDING.write_text(f'{{"interval_s": {_INTERVAL_S}, "series": {{\n' + ",\n".join(lines) + "\n}}\n")


if __name__ == "__main__":
    record(*map(int, sys.argv[1:]))
