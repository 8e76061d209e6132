"""Tests that a report about moves predicts their end. Moves are simulated in steps of a tenth of a second."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kafka_quota_proxy.proxy.cli.reassignment.model import (
    Holder,
    Limit,
    Move,
    Report,
    Row,
    Sample,
    Side,
    Sizes,
    Source,
    Verdict,
)
from kafka_quota_proxy.proxy.cli.reassignment.progress import LEAST_SPAN_MS, WINDOW_MS, Progress

MB = 1_000_000
_STEP_MS = 100
_SAMPLE_MS = 500
_ORDERS = Move("orders", 0, 4)


@dataclass
class Simulated:
    """Simulates moves under throttles. Moves copy one after the other while the throttled brokers have room.

    Throttles get new room every ``grain_ms``. At one second, bytes are copied in bursts, as by Kafka.
    """

    moves: dict[Move, Sizes]
    limits: list[Limit]
    incoming: Callable[[Move, int], float]  # bytes per second of a move at a time in ms
    grain_ms: int = _STEP_MS
    now_ms: int = 0
    done_at_ms: dict[Move, int] = field(default_factory=dict)

    def step(self) -> None:
        self.now_ms += _STEP_MS
        rooms = {limit.holder: limit.rate * self.grain_ms / 1_000 for limit in self.limits}
        is_turn = self.now_ms % self.grain_ms == 0
        for move, before in list(self.moves.items()):
            leader_bytes = before.leader_bytes + round(self.incoming(move, self.now_ms) * _STEP_MS / 1_000)
            over = [limit.holder for limit in self.limits if move in limit.moves]
            can = min((rooms[holder] for holder in over), default=50 * MB * self.grain_ms / 1_000)
            copied = round(min(can, leader_bytes - before.follower_bytes)) if is_turn else 0
            for holder in over:
                rooms[holder] -= copied
            self.moves[move] = Sizes(
                leader=before.leader,
                leader_bytes=leader_bytes,
                follower_bytes=before.follower_bytes + copied,
                in_sync_followers=before.in_sync_followers,
            )
            if copied and self.moves[move].follower_bytes == leader_bytes:
                self.done_at_ms.setdefault(move, self.now_ms)

    @property
    def left_bytes(self) -> int:
        return sum(sizes.leader_bytes - sizes.follower_bytes for sizes in self.moves.values())

    @property
    def sample(self) -> Sample:
        return Sample(time_ms=self.now_ms, moves=dict(self.moves))

    def watch(self, progress: Progress, duration_ms: int) -> Report:
        for _ in range(duration_ms // _STEP_MS):
            if self.now_ms % _SAMPLE_MS == 0:
                progress.add(self.sample, self.limits)
            self.step()
        progress.add(self.sample, self.limits)
        return progress.report()

    def is_done(self) -> bool:
        return len(self.done_at_ms) == len(self.moves)


def _sizes(leader_bytes: int, follower_bytes: int = 0, *, leader: int = 1, in_sync_followers: int = 0) -> Sizes:
    return Sizes(
        leader=leader, leader_bytes=leader_bytes, follower_bytes=follower_bytes, in_sync_followers=in_sync_followers
    )


def _limit(
    side: Side,
    node_id: int,
    rate: float,
    *moves: Move,
    charges_in_sync: bool = False,
    source: Source = Source.FILE,
) -> Limit:
    holder = Holder(side, node_id if side is Side.LEADER else None, node_id if side is Side.FOLLOWER else None)
    return Limit(source=source, holder=holder, rate=rate, moves=frozenset(moves), charges_in_sync=charges_in_sync)


def _report(*samples: Mapping[Move, Sizes], limits: tuple[Limit, ...] = (), every_ms: int = 1_000) -> Report:
    progress = Progress()
    for index, moves in enumerate(samples):
        progress.add(Sample(time_ms=index * every_ms, moves=moves), limits)
    return progress.report()


def _even(copied: float, incoming: float = 0, *, seconds: int = 10, size: int = 1_000 * MB) -> list[dict[Move, Sizes]]:
    return [{_ORDERS: _sizes(size + round(second * incoming), round(second * copied))} for second in range(seconds + 1)]


@settings(max_examples=40)
@given(
    throttle=st.integers(1, 50),
    share=st.floats(0, 0.8),
    seconds=st.integers(60, 200),
    grain_ms=st.sampled_from([_STEP_MS, 1_000]),
    wave=st.floats(0, 0.5),
    sampled_ms=st.sampled_from([10_000, 20_000]),
)
def test_the_estimate_at_a_quarter_is_within_15_percent(
    throttle: int, share: float, seconds: int, grain_ms: int, wave: float, sampled_ms: int
) -> None:
    """The mean rate of producers is ``share`` of the throttle. It alternates by ``wave`` each second."""
    mean = throttle * MB * share
    size = throttle * seconds
    moving = Simulated(
        moves={_ORDERS: _sizes(size * MB)},
        limits=[_limit(Side.FOLLOWER, 4, throttle * MB, _ORDERS), _limit(Side.LEADER, 1, throttle * MB, _ORDERS)],
        incoming=lambda _, at_ms: mean * (1 + wave if at_ms // 1_000 % 2 else 1 - wave),
        grain_ms=grain_ms,
    )
    while moving.left_bytes > size * MB * 0.75:
        moving.step()
    assume(not moving.is_done())

    report = moving.watch(Progress(), sampled_ms)
    said_at_ms = moving.now_ms
    assume(moving.left_bytes > 0.2 * size * MB)

    while not moving.is_done():
        moving.step()
    assert report.verdict is Verdict.ENDS
    assert report.time_left_ms == pytest.approx(moving.now_ms - said_at_ms, rel=0.15, abs=1_500)


@settings(max_examples=40)
@given(
    throttle=st.integers(1, 50),
    share=st.one_of(st.floats(0, 0.9), st.floats(1.1, 3)),
    grain_ms=st.sampled_from([_STEP_MS, 1_000]),
    sampled_ms=st.sampled_from([0, 2_000, 6_000, 15_000]),
)
def test_too_low_is_reported_only_if_the_lag_grows(throttle: int, share: float, grain_ms: int, sampled_ms: int) -> None:
    moving = Simulated(
        moves={_ORDERS: _sizes(10_000 * MB)},
        limits=[_limit(Side.FOLLOWER, 4, throttle * MB, _ORDERS)],
        incoming=lambda _, __: throttle * MB * share,
        grain_ms=grain_ms,
    )

    report = moving.watch(Progress(), sampled_ms)

    left = moving.left_bytes
    for _ in range(100_000 // _STEP_MS):
        moving.step()
    if sampled_ms == 0:  # the rate of the producers is not known yet
        assert report.verdict is Verdict.ENDS
    else:
        assert (report.verdict is Verdict.TOO_LOW) == (moving.left_bytes > left)


@settings(max_examples=40)
@given(
    leader_rate=st.integers(5, 40),
    follower_rate=st.integers(5, 40),
    sizes=st.lists(st.tuples(st.integers(1, 3), st.integers(4, 6), st.integers(50, 200)), min_size=2, max_size=8),
    shares=st.lists(st.floats(0, 0.05), min_size=8, max_size=8),
)
def test_the_slowest_leader_or_follower_decides_the_end(
    leader_rate: int, follower_rate: int, sizes: list[tuple[int, int, int]], shares: list[float]
) -> None:
    """Partitions move from three brokers to three new ones."""
    moves = {
        Move("t", index, follower): _sizes(size * MB, leader=leader)
        for index, (leader, follower, size) in enumerate(sizes)
    }
    rates = [
        *(
            _limit(Side.LEADER, leader, leader_rate * MB, *(move for move in moves if moves[move].leader == leader))
            for leader in (1, 2, 3)
        ),
        *(
            _limit(Side.FOLLOWER, node, follower_rate * MB, *(move for move in moves if move.follower == node))
            for node in (4, 5, 6)
        ),
    ]
    moving = Simulated(
        moves=moves,
        limits=[limit for limit in rates if limit.moves],
        incoming=lambda move, _: min(leader_rate, follower_rate) * MB * shares[move.partition],
    )

    progress = Progress()
    progress.add(moving.sample, moving.limits)
    moving.step()
    progress.add(moving.sample, moving.limits)
    report = progress.report()

    while not moving.is_done():
        moving.step()
    # The estimate is a lower bound, because a move that waits at one bottleneck may be late at the next.
    # next.
    assert report.verdict is Verdict.ENDS
    assert report.time_left_ms is not None
    assert report.time_left_ms <= moving.now_ms * 1.02 + 500
    assert max(report.time_left_ms, 1) >= moving.now_ms / 2.2 - 500


def test_each_new_broker_has_the_throttle_for_itself() -> None:
    """As in KIP-73, the total rate is the throttle times the number of new brokers."""
    first, second = Move("t", 0, 4), Move("t", 1, 5)
    moves = {first: _sizes(600 * MB, leader=1), second: _sizes(600 * MB, leader=2)}
    limits = (_limit(Side.FOLLOWER, 4, 10 * MB, first), _limit(Side.FOLLOWER, 5, 10 * MB, second))

    assert _report(moves, limits=limits).time_left_ms == 60_000


def test_a_leader_that_feeds_two_brokers_is_the_bottleneck() -> None:
    first, second = Move("t", 0, 4), Move("t", 1, 5)
    moves = {first: _sizes(600 * MB), second: _sizes(600 * MB)}
    limits = (
        _limit(Side.FOLLOWER, 4, 10 * MB, first),
        _limit(Side.FOLLOWER, 5, 10 * MB, second),
        _limit(Side.LEADER, 1, 10 * MB, first, second),
    )

    assert _report(moves, limits=limits).time_left_ms == 120_000


def test_in_sync_followers_use_a_part_of_a_leaders_throttle() -> None:
    """Kafka charges all fetches of a listed partition to the leader's quota, also those of followers in sync."""
    samples = [{_ORDERS: _sizes(1_000 * MB + second * 2 * MB, 0, in_sync_followers=2)} for second in (0, 1, 2)]
    limit = _limit(Side.LEADER, 1, 10 * MB, _ORDERS, charges_in_sync=True)

    report = _report(*samples, limits=(limit,))

    # Of 10 MB/s, two followers in sync take 2 MB/s each, and new data takes another 2 MB/s. The lag shrinks by 4 MB/s.
    assert report.time_left_ms == pytest.approx(1_004 / 4 * 1_000)
    assert report.smallest_rate == 6 * MB
    assert report.rate_to_end_in(100_000) == pytest.approx(16.04 * MB)


