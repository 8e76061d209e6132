"""Moves of two gigabytes under the proxy's and under Kafka's throttle, for ``bench/REBALANCES.md``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from tests.end_to_end.support import rebalance_record as record
from tests.end_to_end.support.artifacts import KAFKA_2_8, KAFKA_3_9, KAFKA_4_3
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.rebalance import Growth, Reassignment, behind_proxies, load, without_proxies
from tests.end_to_end.support.rebalance_record import COLUMNS, LATENCIES, RATES
from tests.end_to_end.support.steady import SteadyClients, SyncWatch, p99_ms

MB: Final = 1_000_000
SIZE: Final = 2_000 * MB
SMALL: Final = 16_300  # 64 of them and a bit fit replica.fetch.max.bytes
LARGE: Final = 1_000_000  # one fits, and a second one only in part
VERSIONS: Final = {KAFKA_4_3: "4.3.1", KAFKA_3_9: "3.9.1", KAFKA_2_8: "2.8.2 as 0.10.1"}
_WARMS_UP_S: Final = 20  # records are late until a new broker's code is compiled
_STARTS_S: Final = 5
KAFKAS, BOTH, FILE = COLUMNS[RATES]

pytestmark = [pytest.mark.rebalance, pytest.mark.timeout(900)]


@contextmanager
def throttling(version: str, column: str, rate: int) -> Iterator[Kafka]:
    """Run a cluster with the throttle of this column."""
    if column == KAFKAS:
        with without_proxies(version) as kafka:
            yield kafka
        return
    settings: dict[str, Any] = {"from_cluster": True}
    if column == FILE:
        settings = {"leader.replication.throttled.rate": rate}
    with behind_proxies(version, {"replication": settings}) as bed:
        yield bed.kafka


@pytest.mark.parametrize("column", COLUMNS[RATES])
@pytest.mark.parametrize(("size", "mb_per_s"), [(SMALL, 20), (SMALL, 40), (SMALL, 80), (LARGE, 20)])
@pytest.mark.parametrize("version", VERSIONS)
def test_throttled_move_of_two_gigabytes_is_measured(version: str, size: int, mb_per_s: int, column: str) -> None:
    rate = mb_per_s * MB
    with throttling(version, column, rate) as kafka:
        source, _, target = kafka.brokers
        moving = load(kafka, on=[1], size_bytes=SIZE, record_bytes=size)
        written = moving.digests(source)
        reassignment = Reassignment(load=moving, to=[3], throttle=None if column == FILE else rate)
        with Growth(moving, target) as growth:
            reassignment.execute()
            reassignment.wait(timeout_s=1.5 * SIZE / rate + 60)

        row = f"{VERSIONS[version]}, {mb_per_s} MB/s, records of {size // 1_000} kB"
        record.put(RATES, row, column, f"{growth.rate() / MB:.2f}")
        assert moving.digests(target) == written
        assert "still in progress" not in reassignment.verify()
        if column == FILE:
            assert growth.rate() == pytest.approx(rate, rel=0.05)
        if column == BOTH:
            assert growth.rate() >= 0.95 * MB * float(record.get(RATES, row, KAFKAS) or 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_latencies_of_other_clients_during_a_move_are_measured(version: str) -> None:
    quiet, kafkas, ours = COLUMNS[LATENCIES]
    rate, seconds = 20 * MB, 60
    for column in (quiet, kafkas, ours):
        settings = {"replication": {"leader.replication.throttled.rate": rate}} if column == ours else {}
        with behind_proxies(version, settings) as (kafka, _):
            moving = load(kafka, on=[1], size_bytes=seconds * rate, record_bytes=SMALL)
            calm = create_topic(kafka, replicas=[1, 3, 2])
            reassignment = Reassignment(load=moving, to=[3], throttle=rate if column == kafkas else None)
            with SteadyClients(kafka, calm, records_per_second=100) as clients, SyncWatch(kafka) as watch:
                clients.go_on(100 * _WARMS_UP_S)
                if column != quiet:
                    reassignment.execute()
                clients.go_on(100 * _STARTS_S)
                began = time.monotonic()
                clients.go_on(100 * (seconds - 2 * _STARTS_S))

            assert clients.failures == []
            assert watch.under_replicated <= {moving.topic}
            for what, latencies in (("produce", clients.acknowledged), ("consume", clients.read)):
                p99 = p99_ms(latencies, since_s=began)
                record.put(LATENCIES, f"{VERSIONS[version]}, {what}", column, f"{p99:.1f}")
