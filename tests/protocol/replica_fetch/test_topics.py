"""Tests that tags stay with their topics when topics are left out or repeated."""

import pytest

from kafka_quota_proxy.protocol.replica_fetch.request import write_request
from tests.protocol.support.replica_fetches import UNKNOWN_TAGS, read_whole_request, tagged_request


@pytest.mark.parametrize("version", [12, 17])
def test_tags_stay_with_their_topic_when_others_are_left_out(version: int) -> None:
    data, request = read_whole_request(tagged_request(version, forgotten=False), version)
    last_first = [(request.partitions[index], 9) for index in (5, 0)]

    written = write_request(data, request, last_first, max_wait_ms=0, max_bytes=0)

    _, again = read_whole_request(written, version)
    assert [partition.topic[-1:] for partition in again.partitions] == [b"c", b"a"]
    assert {topic[-1:]: tags for topic, tags in again.topic_tags.items()} == {
        b"c": b"\x01\x00\x01?",
        b"a": UNKNOWN_TAGS,
    }


@pytest.mark.parametrize("version", [12, 17])
def test_tags_of_a_repeated_topic_are_written_once(version: int) -> None:
    data, request = read_whole_request(tagged_request(version, forgotten=False), version)
    alternating = [(request.partitions[index], 9) for index in (0, 2, 1, 3, 0, 2)]

    written = write_request(data, request, alternating, max_wait_ms=0, max_bytes=0)

    _, again = read_whole_request(written, version)
    assert [partition.topic[-1:] for partition in again.partitions] == [b"a", b"b"] * 3
    assert written.count(UNKNOWN_TAGS) == 1 + 6 + 1  # the header, six entries, the first topic
