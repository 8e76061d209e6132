"""Tests replicas that catch up through the proxy: their rate, the order of records, and other replicas."""

import sys
from collections.abc import Callable
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest

from kafka_quota_proxy.config.model import Replication
from kafka_quota_proxy.config.throttled_replicas import parse
from kafka_quota_proxy.proxy.session.replica.response_trimming import FIRST_LOOK_BYTES
from tests.support.move import Move, delivered
from tests.support.replica_frames import Place
from tests.support.replicas import SESSION_NOT_FOUND, Follower
from tests.support.wire import START_MS

# Fetch v3 has topic names, v11 adds fetch sessions, and v17 has topic ids and the replica id in a tagged field.
VERSIONS = (3, 11, 17)
MOVING = ("moving", 0)
BUSY = ("busy", 0)
TO_TOPIC = {"moving": parse("*")}
TraceFunction = Callable[[FrameType, str, Any], Any]


def limited(rate: float, **more: object) -> Replication:
    """Return a limit on all replicas that lag."""
    return Replication(leader_rate=rate, **more)  # type: ignore[arg-type]


def listed(rate: float) -> Replication:
    """Return a limit on the replicas of the topic ``moving``."""
    return Replication(leader_rate=rate, leader_replicas=TO_TOPIC, follower_replicas={})


@pytest.mark.parametrize(
    ("version", "rate", "batch_bytes", "partitions"),
    [(3, 200_000, 16_000, 7), (11, 5_000_000, 60_000, 1), (17, 200_000, 60_000, 3)],
)
def test_a_move_has_the_rate_of_its_limit(version: int, rate: int, batch_bytes: int, partitions: int) -> None:
    count = 30 * rate // batch_bytes // partitions + 2
    logs: dict[Place, tuple[int, int]] = {("moving", number): (batch_bytes, count) for number in range(partitions)}
    move = Move(version, logs, limited(rate))
    follower = move.add(Follower(3, version, logs))
    move.run(25_000)
    measured = delivered(follower, START_MS + 5_000, START_MS + 25_000) / 20
    assert measured == pytest.approx(rate, rel=0.02)
    assert follower.requests < 15 * 25, "nothing spins"


@pytest.mark.parametrize(
    ("partitions", "size_bytes", "batches"),
    [(200, 1_000, 15), (500, 15_000, 1)],
)
def test_small_partitions_catch_up_at_the_rate_over_a_slow_link(partitions: int, size_bytes: int, batches: int) -> None:
    """The records of 500 × 15 kB do not fit into the first response, so some partitions are seen without records."""
    logs: dict[Place, tuple[int, int]] = {("moving", number): (size_bytes, batches) for number in range(partitions)}
    total_bytes = partitions * size_bytes * batches
    move = Move(17, logs, limited(2_000_000), round_trip_ms=20)
    follower = move.add(Follower(3, 17, logs))
    move.run(int(1.1 * total_bytes / 2_000))
    assert delivered(follower, START_MS, move.now_ms) == total_bytes
    took_ms = max(one.at_ms for one in follower.deliveries) - START_MS
    assert total_bytes / took_ms == pytest.approx(2_000, rel=0.1)
    assert move.leader.read_bytes <= 1.03 * total_bytes + partitions * FIRST_LOOK_BYTES, "each is looked at once"


