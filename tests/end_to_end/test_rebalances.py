"""Partitions move at the rate of the configuration file, and other traffic is not affected.

The clusters have no throttle of their own. Their followers fetch as those of 4.x, 3.9 and 0.10.1 do.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.end_to_end.support.artifacts import KAFKA_2_8, KAFKA_3_9, KAFKA_4, KAFKA_4_3
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.processes import run
from tests.end_to_end.support.rebalance import Bed, Growth, Load, Reassignment, behind_proxies, load
from tests.end_to_end.support.steady import SteadyClients, SyncWatch

MB: Final = 1_000_000
RECORD_BYTES: Final = 16_300


# The brokers' own throttle lets a whole set of windows pass at once, which with eleven windows is a short move.
FEW_WINDOWS: Final[dict[str, str | int]] = {"replication.quota.window.num": 3}


@pytest.fixture(scope="module", params=[KAFKA_4])
def bed(request: pytest.FixtureRequest) -> Iterator[Bed]:
    with behind_proxies(request.param, {}, config=FEW_WINDOWS) as bed:
        yield bed


def throttled(*loads: Load, rate: int) -> dict[str, Any]:
    """Return the configuration that limits the replication of these loads to a rate."""
    return {
        "replication": {
            "leader.replication.throttled.rate": rate,
            "throttled.replicas": {one.topic: "*" for one in loads},
        }
    }


@pytest.mark.long
@pytest.mark.parametrize("bed", [KAFKA_4, KAFKA_4_3, KAFKA_3_9, KAFKA_2_8], indirect=True)
def test_replica_grows_at_the_configured_rate_and_is_identical(bed: Bed) -> None:
    kafka, proxy = bed
    source, _, target = kafka.brokers
    moving = load(kafka, on=[1], size_bytes=60 * MB, record_bytes=RECORD_BYTES)
    written = moving.digests(source)
    assert proxy.reload(throttled(moving, rate=10 * MB))

    reassignment = Reassignment(load=moving, to=[3])
    with Growth(moving, target) as growth:
        reassignment.execute()
        reassignment.wait(timeout_s=60)

    assert growth.rate() == pytest.approx(10 * MB, rel=0.05)
    assert moving.digests(target) == written
    assert "still in progress" not in reassignment.verify()


@pytest.mark.long
def test_follower_rate_holds_over_all_its_leaders(bed: Bed) -> None:
    from_1, from_2 = rates_of_two_moves(bed, {"follower.replication.throttled.rate": 10 * MB})

    assert from_1 + from_2 == pytest.approx(10 * MB, rel=0.1)
    assert min(from_1, from_2) > 3 * MB


def test_each_path_has_its_own_rate(bed: Bed) -> None:
    paths = [{"leader": 1, "follower": 3, "rate": 3 * MB}, {"leader": 2, "follower": 3, "rate": 6 * MB}]

    from_1, from_2 = rates_of_two_moves(bed, {"paths": paths})

    assert from_1 == pytest.approx(3 * MB, rel=0.1)
    assert from_2 == pytest.approx(6 * MB, rel=0.1)


def rates_of_two_moves(bed: Bed, replication: dict[str, Any]) -> tuple[float, float]:
    """Move loads from broker 1 and broker 2 to broker 3. Return both rates while both move."""
    kafka, proxy = bed
    loads = [load(kafka, on=[leader], size_bytes=40 * MB, record_bytes=RECORD_BYTES) for leader in (1, 2)]
    assert proxy.reload({"replication": replication})
    reassignments = [Reassignment(load=one, to=[3]) for one in loads]
    with Growth(loads[0], kafka.brokers[2]) as first, Growth(loads[1], kafka.brokers[2]) as second:
        for reassignment in reassignments:
            reassignment.execute("--additional")
        since_s = time.monotonic()
        second.wait_for(20 * MB, timeout_s=30)
        until_s = time.monotonic()
        assert proxy.reload({})
        for reassignment in reassignments:
            reassignment.wait(timeout_s=30)
    return first.rate(since_s=since_s, until_s=until_s), second.rate(since_s=since_s, until_s=until_s)


@pytest.mark.long
def test_throttle_of_kafkas_tool_holds_and_proxy_hardly_adds_to_it(bed: Bed) -> None:
    kafka, proxy = bed
    rates = []
    for settings in ({}, {"replication": {"from_cluster": True, "poll_interval": "200ms"}}):
        moving = load(kafka, on=[1], size_bytes=60 * MB, record_bytes=RECORD_BYTES)
        assert proxy.reload(settings)
        reassignment = Reassignment(load=moving, to=[3], throttle=10 * MB)
        with Growth(moving, kafka.brokers[2]) as growth:
            reassignment.execute()
            reassignment.wait(timeout_s=60)
        assert "Clearing topic-level throttles" in reassignment.verify()
        rates.append(growth.rate())

    kafkas_own, both = rates
    # In these six seconds other load matters. test_rebalances_measured.py reaches 0.95 over whole minutes.
    assert 0.75 * kafkas_own <= both <= 10.5 * MB


def test_only_moving_replicas_are_out_of_sync_and_clients_continue(bed: Bed) -> None:
    kafka, proxy = bed
    moving = load(kafka, on=[1], size_bytes=40 * MB, record_bytes=RECORD_BYTES)
    calm = create_topic(kafka, replicas=[1, 3, 2])
    assert proxy.reload(throttled(moving, rate=5 * MB))

    reassignment = Reassignment(load=moving, to=[3])
    with SteadyClients(kafka, calm, records_per_second=200) as clients, SyncWatch(kafka) as watch:
        reassignment.execute()
        reassignment.wait(timeout_s=60)

    assert watch.under_replicated == {moving.topic}
    assert clients.failures == []
    assert len(clients.read) == len(clients.acknowledged) > 200 * 40 / 5


@pytest.mark.long
def test_lifted_throttle_gives_full_speed_within_a_second(bed: Bed) -> None:
    kafka, proxy = bed
    moving = load(kafka, on=[1], size_bytes=200 * MB, record_bytes=RECORD_BYTES)
    assert proxy.reload(throttled(moving, rate=5 * MB))

    reassignment = Reassignment(load=moving, to=[3])
    with Growth(moving, kafka.brokers[2]) as growth:
        reassignment.execute()
        growth.wait_for(20 * MB, timeout_s=20)
        lifted_s = time.monotonic()
        assert proxy.reload({})
        reassignment.wait(timeout_s=20)

    assert growth.between(lifted_s, lifted_s + 1) > 30 * MB
    # In these two seconds other load matters. test_rebalances_measured.py reaches 0.95 over whole minutes.
    assert 0.7 * 5 * MB <= growth.rate(since_s=lifted_s - 2, until_s=lifted_s) <= 1.1 * 5 * MB


@pytest.mark.long
def test_very_low_rate_causes_no_busy_loop(bed: Bed) -> None:
    kafka, proxy = bed
    rate, seconds = 10_000, 8
    moving = load(kafka, on=[1], size_bytes=20 * MB, record_bytes=RECORD_BYTES)
    calm = create_topic(kafka, replicas=[1, 3, 2])
    assert proxy.reload(throttled(moving, rate=rate))
    reassignment = Reassignment(load=moving, to=[3])

    with SyncWatch(kafka) as watch:
        idle = Effort(bed, seconds)
        began_s = time.monotonic()
        reassignment.execute()
        with Growth(moving, kafka.brokers[2]) as growth, SteadyClients(kafka, calm, records_per_second=2):
            busy = Effort(bed, seconds)
    assert proxy.reload({})
    reassignment.wait(timeout_s=30)

    assert watch.under_replicated == {moving.topic}
    for process, cores in busy.cores.items():
        assert cores - idle.cores[process] < 0.05, process
    assert busy.fetches_per_second < idle.fetches_per_second + 10
    most = rate * (busy.ended_s - began_s) + moving.partitions * RECORD_BYTES  # one response more than the rate
    assert 0 < growth.samples[-1].size_bytes <= most


@pytest.mark.long
def test_end_of_a_move_is_forecast_at_a_quarter_of_it(bed: Bed) -> None:
    kafka, proxy = bed
    moving = load(kafka, on=[1], size_bytes=160 * MB, record_bytes=RECORD_BYTES)
    assert proxy.reload(throttled(moving, rate=5 * MB))
    Reassignment(load=moving, to=[3]).execute()

    command: list[str | Path] = [
        sys.executable,
        "-m",
        "proxy",
        "rebalance",
        proxy.file,
        "--watch",
        "--every",
        "5s",
        "--json",
    ]
    *reports, end = [json.loads(line) for line in run(command, timeout_s=90).splitlines()]

    assert end["state"] == "done"
    assert {one["state"] for one in reports} == {"ends"}
    quarter = next(one for one in reports if one["done_percent"] >= 25)
    assert quarter["time_left_ms"] == pytest.approx(end["time_ms"] - quarter["time_ms"], rel=0.15)


class Effort:
    """The cores that each process of the bed uses in some seconds, and the rate of fetches through the proxy."""

    def __init__(self, bed: Bed, seconds: float) -> None:
        processes = {f"broker {broker.node_id}": broker.process for broker in bed.kafka.brokers}
        processes["proxy"] = bed.proxy.process
        before = {name: process.cpu_seconds() for name, process in processes.items()}
        fetches = _fetches(bed)
        time.sleep(seconds)
        self.ended_s = time.monotonic()
        self.cores = {name: (process.cpu_seconds() - before[name]) / seconds for name, process in processes.items()}
        self.fetches_per_second = (_fetches(bed) - fetches) / seconds


def _fetches(bed: Bed) -> float:
    return bed.proxy.metrics().total("kafka_quota_proxy_frames_total", api="Fetch")
