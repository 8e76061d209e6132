"""Runs Apache Kafka's own command-line tools from the release's jars, and parses their output."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tests.end_to_end.support.artifacts import config_command
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.processes import scratch

_PRODUCED: Final = re.compile(
    r"(?P<records>\d+) records sent, (?P<rate>[\d.]+) records/sec \([\d.]+ MB/sec\), "
    r"(?P<average>[\d.]+) ms avg latency, "
    r"(?P<most>[\d.]+) ms max latency, (?P<p50>\d+) ms 50th, (?P<p95>\d+) ms 95th, (?P<p99>\d+) ms 99th"
)
_THROTTLED: Final = re.compile(
    r"^producer-metrics:produce-throttle-time-(avg|max):\{[^}]*\}\s*: ([\d.]+)", re.MULTILINE
)
_MEBIBYTE: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """The summary of ``ProducerPerformance``. Latencies and throttle times are in milliseconds."""

    records: int
    records_per_second: float
    average_ms: float
    p50_ms: int
    p99_ms: int
    throttle_time_avg_ms: float
    throttle_time_max_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """The summary of ``ConsumerPerformance``. ``fetch_s`` does not include joining the group."""

    records: int
    size_bytes: float
    fetch_s: float


def producer_performance(
    kafka: Kafka,
    *,
    bootstrap_servers: str,
    topic: str,
    records: int,
    record_size_bytes: int,
    throughput: int = -1,
    properties: Mapping[str, str | int] | None = None,
    timeout_s: float = 200,
) -> Produced:
    """Run ``ProducerPerformance``. ``throughput`` is in records per second, or -1 for no limit."""
    settings = {"bootstrap.servers": bootstrap_servers} | dict(properties or {})
    with scratch("producer") as directory:
        # On its command line, the tool accepts no value that contains "=".
        file = directory / "producer.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        out = kafka.run_java(
            "org.apache.kafka.tools.ProducerPerformance",
            "--topic", topic,
            "--num-records", str(records),
            "--record-size", str(record_size_bytes),
            "--throughput", str(throughput),
            "--print-metrics",
            "--producer.config", file,
            timeout_s=timeout_s,
        )  # fmt: skip
    summaries = list(_PRODUCED.finditer(out))
    if not summaries:
        raise AssertionError(f"ProducerPerformance printed no summary:\n{out[-2_000:]}")
    summary = summaries[-1]
    throttled = {which: float(value) for which, value in _THROTTLED.findall(out)}
    return Produced(
        records=int(summary["records"]),
        records_per_second=float(summary["rate"]),
        average_ms=float(summary["average"]),
        p50_ms=int(summary["p50"]),
        p99_ms=int(summary["p99"]),
        throttle_time_avg_ms=throttled["avg"],
        throttle_time_max_ms=throttled["max"],
    )


def consumer_performance(
    kafka: Kafka,
    *,
    bootstrap_servers: str,
    topic: str,
    records: int,
    properties: Mapping[str, str | int] | None = None,
    timeout_s: float = 200,
) -> Consumed:
    """Run ``ConsumerPerformance`` until it has read this many records."""
    with scratch("consumer") as directory:
        file = directory / "consumer.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in (properties or {}).items()))
        out = kafka.run_java(
            "org.apache.kafka.tools.ConsumerPerformance",
            "--bootstrap-server", bootstrap_servers,
            "--topic", topic,
            "--messages", str(records),
            "--timeout", str(int(timeout_s * 1_000)),
            "--consumer.config", file,
            "--hide-header",
            timeout_s=timeout_s,
        )  # fmt: skip
    rows = [line.split(", ") for line in out.splitlines() if line.count(", ") == 9]
    if not rows:
        raise AssertionError(f"ConsumerPerformance printed no summary:\n{out[-2_000:]}")
    row = rows[-1]
    return Consumed(records=int(row[4]), size_bytes=float(row[2]) * _MEBIBYTE, fetch_s=float(row[7]) / 1_000)


def set_broker_quota(kafka: Kafka, name: str, limits: Mapping[str, float], *, entity_type: str = "clients") -> None:
    """Set a broker's own quota of a client-id or another entity, like ``kafka-configs.sh --alter``."""
    kafka.run_java(
        config_command(kafka.version),
        "--bootstrap-server", kafka.bootstrap_servers,
        "--alter", "--entity-type", entity_type, "--entity-name", name,
        "--add-config", ",".join(f"{key}={value}" for key, value in limits.items()),
    )  # fmt: skip


def jmx(kafka: Kafka, object_name: str, attribute: str | None = None) -> dict[str, float]:
    """Read one attribute or all of every matching MBean. The keys of the result are ``NAME:ATTRIBUTE``."""
    out = kafka.run_java(
        "org.apache.kafka.tools.JmxTool",
        "--jmx-url", f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{kafka.broker.jmx_port}/jmxrmi",
        "--object-name", object_name,
        *(("--attributes", attribute) if attribute else ()),
        "--one-time",
        "--report-format", "properties",
    )  # fmt: skip
    # The attributes of app-info are no numbers.
    lines = (line for line in out.splitlines() if "=" in line and "app-info" not in line)
    pairs = (line.rpartition("=") for line in lines if not line.startswith("time="))
    return {key: float(value) for key, _, value in pairs}
