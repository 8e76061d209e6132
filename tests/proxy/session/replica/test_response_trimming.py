"""Tests which records of one response are delivered, and which limits these records are charged to."""

import struct

import pytest

from kafka_quota_proxy.protocol.replica_fetch import response as replica_response
from kafka_quota_proxy.protocol.replica_fetch.request import RequestPartition
from kafka_quota_proxy.protocol.replica_fetch.response import ResponsePartition
from kafka_quota_proxy.proxy.quota.replication import ReplicationQuota
from kafka_quota_proxy.proxy.replication.throttle import Charge
from kafka_quota_proxy.proxy.session.replica.partition_state import Key, PartitionState
from kafka_quota_proxy.proxy.session.replica.response_trimming import PassedFetch, Trimming, settle

NOW_MS = 86_400_000
VERSION = 11
KEY = (b"moving", 0)


def quota(limit: float | None) -> ReplicationQuota:
    return ReplicationQuota(limit, samples=11, window_ms=1_000, now_ms=NOW_MS)


def batches(*sizes: int) -> bytes:
    return b"".join(struct.pack(">qi", 0, size - 12) + bytes(size - 12) for size in sizes)


class One:
    """A response with one partition, and other bytes before and after its records."""

    def __init__(self, records: bytes, *charges: Charge, high_watermark: int = 100, version: int = VERSION) -> None:
        self.data = b"f" * 10 + records + b"t" * 5
        end = 10 + len(records)
        self.partition = ResponsePartition(KEY[0], KEY[1], 0, high_watermark, -1, 0, 0, 6, 10, end, end)
        request = RequestPartition(KEY[0], KEY[1], 4, 50, 1_000_000, b"")
        self.asked = PassedFetch(1, version, {KEY: request})
        self.asked.charges[KEY] = charges
        self.seen: dict[Key, PartitionState] = {}
        self.trimming = Trimming(self.asked, self.seen, self.data, turn=7, now_ms=NOW_MS)

    def flows(self) -> int:
        """Trim and charge the response. Return how many bytes of records the follower gets."""
        entry = self.trimming.entry(KEY, self.asked.partitions[KEY], self.partition)
        self.trimming.charge()
        return sum(map(len, entry.parts)) - self.partition.records - (self.partition.end - self.partition.records_end)


def test_granted_records_end_at_a_whole_batch_and_are_charged() -> None:
    leader, follower = quota(1_000), quota(1_000)
    one = One(batches(300, 200) + batches(400)[:100], Charge(leader, False, True), Charge(follower, False, False))
    for each in (leader, follower):
        each.reserve(550)
        one.asked.granted[each] = 550
    assert one.flows() == 500
    assert follower.total == 500
    assert leader.total == 500 + 10 + replica_response.charged_bytes((), VERSION) + 4 + 2 + len(KEY[0])
    for each in (leader, follower):
        assert each.room_at_ms(now_ms=NOW_MS) == NOW_MS + 500, "paid with what came, not with what was granted"
    assert (one.seen[KEY].turn, one.seen[KEY].least_bytes) == (7, 300)
    assert one.trimming.has_lagging


def test_ungranted_partition_gets_the_remaining_room_or_one_batch() -> None:
    assert One(batches(60, 30, 30), Charge(quota(1_000), False, True)).flows() == 90
    assert One(batches(700, 30), Charge(quota(1_000), False, True)).flows() == 700


@pytest.mark.parametrize(("counts_all", "total"), [(True, 131), (False, 0)])
def test_in_sync_records_are_sent_whole_and_charged_if_listed(counts_all: bool, total: int) -> None:
    exceeded = quota(1_000)
    exceeded.settle(0, 1_000, now_ms=NOW_MS)
    one = One(batches(60, 60) + b"cut off at ", Charge(exceeded, counts_all, False), high_watermark=50)
    assert one.flows() == 131
    assert exceeded.total == total
    assert not one.trimming.has_lagging


def test_lagging_partition_without_records_asks_for_more_next_time() -> None:
    one = One(b"", Charge(quota(1_000), False, True))
    assert one.flows() == 0
    seen = one.seen[KEY]
    assert seen.least_bytes == 131_072, "not a batch fitted into the first look"
    for asked, wanted in ((1, 1_024), (700, 1_400), (1_400, 2_800), (2**31 - 1, 2**31 - 1)):
        seen.requested_bytes = asked
        assert one.flows() == 0
        assert seen.least_bytes == wanted


def test_partition_without_records_in_a_full_response_is_looked_at_again() -> None:
    one = One(b"", Charge(quota(1_000), False, True))
    one.trimming.spare_bytes = 65_535
    assert one.flows() == 0
    assert not one.seen, "another first look asks for 65,536 bytes"
    assert one.trimming.has_lagging


def test_unused_grant_is_returned_to_each_quota() -> None:
    one, other = quota(1_000), quota(1_000)
    one.reserve(100)
    settle({one: 100}, {other: 60}, now_ms=NOW_MS)
    assert one.room(now_ms=NOW_MS) == 100
    assert other.room_at_ms(now_ms=NOW_MS) == NOW_MS + 60
