"""Tests the order in which connections are drained while the proxy stops."""

from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.proxy.server.drain import DrainSchedule

STARTED_MS = 86_400_000


def test_ten_thousand_connections_end_evenly_within_half_of_the_drain() -> None:
    drain = DrainSchedule(10_000, now_ms=STARTED_MS, timeout_ms=20_000)

    turns = [drain.due(now_ms=STARTED_MS + at_ms) for at_ms in range(0, 10_001, 1_000)]

    assert turns == [1, *range(1_001, 10_000, 1_000), 10_000]
    assert drain.ends_ms == STARTED_MS + 20_000


def test_few_connections_drain_within_milliseconds() -> None:
    drain = DrainSchedule(10, now_ms=STARTED_MS, timeout_ms=20_000)

    assert drain.due(now_ms=STARTED_MS) == 1
    assert drain.due(now_ms=STARTED_MS + 50) == 10


def test_no_connections_drain_at_once() -> None:
    assert DrainSchedule(0, now_ms=STARTED_MS, timeout_ms=1).due(now_ms=STARTED_MS) == 0


@given(st.integers(0, 30_000), st.integers(1, 600_000), st.lists(st.integers(0, 700_000), min_size=2))
def test_turns_only_grow_and_all_have_had_theirs_by_half_time(count: int, timeout_ms: int, times: list[int]) -> None:
    drain = DrainSchedule(count, now_ms=STARTED_MS, timeout_ms=timeout_ms)

    turns = [drain.due(now_ms=STARTED_MS + at_ms) for at_ms in sorted(times)]

    assert turns == sorted(turns)
    assert all(0 <= turn <= count for turn in turns)
    assert drain.due(now_ms=STARTED_MS + timeout_ms // 2) == count
