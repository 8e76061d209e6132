"""Tests how many bytes of records a fetch brings, whatever else its response has."""

import pytest

from kafka_quota_proxy.protocol.brought_bytes import brought_bytes
from tests.simulation.wire import transfer
from tests.simulation.wire.transfer import AcquiredRecords, FetchedPartition, FetchedTopic, SharedPartition, SharedTopic

TOPIC_ID = bytes(range(16))
SIZES = (0, 300, 0, 70_000)


def fetched(version: int) -> bytes:
    topic = TOPIC_ID if version >= 13 else "a topic" * 30
    partitions = [FetchedPartition(number, bytes(size)) for number, size in enumerate(SIZES)]
    return transfer.fetch.response(1, version, [FetchedTopic(topic, partitions), FetchedTopic(topic, [])])


def shared(version: int) -> bytes:
    partitions = [
        SharedPartition(0, None, error_message="an error"),
        SharedPartition(1, bytes(300), [AcquiredRecords(0, 9), AcquiredRecords(20, 29)]),
        SharedPartition(2, bytes(70_000)),
    ]
    return transfer.share_fetch.response(1, version, [SharedTopic(TOPIC_ID, partitions)], error_message="an error")


@pytest.mark.parametrize("version", range(4, 17))
def test_records_of_a_fetch_count(version: int) -> None:
    frame = fetched(version)
    assert brought_bytes(b"front" + frame + b"rest", 5, len(frame), 1, version) == sum(SIZES)


@pytest.mark.parametrize("version", [1, 2])
def test_records_of_a_share_fetch_count(version: int) -> None:
    frame = shared(version)
    assert 0 <= brought_bytes(b"front" + frame + b"rest", 5, len(frame), 78, version) - sum(SIZES) <= 4


@pytest.mark.parametrize(("frame", "api_key", "version"), [(fetched(11), 1, 11), (shared(1), 78, 1)])
def test_response_that_cannot_be_read_may_be_all_records(frame: bytes, api_key: int, version: int) -> None:
    size_bytes = len(frame)
    assert brought_bytes(frame[:-1], 0, size_bytes, api_key, version) == size_bytes
    assert brought_bytes(frame, 0, size_bytes, api_key, 99) == size_bytes
    assert brought_bytes(frame[:8] + bytes([255] * (size_bytes - 8)), 0, size_bytes, api_key, version) == size_bytes