def test_a_measured_rate_below_the_throttle_counts() -> None:
    limit = _limit(Side.FOLLOWER, 4, 10 * MB, _ORDERS)

    report = _report(*_even(9 * MB, 4 * MB), limits=(limit,))

    # 1,000 + 40 − 90 MB are left. Of the 9 MB/s that are copied, 4 MB/s are new data.
    assert (report.left_bytes, report.rate, report.incoming_rate) == (950 * MB, 9 * MB, 4 * MB)
    assert report.time_left_ms == pytest.approx(190_000)
    # Nine tenths of the throttle are used, so a throttle of 4.4 MB/s copies 4 MB/s, and one of 15 MB/s copies 9.5 + 4.
    assert report.smallest_rate == pytest.approx(4 * MB / 0.9)
    assert report.rate_to_end_in(100_000) == pytest.approx(15 * MB)
    assert report.time_left_at_ms(15 * MB) == pytest.approx(100_000)
    assert report.time_left_at_ms(4.4 * MB) is None


def test_the_first_windows_of_kafkas_throttle_are_too_optimistic() -> None:
    limit = _limit(Side.FOLLOWER, 4, 10 * MB, _ORDERS, source=Source.CLUSTER)

    first = _report(*_even(10 * MB, 4 * MB), limits=(limit,))
    later = _report(*_even(10 * MB, 4 * MB, seconds=22), limits=(limit,))

    assert (first.left_bytes, first.rate) == (940 * MB, 10 * MB)
    assert first.time_left_ms == pytest.approx(940_000 / (9 - 4))
    assert later.time_left_ms == pytest.approx(868_000 / (10 - 4))


