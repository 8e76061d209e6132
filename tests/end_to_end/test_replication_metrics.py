"""The metrics of KIP-73 during and after a throttled move equal the brokers' own, under the same throttle."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median
from typing import Final, NamedTuple

import pytest

from tests.end_to_end.support.artifacts import KAFKA_4
from tests.end_to_end.support.beans import BeanWatch, Reading, Series
from tests.end_to_end.support.processes import HarnessError, wait_until
from tests.end_to_end.support.proxy import Metrics
from tests.end_to_end.support.rebalance import Reassignment, behind_proxies, broker_of, load
from tests.end_to_end.support.scrapes import Scrapes

_MB: Final = 1_000_000
_RATE: Final = 4 * _MB
_SIZE_BYTES: Final = 30 * _MB
_RECORD_BYTES: Final = 16_300
_LEADER, _FOLLOWER = 1, 3
# The two metrics of each role, named by KIP-73 and by Kafka.
_RATES: Final = {
    "leader": ("kafka_quota_proxy_leader_replication_throttled_rate", "kafka_server_leaderreplication_byte_rate"),
    "follower": ("kafka_quota_proxy_follower_replication_throttled_rate", "kafka_server_followerreplication_byte_rate"),
}
_LAG: Final = "kafka_quota_proxy_sum_replica_lag"
# Windows are short, so that the initial burst of a short move is small.
_WINDOWS: Final[dict[str, str | int]] = {"replication.quota.window.num": 3}
_STARTS_S: Final = 2
_AFTER_S: Final = 15


class Move(NamedTuple):
    topic: str
    began_s: float  # Unix time
    ended_s: float
    readings: dict[str, list[Reading]]  # of the MBeans of leader and follower
    scrapes: Scrapes
    after: Metrics

    def steady(self, name: str, **labels: str) -> list[float]:
        """Return the values of a series at the times of the leader's readings, while the rate is even."""
        times_s = [reading.at_s for reading in self.readings["leader"]]
        inside = [at_s for at_s in times_s if self.began_s + _STARTS_S < at_s < self.ended_s - 1]
        return [self.scrapes.nearest(at_s).total(name, **labels) for at_s in inside]


@pytest.fixture(scope="module")
def move() -> Iterator[Move]:
    settings = {"replication": {"from_cluster": True, "poll_interval": "200ms"}, "kafka": dict(_WINDOWS)}
    with behind_proxies(KAFKA_4, settings, config=_WINDOWS, jmx=True) as (kafka, proxy):
        moving = load(kafka, on=[_LEADER], size_bytes=_SIZE_BYTES, record_bytes=_RECORD_BYTES, partitions=1)
        source, target = broker_of(kafka, _LEADER), broker_of(kafka, _FOLLOWER)
        reassignment = Reassignment(load=moving, to=[_FOLLOWER], throttle=_RATE)
        with ExitStack() as watches:
            reassignment.execute()
            began_s = time.time()
            scrapes = watches.enter_context(Scrapes(proxy))
            leader, follower = (
                watches.enter_context(BeanWatch(kafka, f"kafka.server:type={kind}Replication", broker=broker))
                for kind, broker in (("Leader", source), ("Follower", target))
            )
            has_lag = False
            while not reassignment.is_done():
                if time.time() > began_s + 60:
                    raise HarnessError(f"{moving.topic} has not moved in a minute")
                has_lag |= proxy.metrics().total(_LAG, broker=str(_FOLLOWER)) > 0
                time.sleep(0.2)
            ended_s = time.time()
            assert "Clearing topic-level throttles" in reassignment.verify()
            readings = {"leader": leader.readings(), "follower": follower.readings()}
        assert has_lag
        names = (*(name for both in _RATES.values() for name in both), _LAG)
        wait_until(
            lambda: not any(map(proxy.metrics().total, names)),
            timeout_s=_AFTER_S,
            what="all rates and lags are zero after the move",
        )
        yield Move(moving.topic, began_s, ended_s, readings, scrapes, proxy.metrics())


@pytest.mark.parametrize(("role", "broker"), [("leader", _LEADER), ("follower", _FOLLOWER)])
def test_rate_equals_the_throttle_and_the_brokers_mbean(move: Move, role: str, broker: int) -> None:
    of_kip, of_kafka = _RATES[role]
    rates = move.steady(of_kip, broker=str(broker))
    kafkas = [reading.values[Series(of_kafka, frozenset())] for reading in move.readings[role]]
    ratios = [
        move.scrapes.nearest(reading.at_s).total(of_kafka, broker=str(broker)) / rate
        for reading, rate in zip(move.readings[role], kafkas, strict=True)
        if rate > 0 and move.began_s + _STARTS_S < reading.at_s < move.ended_s - 1
    ]

    # Proxy and broker throttle the same replica, so the rate is a little lower than with one throttle.
    assert 0.6 < median(rates) / _RATE < 1.05
    assert len(ratios) > 10
    # Proxy and broker begin their windows at different times. In a short move, which has few windows, that shows.
    assert median(ratios) == pytest.approx(1, abs=0.1)


def test_rates_and_lag_are_zero_after_the_move(move: Move) -> None:
    rates = {name: move.after.values(name) for both in _RATES.values() for name in both}

    assert rates == {name: [0.0] for name in rates}
    assert move.after.total(_LAG) == 0
    moved = "kafka_quota_proxy_follower_replication_throttled_bytes_total"
    # The proxy reads the throttle up to a poll_interval after the start of the move. The first fetch may come earlier.
    assert move.after.total(moved, broker=str(_FOLLOWER)) > 0.95 * _SIZE_BYTES
