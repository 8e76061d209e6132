"""Tests what is known of the partitions that a follower fetches, and how it sorts them."""

from kafka_quota_proxy.config.model import Address, KafkaSettings, Replication
from kafka_quota_proxy.config.throttled_replicas import parse
from kafka_quota_proxy.protocol.replica_fetch.request import ReplicaFetch, RequestPartition
from kafka_quota_proxy.protocol.replica_fetch.response import ResponsePartition
from kafka_quota_proxy.proxy.replication.throttle import Limits, Throttle
from kafka_quota_proxy.proxy.session.replica.fetched_partitions import FetchedPartitions
from kafka_quota_proxy.proxy.session.replica.partition_state import Key, PartitionState

NOW_MS = 86_400_000
LAGGING, IN_SYNC, UNKNOWN, CALM = (b"moving", 0), (b"moving", 1), (b"moving", 2), (b"calm", 0)
KEYS = (LAGGING, IN_SYNC, UNKNOWN, CALM)
SESSION = 5


def limits(*topics: str) -> Limits:
    lists = {topic: parse("*") for topic in topics}
    rules = Replication(leader_rate=1.0, leader_replicas=lists, follower_replicas={})
    return Throttle(rules, KafkaSettings()).leader(Address(host="h", port=1), 1).limits(3, now_ms=NOW_MS)


def fetch(
    *keys: Key, offset: int = 10, epoch: int = 0, forgotten: tuple[Key, ...] = (), leader: int = 4
) -> ReplicaFetch:
    partitions = [RequestPartition(topic, number, leader, offset, 1_000, b"") for topic, number in keys]
    return ReplicaFetch(3, 500, 1, 10_000, SESSION, epoch, partitions, {}, forgotten, 11, 0, 0, 0, 0)


def state(high_watermark: int) -> PartitionState:
    return PartitionState(ResponsePartition(b"", 0, 0, high_watermark, -1, -1, 0, 0, 0, 0, 0), 4, NOW_MS)


class One:
    """The partitions of a follower, and their states."""

    def __init__(self) -> None:
        self.states = {LAGGING: state(11), IN_SYNC: state(10)}
        self.limits = limits("moving")
        self.fetched = FetchedPartitions(SESSION)
        self.take(fetch(*KEYS))

    def take(self, request: ReplicaFetch, *, after_ms: int = 0) -> None:
        self.fetched.update(request, now_ms=NOW_MS + after_ms)
        self.fetched.sort(self.states, self.limits, is_id=False, now_ms=NOW_MS + after_ms)

    @property
    def lagging(self) -> list[Key]:
        return [key for group in self.fetched.lagging.values() for key in group]


def test_partitions_are_sorted_by_what_is_known_of_them() -> None:
    one = One()
    assert (one.lagging, list(one.fetched.unknown), list(one.fetched.passing)) == (
        [LAGGING],
        [UNKNOWN],
        [IN_SYNC, CALM],
    )


def test_changed_partition_is_sorted_again() -> None:
    one = One()
    one.take(fetch(LAGGING, offset=11))
    assert (one.lagging, one.fetched.lagging) == ([], {})
    one.states[IN_SYNC].high_watermark = 12
    one.take(fetch())
    assert one.lagging == [], "nothing says yet that it has changed"
    one.fetched.answered(IN_SYNC)
    one.take(fetch())
    assert one.lagging == [IN_SYNC]
    one.take(fetch(IN_SYNC, leader=5))
    assert (one.lagging, IN_SYNC in one.fetched.unknown) == ([], True), "of another leader nothing is known"


def test_forgotten_partition_is_in_no_part_of_the_session() -> None:
    one = One()
    one.take(fetch(forgotten=(*KEYS, (b"other", 1))))
    fetched = one.fetched
    assert (fetched.partitions, fetched.charges, fetched.passing, fetched.unknown, fetched.lagging) == (
        {},
        {},
        {},
        {},
        {},
    )
    one.take(fetch(LAGGING), after_ms=30_000)
    assert one.lagging == [LAGGING], "a follower that exceeds Kafka's own throttle comes back, and needs no first look"
    one.take(fetch(), after_ms=30_001)
    assert one.states.keys() == {LAGGING}
    one.take(fetch(IN_SYNC), after_ms=30_002)
    assert IN_SYNC in fetched.unknown


def test_other_limits_sort_all_partitions_again() -> None:
    one = One()
    one.limits = limits("calm")
    one.take(fetch())
    assert list(one.fetched.passing) == [LAGGING, IN_SYNC, UNKNOWN]
    assert list(one.fetched.unknown) == [CALM]
    assert one.states == {}


def test_session_begins_when_something_lags_and_counts_its_fetches() -> None:
    fetched = FetchedPartitions(SESSION)
    assert fetched.end_fetch(has_lagging=False) == 0
    assert fetched.end_fetch(has_lagging=True) == SESSION
    for epoch in (1, 2, 3):
        assert [at for at in range(6) if fetched.is_continued_by(fetch(epoch=at))] == [epoch]
        assert fetched.end_fetch(has_lagging=False) == SESSION
    fetched.next_epoch = 2**31 - 1
    fetched.end_fetch(has_lagging=True)
    assert fetched.next_epoch == 1, "0 would begin another session"


def told(high_watermark: int) -> ResponsePartition:
    return ResponsePartition(b"t", 0, 0, high_watermark, high_watermark - 1, 5, 0, 0, 0, 0, 0)


def test_lag_is_the_last_high_watermark_minus_the_last_fetch_offset() -> None:
    seen = PartitionState(told(100), 4, NOW_MS)
    seen.fetch_offset = 60
    assert seen.lag == 40
    seen.see(told(150), 4, NOW_MS)
    assert seen.lag == 90
    seen.fetch_offset = 151
    assert seen.lag == 0


def test_missing_bytes_are_estimated_from_the_first_records() -> None:
    seen = PartitionState(told(1_000), 4, NOW_MS)
    seen.fetch_offset = 100
    assert seen.lag_bytes(70_000) == 70_000, "nobody knows"
    seen.measure(5_000, 150)  # a hundred bytes for each offset
    assert seen.lag_bytes(70_000) == 70_000
    assert seen.lag_bytes(1_000_000) == 90_001
    seen.measure(0, 0)
    assert seen.lag_bytes(1_000_000) == 90_001, "records that cannot be read say nothing"


def test_write_rate_is_measured_over_five_seconds() -> None:
    seen = PartitionState(told(1_000), 4, NOW_MS)
    seen.measure(1_000, 10)
    seen.see(told(1_400), 4, NOW_MS + 4_999)
    assert seen.bytes_in_rate == 0
    seen.see(told(1_500), 4, NOW_MS + 5_000)
    assert seen.bytes_in_rate == 500 * 100 / 5
    seen.see(told(1_500), 4, NOW_MS + 10_000)
    assert seen.bytes_in_rate == 0
