"""``kafka_server_…`` in ``/metrics`` equal the broker's MBeans under one load, in name and value.

The proxy enforces the broker's quotas, so both measure the same requests against the same limits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from statistics import median
from typing import Final, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.beans import BeanWatch, Reading, Series
from tests.end_to_end.support.broker_quotas import BrokerQuotas, Entity
from tests.end_to_end.support.clients import QUIET, create_topic
from tests.end_to_end.support.frames import raw_client
from tests.end_to_end.support.kafka import DIRECT, PROXIED, Kafka
from tests.end_to_end.support.load import KIB, MIB, batch_of, fetch_flood, produce_flood
from tests.end_to_end.support.processes import wait_until
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.scrapes import Scrapes

# Windows fill in this time, and then both sides are read.
_WARM_UP_S: Final = 4
_READ_S: Final = 6
_STEADY, _FLOODS, _MAKES = "steady one", "floods", "makes"
_FETCHES_HERE, _FETCHES_THERE = "fetches here", "fetches there"
_ANONYMOUS: Final = "ANONYMOUS"
_P, _C, _R, _M = "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"
_SLOW: Final = 64 * KIB
_LIMITS: Final = {
    Entity(_ANONYMOUS, _STEADY): {_P: 10.0 * MIB, _C: 20.0 * MIB, _R: 1_000.0},
    Entity(None, _FLOODS): {_P: float(_SLOW)},
    Entity(None, _FETCHES_THERE): {_C: float(_SLOW)},
    Entity(None, _MAKES): {_M: 5.0},
}
_QUOTA_VALUE: Final = {_P: "produce_byte_quota_value", _C: "fetch_byte_quota_value", _R: "request_request_quota_value"}
_BEANS: Final = (
    *(f"kafka.server:type={kind},*" for kind in ("Produce", "Fetch", "Request", "ControllerMutation")),
    f"kafka.server:type=socket-server-metrics,listener={PROXIED}",
)


class BothSides(NamedTuple):
    """The broker's readings, and scrapes of the proxy at the same times."""

    broker: list[Reading]
    proxy: Scrapes

    def pairs(self, name: str, **labels: str) -> list[tuple[float, float]]:
        """Return the pairs of values of a series, the broker's and the proxy's."""
        series = Series(f"kafka_server_{name}", frozenset(labels.items()))
        return [
            (reading.values[series], self.proxy.nearest(reading.at_s).total(series.name, **labels))
            for reading in self.broker
        ]

    def ratio(self, name: str, **labels: str) -> float:
        """Return the median of the proxy's values over the broker's."""
        pairs = self.pairs(name, **labels)
        assert min(kafkas for kafkas, _ in pairs) > 0, (name, pairs)
        return median(ours / kafkas for kafkas, ours in pairs)


def _reads_and_writes(proxy: Proxy, full: str, empty: str, is_over: threading.Event) -> None:
    batch = batch_of(4 * KIB)
    with raw_client(proxy.port(), client_id=_STEADY) as client:
        while not is_over.wait(0.02):
            client.produce(empty, batch)
            client.fetch(full, offset=0, max_bytes=16 * KIB)


def _connects(proxy: Proxy, is_over: threading.Event) -> None:
    while not is_over.wait(0.1):
        with raw_client(proxy.port(), client_id="connects") as client:
            client.api_versions()


def _makes_topics(proxy: Proxy) -> None:
    admin = AdminClient({"bootstrap.servers": proxy.address(), "client.id": _MAKES, **QUIET})
    wanted = NewTopic("made", 20, replication_factor=1)
    admin.create_topics([wanted])["made"].result(timeout=30)


@contextmanager
def _threads(*works: Callable[[], object]) -> Iterator[None]:
    with ThreadPoolExecutor(len(works)) as pool:
        running = [pool.submit(work) for work in works]
        yield
        for one in running:
            one.result()


