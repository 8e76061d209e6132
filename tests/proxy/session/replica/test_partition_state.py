"""Tests what a session remembers of a partition: its lag in offsets and bytes, and the rate of new data."""

from kafka_quota_proxy.protocol.replica_fetch.response import ResponsePartition
from kafka_quota_proxy.proxy.session.replica.partition_state import PartitionState

NOW_MS = 86_400_000


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


def test_restored_partition_has_its_last_values() -> None:
    seen = PartitionState(told(100), 4, NOW_MS)
    seen.see(told(70), 5, NOW_MS)
    assert (seen.leader_epoch, seen.high_watermark, seen.last_stable_offset, seen.log_start_offset) == (5, 70, 69, 5)
