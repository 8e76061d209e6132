"""Tests fetch sessions under a limit. A session goes on while its partitions are in sync, and ends if one lags."""

import pytest

from kafka_quota_proxy.config.model import Address, KafkaSettings, Replication
from kafka_quota_proxy.config.throttled_replicas import parse
from kafka_quota_proxy.protocol.replica_fetch.request import ReplicaFetch, RequestPartition
from kafka_quota_proxy.protocol.replica_fetch.response import ResponsePartition
from kafka_quota_proxy.proxy.replication.throttle import Limits, Throttle
from kafka_quota_proxy.proxy.session.replica.fetch_session import FetchSession
from kafka_quota_proxy.proxy.session.replica.response_trimming import PassedFetch, Trimming
from tests.support.move import Move
from tests.support.replicas import SESSION_NOT_FOUND, Follower

NOW_MS = 86_400_000
MOVING = ("moving", 0)


def limited(rate: float) -> Replication:
    return Replication(leader_rate=rate)


def listed(rate: float) -> Replication:
    return Replication(leader_rate=rate, leader_replicas={"moving": parse("*")}, follower_replicas={})


def limits_of(replication: Replication) -> Limits:
    leader = Throttle(replication, KafkaSettings()).leader(Address(host="127.0.0.1", port=9092), 1)
    return leader.limits(3, now_ms=NOW_MS)


def fetch(epoch: int, *topics: bytes) -> ReplicaFetch:
    partitions = [RequestPartition(topic, 0, 4, 10, 1_000, b"") for topic in topics]
    return ReplicaFetch(3, 500, 1, 10_000, 7, epoch, partitions, {}, (), 11, 0, 0, 0, 0)


@pytest.mark.parametrize("version", [11, 17])
def test_in_sync_follower_keeps_its_session_under_a_limit(version: int) -> None:
    logs = {("calm", number): (5_000, 0) for number in range(20)} | {MOVING: (5_000, 0)}
    move = Move(version, logs, limited(50_000))
    follower = move.add(Follower(3, version, logs, partition_max_bytes=100_000))
    move.run(2_900)
    assert (move.leader.built, follower.errors) == (0, []), "nobody knows yet"
    move.every(100, 20_000, lambda: move.leader.logs["calm", 0].append(5_000))
    move.run(2_000)
    assert (move.leader.built, len(move.leader.sessions)) == (1, 1)
    log = move.leader.logs[MOVING]
    log.is_in_sync = False
    log.append(5_000, 60)  # records of a replica that was away
    move.run(4_000)
    assert follower.errors == [SESSION_NOT_FOUND]
    assert (move.leader.built, len(move.leader.sessions)) == (1, 0)
    moved = [one for one in follower.deliveries if one.place == MOVING]
    assert moved[0].size_bytes == 100_000, "the answer that shows it passes, and is paid for"
    assert 50_000 <= sum(one.size_bytes for one in moved[1:]) <= 50_000 * 2.25
    move.run(8_000)
    assert follower.offsets[MOVING] == 60
    assert (move.leader.built, len(move.leader.sessions)) == (2, 1)
    assert follower.offsets["calm", 0] >= move.leader.logs["calm", 0].end_offset - 1


@pytest.mark.parametrize("version", [11, 17])
def test_follower_of_unlisted_partitions_keeps_its_session(version: int) -> None:
    logs = {("calm", number): (5_000, 0) for number in range(3)}
    move = Move(version, logs, listed(50_000))
    follower = move.add(Follower(3, version, logs))
    move.run(2_900)
    assert move.leader.built == 0
    move.run(2_000)
    assert (move.leader.built, len(move.leader.sessions), follower.errors) == (1, 1, [])


def test_session_is_throttled_if_one_of_its_partitions_is() -> None:
    session = FetchSession()
    session.update(fetch(0, b"calm"), limits_of(listed(1.0)), is_id=False)
    assert not session.is_throttled
    session.update(fetch(1, b"moving"), limits := limits_of(listed(1.0)), is_id=False)
    assert session.is_throttled
    session.update(fetch(2), limits, is_id=False)
    assert session.is_throttled, "an incremental fetch says what is different only"
    session.update(fetch(3), limits_of(Replication()), is_id=False)
    assert session.is_throttled, "without a limit, but measured"
    session.update(fetch(4), limits_of(Replication(leader_replicas={}, follower_replicas={})), is_id=False)
    assert not session.is_throttled


@pytest.mark.parametrize("version", [11, 17])
def test_added_lagging_partition_ends_the_session_before_it_is_fetched(version: int) -> None:
    logs = {("calm", number): (5_000, 0) for number in range(20)} | {MOVING: (5_000, 0)}
    move = Move(version, logs, limited(10_000))
    follower = move.add(Follower(3, version, [place for place in logs if place != MOVING]))
    move.run(5_000)
    assert (move.leader.built, follower.errors) == (1, [])
    log = move.leader.logs[MOVING]
    log.is_in_sync = False
    log.append(5_000, 100)
    follower.offsets[MOVING] = 0
    move.run(5_000)
    assert follower.errors == [SESSION_NOT_FOUND]
    moved = sum(one.size_bytes for one in follower.deliveries if one.place == MOVING)
    assert 30_000 <= moved <= 10_000 * 5.25 + 5_000


@pytest.mark.parametrize(("error_code", "ends_it"), [(0, True), (1, False)])
def test_partition_error_does_not_end_the_session(error_code: int, *, ends_it: bool) -> None:
    session = FetchSession()
    session.update(fetch(0, b"moving"), limits_of(listed(1.0)), is_id=False)
    trimming = Trimming(PassedFetch(1, 11, {}, is_of_session=True), {}, b"", turn=1, now_ms=NOW_MS)
    session.count([ResponsePartition(b"moving", 0, error_code, 5_000, -1, -1, 0, 0, 0, 0, 0)], trimming)
    assert trimming.has_lagging is ends_it
