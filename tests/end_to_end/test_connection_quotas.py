"""Twenty connections a second under a limit of five, at a broker and at the proxy at the same time."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from time import monotonic, sleep
from typing import NamedTuple

import pytest

from tests.end_to_end.support import tools
from tests.end_to_end.support.frames import API_VERSIONS, request
from tests.end_to_end.support.kafka import DIRECT, Kafka
from tests.end_to_end.support.proxy import Proxy

_SOURCE = "127.0.0.5"
_LIMIT = 5
_PER_SECOND = 20
_SECONDS = 13  # a burst, and the begin of the next, eleven seconds later
_AT_ONCE_S = 10  # Kafka's windows
_REFUSED = "kafka_quota_proxy_throttled_connections_total"


class _Attempt(NamedTuple):
    is_served: bool
    took_s: float


def _attempt(port: int) -> _Attempt:
    """Connect and send a request. Return whether it was answered, and when the answer or the end came."""
    started_s = monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=30, source_address=(_SOURCE, 0)) as client:
        try:
            client.sendall(request(API_VERSIONS, 0, 1, "raw", b""))
            is_served = bool(client.recv(4))
        except ConnectionError:
            is_served = False
        return _Attempt(is_served, monotonic() - started_s)


def _attempts(port: int) -> list[_Attempt]:
    with ThreadPoolExecutor(50) as pool:
        begun = []
        start_s = monotonic()
        for turn in range(_PER_SECOND * _SECONDS):
            sleep(max(0.0, start_s + turn / _PER_SECOND - monotonic()))
            begun.append(pool.submit(_attempt, port))
        return [one.result() for one in begun]


def _first_refused(attempts: list[_Attempt]) -> int:
    return [one.is_served for one in attempts].index(False)


def _served_of(attempts: list[_Attempt]) -> int:
    return sum(one.is_served for one in attempts)


def test_connection_rate_limit_accepts_as_many_as_kafka(kafka_4: Kafka) -> None:
    tools.set_broker_quota(kafka_4, _SOURCE, {"connection_creation_rate": _LIMIT}, entity_type="ips")
    quotas = [{"ip": _SOURCE, "connection_creation_rate": _LIMIT}]
    with Proxy({"quotas": quotas}, kafka_4) as proxy, ThreadPoolExecutor(2) as pool:
        kafkas, ours = pool.map(_attempts, (kafka_4.listener(DIRECT).port, proxy.port()))
        refused = proxy.metrics().total(_REFUSED)

    # The windows begin with the first connection, so both accept the same connections, except for delays of the
    # machine.
    assert _first_refused(ours) == pytest.approx(_first_refused(kafkas), abs=5)
    assert _served_of(ours) == pytest.approx(_served_of(kafkas), abs=2 * _LIMIT)
    assert _LIMIT * _AT_ONCE_S <= _served_of(ours) <= _LIMIT * (_SECONDS + _AT_ONCE_S)
    assert refused == len(ours) - _served_of(ours)
    assert median(one.took_s for one in ours if not one.is_served) < 1.5