@pytest.fixture(scope="module")
def both_sides() -> Iterator[BothSides]:
    rules = [{"client-id": _FETCHES_HERE, _C: _SLOW}]
    with (
        Kafka(KAFKA_4, jmx=True) as kafka,
        BrokerQuotas(kafka) as quotas,
        Proxy({"quotas_from": "broker", "quotas": rules}, kafka) as proxy,
    ):
        quotas.replace(_LIMITS)
        limits = 1 + sum(map(len, _LIMITS.values()))
        wait_until(
            lambda: len(proxy.metrics().values("kafka_quota_proxy_quota_limit")) >= limits,
            timeout_s=10,
            what="the proxy has the broker's quotas",
        )
        full, empty = create_topic(kafka), create_topic(kafka)
        with raw_client(kafka.listener(DIRECT).port) as client:
            for _ in range(2):
                client.produce(full, batch_of(16 * KIB))
        is_over = threading.Event()
        here, there, seconds = proxy.port(), kafka.listener(DIRECT).port, _WARM_UP_S + _READ_S
        size = 16 * KIB
        with _threads(
            lambda: _reads_and_writes(proxy, full, empty, is_over),
            lambda: _connects(proxy, is_over),
            lambda: _makes_topics(proxy),
            lambda: produce_flood(here, empty, client_id=_FLOODS, request_bytes=size, seconds=seconds),
            lambda: fetch_flood(here, full, client_id=_FETCHES_HERE, max_bytes=size, seconds=seconds),
            lambda: fetch_flood(there, full, client_id=_FETCHES_THERE, max_bytes=size, seconds=seconds),
        ):
            time.sleep(_WARM_UP_S)
            with BeanWatch(kafka, *_BEANS) as beans, Scrapes(proxy) as scrapes:
                time.sleep(_READ_S)
                readings = beans.readings()
            is_over.set()
        yield BothSides(readings, scrapes)


_STEADY_LABELS: Final = {"user": _ANONYMOUS, "client_id": _STEADY}
_FLOODS_LABELS: Final = {"client_id": _FLOODS}


def test_every_client_attribute_is_a_series_of_the_same_name(both_sides: BothSides) -> None:
    passed_here = {_STEADY, _FLOODS, _MAKES, _FETCHES_HERE}
    kafkas = {one for one in both_sides.broker[-1].values if dict(one.labels).get("client_id") in passed_here}

    scrape = both_sides.proxy.last
    assert len(kafkas) > 10
    assert [one for one in kafkas if len(scrape.values(one.name, **dict(one.labels))) != 1] == []


@pytest.mark.parametrize(
    ("name", "labels", "tolerance"),
    [
        ("produce_byte_rate", _STEADY_LABELS, 0.03),
        ("fetch_byte_rate", _STEADY_LABELS, 0.03),
        ("produce_byte_rate", _FLOODS_LABELS, 0.03),
        ("produce_throttle_time", _FLOODS_LABELS, 0.05),
        ("controllermutation_mutation_rate", {"client_id": _MAKES}, 0.03),
        ("controllermutation_tokens", {"client_id": _MAKES}, 0.1),
        # Windows begin with the first connection, which came earlier at the broker.
        ("socket_server_metrics_connection_accept_rate", {"listener": PROXIED}, 0.15),
    ],
    ids=str,
)
def test_value_equals_the_brokers(both_sides: BothSides, name: str, labels: dict[str, str], tolerance: float) -> None:
    assert both_sides.ratio(name, **labels) == pytest.approx(1, abs=tolerance)


def test_quota_values_equal_the_brokers_limits(both_sides: BothSides) -> None:
    scrape = both_sides.proxy.last
    quota_values = {
        (entity, key): scrape.values(f"kafka_server_{name}", user=entity.user or "", client_id=entity.client_id or "")
        for entity, limits in _LIMITS.items()
        for key, name in _QUOTA_VALUE.items()
        if key in limits and entity.client_id != _FETCHES_THERE  # this client uses the broker directly
    }

    assert quota_values == {(entity, key): [_LIMITS[entity][key]] for entity, key in quota_values}
    assert len(quota_values) == 4
