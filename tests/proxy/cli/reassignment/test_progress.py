"""Tests of ``proxy.cli.reassignment.progress``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kafka_quota_proxy.proxy.cli.reassignment.progress import (
    Load,
    Move,
    Report,
    Sample,
    Sizes,
    report_of,
)

MB = 1_000_000


def test_a_load_answers_in_both_directions() -> None:
    load = Load(left_bytes=600 * MB, rate=12 * MB, incoming_rate=2 * MB, in_sync_rate=MB)

    assert load.time_left_ms == 60_000
    assert load.rate_to_end_in(60_000) == 13 * MB  # the throttle of a leader also counts what followers in sync fetch


def test_copying_nothing_takes_no_time_and_copying_at_the_incoming_rate_never_ends() -> None:
    assert Load(left_bytes=0, rate=0, incoming_rate=1).time_left_ms == 0
    assert Load(left_bytes=1, rate=2.0, incoming_rate=2).time_left_ms is None


_STEP_MS = 100
_SAMPLE_MS = 500
_ORDERS = Move("orders", 0, 4)
_PAYMENTS = Move("payments", 0, 4)


@dataclass
class Simulated:
    """Simulates moves to one broker under its throttle ``rate``. They copy one after the other while there is room.

    The throttle gets new room every ``grain_ms``. At one second, bytes are copied in bursts, as by Kafka.
    """

    moves: dict[Move, Sizes]
    rate: float
    incoming: Callable[[Move, int], float]  # bytes per second of a move at a time in ms
    grain_ms: int = _STEP_MS
    now_ms: int = 0
    done_at_ms: dict[Move, int] = field(default_factory=dict)

    def step(self) -> None:
        self.now_ms += _STEP_MS
        room = self.rate * self.grain_ms / 1_000 if self.now_ms % self.grain_ms == 0 else 0
        for move, before in list(self.moves.items()):
            leader_bytes = before.leader_bytes + round(self.incoming(move, self.now_ms) * _STEP_MS / 1_000)
            copied = round(min(room, leader_bytes - before.follower_bytes))
            room -= copied
            self.moves[move] = _sizes(leader_bytes, before.follower_bytes + copied)
            if copied and self.moves[move].follower_bytes == leader_bytes:
                self.done_at_ms.setdefault(move, self.now_ms)

    @property
    def left_bytes(self) -> int:
        return sum(sizes.left_bytes for sizes in self.moves.values())

    def watch(self, duration_ms: int) -> Report:
        samples = []
        for _ in range(duration_ms // _STEP_MS):
            if self.now_ms % _SAMPLE_MS == 0:
                samples.append(Sample(time_ms=self.now_ms, moves=dict(self.moves)))
            self.step()
        return report_of([*samples, Sample(time_ms=self.now_ms, moves=dict(self.moves))])

    def is_done(self) -> bool:
        return len(self.done_at_ms) == len(self.moves)


def _sizes(leader_bytes: int, follower_bytes: int = 0, *, leader: int = 1, in_sync_followers: int = 0) -> Sizes:
    return Sizes(
        leader=leader, leader_bytes=leader_bytes, follower_bytes=follower_bytes, in_sync_followers=in_sync_followers
    )


def _report(*samples: Mapping[Move, Sizes], every_ms: int = 1_000) -> Report:
    return report_of([Sample(time_ms=index * every_ms, moves=moves) for index, moves in enumerate(samples)])


@settings(max_examples=40)
@given(
    throttle=st.integers(1, 50),
    share=st.floats(0, 0.7),
    seconds=st.integers(60, 200),
    grain_ms=st.sampled_from([_STEP_MS, 1_000]),
    wave=st.floats(0, 0.5),
    sampled_ms=st.sampled_from([12_000, 20_000]),
)
def test_the_estimate_at_a_quarter_is_within_15_percent(
    throttle: int, share: float, seconds: int, grain_ms: int, wave: float, sampled_ms: int
) -> None:
    """The mean rate of producers is ``share`` of the throttle. It alternates by ``wave`` each second."""
    mean = throttle * MB * share
    size = throttle * seconds
    moving = Simulated(
        moves={_ORDERS: _sizes(size * MB)},
        rate=throttle * MB,
        incoming=lambda _, at_ms: mean * (1 + wave if at_ms // 1_000 % 2 else 1 - wave),
        grain_ms=grain_ms,
    )
    while moving.left_bytes > size * MB * 0.75:
        moving.step()
    assume(not moving.is_done())

    report = moving.watch(sampled_ms)
    said_at_ms = moving.now_ms
    assume(moving.left_bytes > 0.2 * size * MB)

    while not moving.is_done():
        moving.step()
    assert report.time_left_ms == pytest.approx(moving.now_ms - said_at_ms, rel=0.15, abs=1_500)


@settings(max_examples=40)
@given(
    throttle=st.integers(1, 50),
    share=st.one_of(st.floats(0, 0.85), st.floats(1.15, 3)),
    grain_ms=st.sampled_from([_STEP_MS, 1_000]),
    sampled_ms=st.sampled_from([12_000, 20_000]),
)
def test_never_ends_is_reported_only_if_the_lag_grows(
    throttle: int, share: float, grain_ms: int, sampled_ms: int
) -> None:
    moving = Simulated(
        moves={_ORDERS: _sizes(10_000 * MB)},
        rate=throttle * MB,
        incoming=lambda _, __: throttle * MB * share,
        grain_ms=grain_ms,
    )

    report = moving.watch(sampled_ms)

    left = moving.left_bytes
    for _ in range(100_000 // _STEP_MS):
        moving.step()
    assert report.never_ends == (moving.left_bytes > left)


def _two(orders: Callable[[int], Sizes], payments: Callable[[int], Sizes]) -> Report:
    return _report(*({_ORDERS: orders(second), _PAYMENTS: payments(second)} for second in range(13)))


def test_a_topic_gets_the_rate_of_another_that_arrives_before_it() -> None:
    """Broker 4 shares its throttle of 6 MB/s between two topics. When one has arrived, the other gets all of it."""
    report = _two(lambda at: _sizes(200 * MB, at * 3 * MB), lambda at: _sizes(100 * MB, at * 3 * MB))

    assert report.total.left_bytes == 228 * MB
    assert [row.time_left_ms for row in report.rows] == [pytest.approx(38_000), pytest.approx(64 / 3 * 1_000)]
    assert report.time_left_ms == pytest.approx(228 / 6 * 1_000)

    report = _two(lambda at: _sizes((1_000 + at * 2) * MB, at * MB), lambda at: _sizes(100 * MB, at * MB // 2))
    assert [row.never_ends for row in report.rows] == [True, False]
    assert (report.never_ends, report.time_left_ms) == (True, None)
    assert report.rows[1].time_left_ms == pytest.approx(94 / 0.5 * 1_000)


def test_rates_ignore_a_change_of_leader() -> None:
    report = _report(
        *(
            {_ORDERS: _sizes((1_030 if at > 5 else 1_000) * MB, at * 5 * MB, leader=2 if at > 5 else 1)}
            for at in range(13)
        )
    )

    assert report.total.rate == pytest.approx(5 * MB)
    assert report.total.incoming_rate == 0


def test_the_throttle_by_a_time_is_that_of_the_busiest_broker() -> None:
    """Leader 1 feeds two brokers, and its follower in sync fetches the new data too, which Kafka's throttle counts."""
    first, second = Move("t", 0, 4), Move("t", 1, 5)
    samples = [{first: _sizes((600 + at) * MB, in_sync_followers=1), second: _sizes(600 * MB)} for at in range(13)]

    report = _report(*samples)

    assert report.rate_to_end_in(100_000) == pytest.approx((12.12 + 1 + 1) * MB)


