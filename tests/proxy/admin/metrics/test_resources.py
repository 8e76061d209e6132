"""Tests the metrics of what the process uses."""

import os
import time
from pathlib import Path

import pytest

from kafka_quota_proxy.proxy.admin.metrics.exposition import Family
from kafka_quota_proxy.proxy.admin.metrics.registry import resource_metrics
from kafka_quota_proxy.proxy.server.loop_lag import LoopLag


def read(lag: LoopLag | None = None) -> dict[str, Family]:
    return {family.name: family for family in resource_metrics(lag or LoopLag())}


def value(name: str) -> float:
    ((labels, found),) = read()[name].samples
    assert labels == ""
    return found


def test_the_process_has_the_names_of_all_prometheus_clients() -> None:
    found = read()

    assert {name: found[name].type for name in sorted(found) if name.startswith("process_")} == {
        "process_cpu_seconds_total": "counter",
        "process_max_fds": "gauge",
        "process_open_fds": "gauge",
        "process_resident_memory_bytes": "gauge",
        "process_start_time_seconds": "gauge",
        "process_virtual_memory_bytes": "gauge",
    }


def test_cpu_time_and_open_files_are_those_of_now() -> None:
    cpu_s, open_fds = value("process_cpu_seconds_total"), value("process_open_fds")
    until_s = time.process_time() + 0.05
    while time.process_time() < until_s:
        pass
    files = [Path(os.devnull).open() for _ in range(7)]  # noqa: SIM115 - closed below

    assert value("process_open_fds") == open_fds + 7
    assert value("process_cpu_seconds_total") >= cpu_s + 0.03  # the system counts in steps of 10 ms
    assert value("process_cpu_seconds_total") == pytest.approx(time.process_time(), abs=0.1)
    assert 0 < value("process_start_time_seconds") <= time.time()
    for file in files:
        file.close()


def test_the_lag_is_a_histogram_in_seconds() -> None:
    lag = LoopLag()
    for lag_ms in (0, 3, 3, 30_000):
        lag.observe(lag_ms * 1_000_000)

    family = read(lag)["kafka_quota_proxy_event_loop_lag_seconds"]

    samples = dict(family.samples)
    assert family.type == "histogram"
    assert samples['_bucket{le="0.001"}'] == 1
    assert samples['_bucket{le="0.002"}'] == 1
    assert samples['_bucket{le="0.005"}'] == 3
    assert samples['_bucket{le="10.0"}'] == 3
    assert samples['_bucket{le="+Inf"}'] == samples["_count"] == 4
    assert samples["_sum"] == pytest.approx(30.006)
