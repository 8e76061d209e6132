"""Tests that the first batch of a Fetch response is found, also while the rest of the response has not arrived."""

from struct import pack

import pytest

from kafka_quota_proxy.protocol.fetched_batches import first_batch_bytes
from tests.simulation.wire.transfer import FetchedPartition, FetchedTopic, fetch

BATCH = pack(">qi", 5, 288) + bytes(288)
TOPIC_ID = bytes(range(16))


def frame(version: int, *partitions: FetchedPartition) -> bytes:
    names = (TOPIC_ID, bytes(16)) if version >= 13 else ("t", "another")
    empty = FetchedTopic(names[1], [FetchedPartition(number) for number in range(3)])
    return fetch.response(7, version, [empty, FetchedTopic(names[0], partitions)])


@pytest.mark.parametrize("version", range(4, 17))
def test_first_batch_is_found_behind_empty_partitions(version: int) -> None:
    data = frame(version, FetchedPartition(0), FetchedPartition(1, records=BATCH * 2 + BATCH[:50]), FetchedPartition(2))

    assert first_batch_bytes(b"before" + data, 6, version) == len(BATCH)


@pytest.mark.parametrize("version", [4, 11, 12, 16])
def test_response_without_records_has_no_batch(version: int) -> None:
    assert first_batch_bytes(frame(version, FetchedPartition(0), FetchedPartition(1)), 0, version) == 0


@pytest.mark.parametrize("version", [4, 11, 12, 16])
def test_each_front_of_a_response_gives_the_size_or_0(version: int) -> None:
    data = frame(version, FetchedPartition(0), FetchedPartition(1, records=BATCH))

    found = [first_batch_bytes(data[:end], 0, version) for end in range(len(data) + 1)]

    known = data.index(BATCH) + 12
    assert found == [0] * known + [len(BATCH)] * (len(data) + 1 - known)


def test_bytes_that_are_no_response_have_no_batch() -> None:
    for version in range(19):
        assert first_batch_bytes(b"\xff" * 200, 0, version) == 0
        assert first_batch_bytes(bytes(200), 0, version) == 0