def test_retention_does_not_make_negative_rates() -> None:
    """Retention deletes 100 MB from the leader's log, and a second later from the follower's."""
    samples = [
        {
            _ORDERS: _sizes(
                1_000 * MB + second * 4 * MB - (100 * MB if second > 4 else 0),
                500 * MB + second * 10 * MB - (100 * MB if second > 5 else 0),
            )
        }
        for second in range(21)
    ]

    report = _report(*samples)

    assert report.total.rate == pytest.approx(10 * MB, rel=0.06)
    assert report.total.incoming_rate == pytest.approx(4 * MB, rel=0.06)


def test_moves_that_have_arrived_count_in_the_rate() -> None:
    other = Move("orders", 1, 4)
    samples: list[dict[Move, Sizes]] = [
        {_ORDERS: _sizes(1_000 * MB, 0), other: _sizes(100 * MB, second * 10 * MB)} for second in range(11)
    ]

    report = _report(*samples, {_ORDERS: _sizes(1_000 * MB, 10 * MB)})

    assert report.total.left_bytes == 990 * MB
    assert report.time_left_ms == pytest.approx(99_000)


_MOVES = st.builds(Move, st.sampled_from(["a", "b"]), st.integers(0, 1), st.integers(3, 4))
_ANY_SIZES = st.builds(
    Sizes,
    leader=st.integers(1, 2),
    leader_bytes=st.integers(0, 10**13),
    follower_bytes=st.integers(0, 10**13),
    in_sync_followers=st.integers(0, 2),
)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(1, 20_000), st.dictionaries(_MOVES, _ANY_SIZES)), min_size=2, max_size=6),
    st.floats(1, 1e12),
)
def test_any_sizes_give_plausible_numbers(samples: list[tuple[int, dict[Move, Sizes]]], duration_ms: float) -> None:
    now_ms, taken = 0, []
    for after_ms, moves in samples:
        now_ms += after_ms
        taken.append(Sample(time_ms=now_ms, moves=moves))
    report = report_of(taken)

    assert {(row.topic, row.follower) for row in report.rows} == {(move.topic, move.follower) for move in moves}
    for load in (report.total, *report.brokers, *(row.load for row in report.rows)):
        assert load.left_bytes >= 0
        assert load.rate >= 0
        assert load.incoming_rate >= 0
        assert load.time_left_ms is None or load.time_left_ms >= 0
        assert load.rate_to_end_in(duration_ms) <= report.rate_to_end_in(duration_ms) or load is report.total