@pytest.mark.parametrize("seconds", [10, 12, 21, 23])
@pytest.mark.parametrize(("incoming", "in_sync_followers"), [(9.2, 0), (4.6, 1)])
def test_a_shrinking_lag_is_not_reported_as_growing(incoming: float, in_sync_followers: int, seconds: int) -> None:
    limit = _limit(Side.LEADER, 1, 10 * MB, _ORDERS, charges_in_sync=True, source=Source.CLUSTER)
    copied = 9.8 - incoming * in_sync_followers
    samples = [
        {
            _ORDERS: _sizes(
                1_000 * MB + round(at * incoming * MB), round(at * copied * MB), in_sync_followers=in_sync_followers
            )
        }
        for at in range(seconds + 1)
    ]

    assert _report(*samples, limits=(limit,)).verdict is Verdict.ENDS


def test_an_unreached_throttle_does_not_decide_the_end() -> None:
    limit = _limit(Side.FOLLOWER, 4, 100 * MB, _ORDERS)

    report = _report(*_even(9 * MB, 4 * MB), limits=(limit,))

    assert report.time_left_ms == pytest.approx(190_000)
    assert report.smallest_rate == 4 * MB


def test_without_a_rate_the_throttle_is_the_estimate() -> None:
    limit = _limit(Side.FOLLOWER, 4, 10 * MB, _ORDERS)

    report = _report(*_even(0, 0, seconds=LEAST_SPAN_MS // 1_000 - 1), limits=(limit,))

    assert (report.rate, report.time_left_ms) == (None, 100_000)


def test_a_tiny_throttle_counts_more_than_the_measured_rate() -> None:
    """At 100 kB/s a fetch of a megabyte takes ten seconds, so 20 s without a fetch do not mean a stop."""
    limit = _limit(Side.FOLLOWER, 4, 100_000, _ORDERS)

    report = _report(*_even(0, 50_000, seconds=20), limits=(limit,))

    assert report.verdict is Verdict.ENDS
    assert report.time_left_ms == pytest.approx((1_000 * MB + 1_000_000) / 50_000 * 1_000)


def test_without_a_throttle_the_outlook_is_unknown_at_first() -> None:
    assert _report(*_even(9 * MB, 4 * MB, seconds=2)).verdict is Verdict.UNKNOWN
    assert _report(*_even(9 * MB, 4 * MB)).time_left_ms == pytest.approx(190_000)
    assert _report(*_even(3 * MB, 4 * MB)).verdict is Verdict.TOO_LOW


def test_moves_outside_a_throttle_are_estimated_by_themselves() -> None:
    free = Move("payments", 0, 4)
    samples = [
        {_ORDERS: _sizes(100 * MB, second * MB), free: _sizes(1_000 * MB, second * 20 * MB)} for second in range(11)
    ]

    report = _report(*samples, limits=(_limit(Side.FOLLOWER, 4, MB, _ORDERS),))

    orders, payments = report.rows
    assert (orders.limit, payments.limit) == (MB, None)
    assert orders.time_left_ms == pytest.approx(90_000)
    assert payments.time_left_ms == pytest.approx(40_000)
    assert report.time_left_ms == pytest.approx(90_000)


def test_nothing_copied_despite_room_stands_still() -> None:
    limit = _limit(Side.FOLLOWER, 4, 10 * MB, _ORDERS)

    assert _report(*_even(0, 2 * MB, seconds=12), limits=(limit,)).verdict is Verdict.STANDS_STILL
    assert _report(*_even(0, 12 * MB, seconds=12), limits=(limit,)).verdict is Verdict.TOO_LOW


def test_a_follower_ahead_of_its_throttle_may_rest_for_a_window() -> None:
    """A raised throttle allows the bytes of ten seconds at once, and then nothing for ten seconds."""
    limit = _limit(Side.FOLLOWER, 4, 10 * MB, _ORDERS)

    assert _report(*_even(MB, 2 * MB), limits=(limit,)).verdict is Verdict.ENDS
    assert _report(*_even(MB, 2 * MB, seconds=12), limits=(limit,)).verdict is Verdict.TOO_LOW


def test_a_move_may_end_under_a_throttle_too_low_for_another() -> None:
    quiet = Move("payments", 0, 4)
    samples = [
        {
            _ORDERS: _sizes(1_000 * MB + second * 2 * MB, second * MB),
            quiet: _sizes(100 * MB, round(second * 0.5 * MB)),
        }
        for second in range(13)
    ]

    report = _report(*samples, limits=(_limit(Side.FOLLOWER, 4, 1.5 * MB, _ORDERS, quiet),))

    orders, payments = report.rows
    assert (report.verdict, orders.verdict, payments.verdict) == (Verdict.TOO_LOW, Verdict.TOO_LOW, Verdict.ENDS)
    assert payments.time_left_ms == pytest.approx(94 / 0.5 * 1_000)


def test_an_unused_throttle_does_not_delay_the_end() -> None:
    """Broker 4 shares its throttle between two topics. When one topic has arrived, the other gets all of it."""
    other = Move("payments", 0, 4)
    samples = [
        {
            _ORDERS: _sizes(200 * MB, second * 3 * MB, leader=1),
            other: _sizes(100 * MB, second * 3 * MB, leader=2),
        }
        for second in range(13)
    ]
    limits = (
        _limit(Side.FOLLOWER, 4, 6 * MB, _ORDERS, other),
        _limit(Side.LEADER, 1, 6 * MB, _ORDERS),
        _limit(Side.LEADER, 2, 6 * MB, other),
    )

    report = _report(*samples, limits=limits)

    assert report.left_bytes == 228 * MB
    assert report.time_left_ms == pytest.approx(228 / 6 * 1_000)
    assert [row.time_left_ms for row in report.rows] == [pytest.approx(38_000), pytest.approx(64 / 3 * 1_000)]


def test_the_best_used_throttle_shows_its_effect() -> None:
    """The leader's throttle is used up, mostly by a replica in sync, so the follower's throttle is not."""
    samples = [
        {_ORDERS: _sizes(1_000 * MB + second * 6 * MB, round(second * 1.5 * MB), in_sync_followers=1)}
        for second in range(13)
    ]
    limits = (_limit(Side.FOLLOWER, 4, 2 * MB, _ORDERS), _limit(Side.LEADER, 1, 8 * MB, _ORDERS, charges_in_sync=True))

    report = _report(*samples, limits=limits)

    assert report.smallest_rate == pytest.approx(12 * MB / (7.5 / 8))


def test_a_throttle_of_0_never_ends() -> None:
    """Kafka accepts a throttle of 0, and then copies nothing."""
    limit = _limit(Side.FOLLOWER, 4, 0, _ORDERS)

    assert _report(*_even(0, 0, seconds=12), limits=(limit,)).verdict is Verdict.TOO_LOW


def test_a_new_throttle_discards_earlier_samples() -> None:
    progress = Progress()
    for second, moves in enumerate(_even(5 * MB)):
        progress.add(Sample(time_ms=second * 1_000, moves=moves), [_limit(Side.FOLLOWER, 4, 5 * MB, _ORDERS)])
    before = progress.report()

    last = {_ORDERS: _sizes(1_000 * MB, 50 * MB)}
    progress.add(Sample(time_ms=11_000, moves=last), [_limit(Side.FOLLOWER, 4, 50 * MB, _ORDERS)])

    assert before.time_left_ms == pytest.approx(190_000)
    assert progress.report().time_left_ms == pytest.approx(19_000)


def test_rates_ignore_samples_before_the_window() -> None:
    slow = _even(MB, seconds=60)
    progress = Progress()
    for second, moves in enumerate(slow):
        progress.add(Sample(time_ms=second * 1_000, moves=moves), [])
    for second in range(1, WINDOW_MS // 1_000 + 1):
        moves = {_ORDERS: _sizes(1_000 * MB, (60 + second * 5) * MB)}
        progress.add(Sample(time_ms=(60 + second) * 1_000, moves=moves), [])

    assert progress.report().span_ms == WINDOW_MS
    assert progress.report().rate == pytest.approx(5 * MB)


def test_retention_does_not_make_negative_rates() -> None:
    """Retention deletes 100 MB every five seconds from the leader's log, and a second later from the follower's."""
    samples = []
    for second in range(21):
        gone = 100 * MB * (second // 5)
        gone_there = 100 * MB * (max(0, second - 1) // 5)
        samples.append({_ORDERS: _sizes(1_000 * MB + second * 4 * MB - gone, 500 * MB + second * 10 * MB - gone_there)})

    report = _report(*samples)

    assert report.rate == pytest.approx(10 * MB)
    assert report.incoming_rate == pytest.approx(4 * MB)
    assert report.time_left_ms == pytest.approx(report.left_bytes / 6 / MB * 1_000)


def test_a_new_leader_is_no_growth() -> None:
    samples = [
        {_ORDERS: _sizes(1_000 * MB + (30 * MB if second > 4 else 0), second * MB, leader=2 if second > 4 else 1)}
        for second in range(11)
    ]

    report = _report(*samples)

    assert report.incoming_rate == 0
    assert [load.holder.leader for load in report.loads] == [2, None]


def test_completed_moves_count_as_copied() -> None:
    other = Move("orders", 1, 4)
    limit = _limit(Side.FOLLOWER, 4, 10 * MB, _ORDERS, other)
    progress = Progress()
    for second in range(11):
        moves = {_ORDERS: _sizes(1_000 * MB, 0), other: _sizes(100 * MB, second * 10 * MB)}
        progress.add(Sample(time_ms=second * 1_000, moves=moves), [limit])

    progress.add(
        Sample(time_ms=11_000, moves={_ORDERS: _sizes(1_000 * MB, 10 * MB)}),
        [_limit(Side.FOLLOWER, 4, 10 * MB, _ORDERS)],
        arrived=[other],
    )

    report = progress.report()
    assert (report.left_bytes, report.size_bytes) == (990 * MB, 1_100 * MB)
    assert report.time_left_ms == pytest.approx(99_000)


def test_no_moves_leave_nothing() -> None:
    report = _report({})

    assert (report.rows, report.left_bytes, report.verdict, report.time_left_ms) == ((), 0, Verdict.ENDS, 0)
    assert (report.smallest_rate, report.rate_to_end_in(1), report.time_left_at_ms(1)) == (0, 0, 0)


_MOVES = st.builds(Move, st.sampled_from(["a", "b"]), st.integers(0, 1), st.integers(3, 4))
_ANY_SIZES = st.builds(
    Sizes,
    leader=st.integers(1, 2),
    leader_bytes=st.integers(0, 10**13),
    follower_bytes=st.integers(0, 10**13),
    in_sync_followers=st.integers(0, 2),
)
_ANY_LIMIT = st.builds(
    Limit,
    source=st.sampled_from(Source),
    holder=st.builds(Holder, st.sampled_from(Side), st.integers(1, 2), st.integers(3, 4)),
    rate=st.one_of(st.just(0.0), st.floats(1, 1e15)),
    moves=st.frozensets(_MOVES),
    charges_in_sync=st.booleans(),
)


@given(
    st.lists(
        st.tuples(
            st.integers(1, 20_000),
            st.dictionaries(_MOVES, _ANY_SIZES),
            st.lists(_ANY_LIMIT, max_size=4),
            st.lists(_MOVES, max_size=2),
        ),
        min_size=1,
        max_size=12,
    ),
    st.floats(1, 1e12),
)
def test_any_sizes_give_plausible_numbers(
    samples: list[tuple[int, dict[Move, Sizes], list[Limit], list[Move]]], question: float
) -> None:
    progress, now_ms = Progress(), 0
    for after_ms, moves, limits, arrived in samples:
        now_ms += after_ms
        progress.add(Sample(time_ms=now_ms, moves=moves), limits, arrived=arrived)
        report = progress.report()

        assert {(row.topic, row.follower) for row in report.rows} == {(move.topic, move.follower) for move in moves}
        totals: list[Report | Row] = [report, *report.rows]
        for one in totals:
            assert 0 <= one.left_bytes <= one.size_bytes
            assert one.rate is None or one.rate >= 0
            assert one.incoming_rate >= 0
            assert (one.time_left_ms is not None) == (one.verdict is Verdict.ENDS)
            assert one.time_left_ms is None or one.time_left_ms >= 0
        assert frozenset(moves) == frozenset().union(*(estimate.moves for estimate in report.estimates))
        enough = report.rate_to_end_in(question)
        assert report.smallest_rate <= enough
        # With the rate that is said to end the move in a given time, the move takes that time.
        time_left_ms = report.time_left_at_ms(enough * 1.000001)
        assert report.left_bytes == 0 or enough > 1e15 or (time_left_ms is not None and time_left_ms <= question * 1.01)
