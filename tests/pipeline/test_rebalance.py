"""The formulas of KIP-73, with numbers that can be checked by hand."""

from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from kafka_quota_proxy.pipeline.rebalance import (
    ClientHour,
    Load,
    Partition,
    Side,
    client_hours,
    client_quarters,
    loads,
    quietest_hour,
)
from tests.pipeline.support import START_MS, frame, record, rows

HOUR_MS = 3_600_000


def test_a_new_replica_loads_its_leader_and_its_follower() -> None:
    now = {
        ("orders", 0): Partition(1, frozenset({1, 2}), 1_000, 10.0),
        ("orders", 1): Partition(2, frozenset({2, 1}), 500, 5.0),
        ("orders", 2): Partition(3, frozenset({3}), 9_999, 1.0),
    }

    found = loads(now, {("orders", 0): [1, 3, 4], ("orders", 1): [2, 3]})

    assert found == [
        Load(1, Side.LEADER, 2_000, 20.0),  # the leader sends the partition to two new followers
        Load(2, Side.LEADER, 500, 5.0),
        Load(3, Side.FOLLOWER, 1_500, 15.0),
        Load(4, Side.FOLLOWER, 1_000, 10.0),
    ]


def test_existing_replicas_are_not_copied() -> None:
    now = {("orders", 0): Partition(1, frozenset({1, 2, 3}), 1_000, 10.0)}

    assert loads(now, {("orders", 0): [3, 1]}) == []


def test_the_time_depends_on_the_throttle_above_the_incoming_rate() -> None:
    load = Load(1, Side.LEADER, 36_000_000, 1_000.0)

    assert load.time_ms(11_000.0) == HOUR_MS
    assert load.rate_to_end_in(HOUR_MS) == 11_000.0
    assert Load(1, Side.LEADER, 0, 1_000.0).time_ms(1_000.0) == 0


@given(left=st.integers(1, 2**50), incoming=st.floats(0, 1e9), window_ms=st.integers(1_000, 10**9))
def test_the_rate_for_a_window_ends_in_the_window(left: int, incoming: float, window_ms: int) -> None:
    load = Load(1, Side.LEADER, left, incoming)

    time_ms = load.time_ms(load.rate_to_end_in(window_ms))

    assert time_ms == pytest.approx(window_ms, rel=1e-6) or left * 1_000 / window_ms < incoming * 1e-9


def test_client_use_is_added_up_by_broker_and_quarter_of_an_hour(spark: SparkSession) -> None:
    log = [record(at_s=at, amount=at) for at in (900, 1_799, 1_800)]
    log += [record(broker=None), record(kind="leader_replication")]

    found = rows(client_quarters(frame(spark, log)), "quarter_ms")

    first, second = (START_MS + at * 1_000 for at in (900, 1_800))
    assert [tuple(row.values()) for row in found] == [
        (1, "produce", first, 2_699, first, second),
        (1, "produce", second, 1_800, second, second + 1_000),
    ]


def test_client_use_has_peak_and_mean_by_hour_with_hours_without_records() -> None:
    """Two days of four have traffic from 07:00 to 08:00 UTC, which is 09:00 to 10:00 in Berlin."""
    names = ("broker", "kind", "quarter_ms", "amount", "from_ms", "until_ms")
    ends = (START_MS, START_MS + 4 * 24 * HOUR_MS)
    log = [
        dict(zip(names, (1, "produce", START_MS + (day * 24 + 7) * HOUR_MS, day * 3_600, *ends), strict=True))
        for day in (1, 3)
    ]

    utc, berlin = (client_hours(log, ZoneInfo(zone)) for zone in ("UTC", "Europe/Berlin"))

    assert [one for one in utc if one.mean] == [ClientHour(1, "produce", 7, 3.0, 1.0)]
    assert [one for one in berlin if one.mean] == [ClientHour(1, "produce", 9, 3.0, 1.0)]
    assert len(utc) == 24
    assert client_hours([], ZoneInfo("UTC")) == []


def test_the_quietest_hours_may_go_over_midnight() -> None:
    busy = dict.fromkeys(range(24), 10.0) | {23: 1.0, 0: 1.0, 1: 1.0, 12: 0.0}

    assert quietest_hour(busy, 3 * HOUR_MS) == 23
    assert quietest_hour(busy, 1) == 12
    assert quietest_hour(busy, 100 * HOUR_MS) == 0


def test_hours_that_the_log_does_not_cover_are_not_the_quietest() -> None:
    office = {9: 5.0, 10: 3.0, 11: 0.0, 12: 4.0}

    assert quietest_hour(office, HOUR_MS) == 11
    assert quietest_hour(office, 2 * HOUR_MS) == 10
    assert quietest_hour(office, 4 * HOUR_MS) == 9
    assert quietest_hour(office, 5 * HOUR_MS) is None
    assert quietest_hour({}, HOUR_MS) is None