@pytest.mark.parametrize("version", VERSIONS)
def test_in_sync_partitions_are_not_delayed_by_lagging_ones(version: int) -> None:
    logs = {("moving", number): (16_000, 400) for number in range(3)} | {BUSY: (1_000, 0)}
    move = Move(version, logs, listed(300_000))
    follower = move.add(Follower(3, version, logs))
    appended: list[int] = []

    def append() -> None:
        move.leader.logs[BUSY].append(1_000)
        appended.append(move.now_ms)

    move.every(37, 20_000, append)
    move.run(20_100)
    came = [one.at_ms for one in follower.deliveries if one.place == BUSY for _ in range(one.size_bytes // 1_000)]
    assert len(came) == len(appended)
    assert max(after - before for before, after in zip(appended, came, strict=True)) <= 10
    assert delivered(follower, START_MS + 5_000, START_MS + 20_000) / 15 == pytest.approx(300_000, rel=0.07)


def test_thousands_of_waiting_partitions_make_no_work() -> None:
    """A busy partition in sync is fetched again at once. Its fetches name only what has changed."""
    lines: list[int] = []
    for waiting in (100, 1_000):
        logs = {("moving", number): (16_000, 9) for number in range(waiting)} | {BUSY: (1_000, 0)}
        move = Move(17, logs, listed(1_000))
        follower = move.add(Follower(3, 17, logs))
        move.run(2_000)
        move.every(50, 10_000, lambda move=move: move.leader.logs[BUSY].append(1_000))  # type: ignore[misc]
        requests, offset = follower.requests, follower.offsets[BUSY]
        lines.append(lines_run_in("/proxy/session/replica/", lambda move=move: move.run(1_000)))  # type: ignore[misc]
        assert follower.offsets[BUSY] - offset >= 18
        assert 18 <= follower.requests - requests <= 30
        assert follower.partitions_in_last_request == 1
        assert follower.partitions_in_last_response == 1
    assert lines[1] <= 1.1 * lines[0]


def test_waiting_partitions_of_a_session_are_forgotten_and_added() -> None:
    logs = {("moving", number): (10_000, 100) for number in range(4)} | {BUSY: (1_000, 0)}
    move = Move(17, logs, listed(100_000))
    follower = move.add(Follower(3, 17, logs))
    move.run(3_000)
    forgotten: Place = ("moving", 2)
    before = follower.offsets[forgotten]
    follower.forget(forgotten)
    move.run(3_000)
    assert max(one.at_ms for one in follower.deliveries if one.place == forgotten) <= START_MS + 3_100
    follower.offsets[forgotten] = before
    move.run(40_000)
    assert follower.offsets == {**dict.fromkeys(logs, 100), BUSY: 0}
    assert follower.errors == [SESSION_NOT_FOUND], "when nothing lags any more, the leader gets the session"
    assert len(move.leader.sessions) == 1


@pytest.mark.parametrize("rates", [(1_000_000, 100_000), (None, 100_000)], ids=["lower", "first"])
def test_a_lower_rate_holds_at_once_and_without_a_pause(rates: tuple[int | None, int]) -> None:
    """Kafka compares all that its windows hold with the new rate, so that nothing flows for nine seconds."""
    before, after = rates
    logs: dict[Place, tuple[int, int]] = {MOVING: (10_000, 1_000_000)}
    move = Move(17, logs, listed(before) if before else Replication(follower_rate=1e12, leader_replicas=TO_TOPIC))
    follower = move.add(Follower(3, 17, logs, max_bytes=200_000))
    move.run(10_000)
    move.change(listed(after))
    began_ms = move.now_ms
    move.run(10_000)
    first_ms = min(one.at_ms for one in follower.deliveries if one.at_ms > began_ms + 100)
    assert first_ms <= began_ms + 2_500, "one response of up to 200 kB is paid at the new rate"
    assert delivered(follower, began_ms + 2_500, move.now_ms) / 7.5 == pytest.approx(after, rel=0.05)


def test_rate_of_0_stops_lagging_partitions_until_it_is_raised() -> None:
    logs = {MOVING: (10_000, 3_000), BUSY: (1_000, 0)}
    move = Move(17, logs, listed(0))
    follower = move.add(Follower(3, 17, logs))
    move.every(100, 20_000, lambda: move.leader.logs[BUSY].append(1_000))
    move.run(10_000)
    assert follower.offsets[MOVING] == 0
    assert follower.offsets[BUSY] >= 98
    move.change(listed(1_000_000))
    move.run(5_000)
    assert delivered(follower, START_MS, move.now_ms) == pytest.approx(5_000_000, rel=0.05)
    move.change(listed(0))
    move.run(3_000)
    offset = follower.offsets[MOVING]
    move.run(3_000)
    assert follower.offsets[MOVING] == offset


@pytest.mark.parametrize(("rate", "per_second"), [(1_000, 4), (10_000, 3.5)])
def test_very_slow_nothing_spins(rate: int, per_second: float) -> None:
    logs = {("moving", number): (16_000, 100) for number in range(10)} | {BUSY: (100, 0)}
    move = Move(17, logs, listed(rate))
    follower = move.add(Follower(3, 17, logs))
    move.run(60_000)
    assert follower.requests / 60 <= per_second
    assert move.leader.requests / 60 <= per_second
    assert delivered(follower, START_MS, START_MS + 60_000) <= rate * 60 + 16_000


def test_batch_above_every_limit_passes_and_is_charged() -> None:
    logs = {MOVING: (3_000_000, 4), BUSY: (1_000, 0)}
    move = Move(17, logs, listed(1_000_000))
    follower = move.add(Follower(3, 17, logs, max_bytes=500_000, partition_max_bytes=100_000))
    move.every(200, 20_000, lambda: move.leader.logs[BUSY].append(1_000))
    move.run(20_000)
    assert follower.offsets[MOVING] == 4
    times = [one.at_ms for one in follower.deliveries if one.place == MOVING]
    assert all(after - before >= 2_990 for before, after in pairwise(times))


def test_batch_above_its_share_passes_while_others_have_records() -> None:
    """A leader returns a batch above a limit only for the first partition with records (KIP-74)."""
    logs = {BUSY: (1_000, 0), MOVING: (90_000, 20)}
    move = Move(17, logs, listed(50_000))
    follower = move.add(Follower(3, 17, logs, rotates=False))
    move.every(3, 20_000, lambda: move.leader.logs[BUSY].append(1_000))
    move.run(20_000)
    assert delivered(follower, START_MS, START_MS + 20_000) >= 0.9 * 20 * 50_000 - 90_000


def test_followers_of_one_leader_share_its_limit_fairly() -> None:
    logs = {("moving", number): (20_000, 2_000) for number in range(2)}
    move = Move(17, logs, limited(900_000))
    followers = [move.add(Follower(node_id, 17, logs)) for node_id in (3, 4, 5)]
    move.run(30_000)
    shares = [delivered(one, START_MS + 5_000, START_MS + 30_000) / 25 for one in followers]
    assert sum(shares) == pytest.approx(900_000, rel=0.03)
    assert min(shares) > 0.8 * 300_000


def test_follower_limit_holds_for_all_its_fetches() -> None:
    logs = {MOVING: (20_000, 2_000)}
    move = Move(17, logs, Replication(follower_rate=200_000))
    third, fourth = (move.add(Follower(node_id, 17, logs)) for node_id in (3, 4))
    move.run(25_000)
    assert delivered(third, START_MS + 5_000, START_MS + 25_000) / 20 == pytest.approx(200_000, rel=0.03)
    assert delivered(fourth, START_MS + 5_000, START_MS + 25_000) / 20 == pytest.approx(200_000, rel=0.03)


@pytest.mark.parametrize("version", [11, 17])
def test_sessions_are_left_while_a_limit_holds_and_taken_up_afterwards(version: int) -> None:
    logs = {("moving", number): (5_000, 0) for number in range(20)} | {MOVING: (5_000, 1)}
    move = Move(version, logs, None)
    follower = move.add(Follower(3, version, logs))
    move.run(2_000)
    assert (move.leader.built, len(move.leader.sessions)) == (1, 1)
    move.change(limited(50_000))
    move.run(600)  # the fetch that waits at the leader passes without a limit
    move.leader.logs[MOVING].append(5_000, 59)
    move.run(3_000)
    assert follower.errors == [SESSION_NOT_FOUND]
    assert (move.leader.built, len(move.leader.sessions)) == (1, 0), "it is closed, and none is built for each fetch"
    assert delivered(follower, START_MS + 2_600, START_MS + 5_600) == pytest.approx(150_000, rel=0.15)
    move.change(None)
    move.run(5_000)
    assert (move.leader.built, len(move.leader.sessions)) == (2, 1)
    assert follower.errors == [SESSION_NOT_FOUND] * 2, "the leader does not know the session with the proxy"
    assert follower.offsets[MOVING] == 60


@pytest.mark.parametrize(("rate", "share"), [(900_000, 0.17), (1_000_000, 0.06)])
def test_leader_reads_few_bytes_in_vain(rate: int, share: float) -> None:
    """``docs/explanation/replication.md`` promises at most one batch for each fetch, and ten fetches a second."""
    logs = {("moving", number): (16_000, 2_000) for number in range(4)}
    move = Move(17, logs, limited(rate))
    follower = move.add(Follower(3, 17, logs))
    move.run(20_000)
    sent = sum(one.size_bytes for one in follower.deliveries)
    assert move.leader.read_bytes - sent < share * sent


def lines_run_in(part_of_path: str, action: Callable[[], None]) -> int:
    """Run ``action``, and return how many lines of the modules whose path contains ``part_of_path`` it has executed."""
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> TraceFunction | None:
        nonlocal lines
        if part_of_path not in frame.f_code.co_filename:
            return None
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return lines
