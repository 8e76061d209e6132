"""Tests Fetch responses whose partitions lose their records, or get an error."""

from collections.abc import Sequence
from uuid import UUID

import pytest

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.protocol.fetch_partitions import has_partition, without_records
from tests.protocol.support.codecs import KafkaPython
from tests.support.cases import each_case

RECORDS = b"r" * 300
NAMES = {"a": UUID(int=1), "b": UUID(int=2)}
VERSIONS = [0, 4, 7, 11, 12, 13, 16]


def key(name: str, version: int) -> bytes:
    return NAMES[name].bytes if version >= 13 else name.encode()


def response(version: int, partitions: Sequence[tuple[str, int, bytes]], *, throttle_time_ms: int = 0) -> bytes:
    """Return a response with these partitions, each with its topic, error and records."""
    codec = KafkaPython("response", int(ApiKey.FETCH), version)
    elements = []
    for name in NAMES:
        values = [
            codec.element(
                "responses.partitions",
                partition_index=index,
                error_code=error,
                high_watermark=5,
                aborted_transactions=[],
                records=records,
            )
            for index, (topic, error, records) in enumerate(partitions)
            if topic == name
        ]
        if values:
            elements.append(codec.element("responses", topic=name, topic_id=NAMES[name], partitions=values))
    made = codec.made(throttle_time_ms=throttle_time_ms, error_code=0, session_id=9, responses=elements)
    return codec.frame(made, correlation_id=3)


@each_case("version", VERSIONS)
def test_only_partitions_of_the_topics_change(version: int) -> None:
    whole = response(version, [("a", 0, RECORDS), ("a", 0, b""), ("b", 0, RECORDS)])

    assert without_records(whole, version, None) == response(version, [("a", 0, b""), ("a", 0, b""), ("b", 0, b"")])
    assert without_records(whole, version, {key("a", version)}, error_code=6) == response(
        version, [("a", 6, b""), ("a", 6, b""), ("b", 0, RECORDS)]
    )
    assert without_records(whole, version, {key("b", version)}, error_code=-1) == response(
        version, [("a", 0, RECORDS), ("a", 0, b""), ("b", -1, b"")]
    )
    assert without_records(whole, version, {b"other"}, error_code=6) == whole


@each_case("version", VERSIONS)
def test_partitions_are_found_by_topic_and_by_records(version: int) -> None:
    whole = response(version, [("a", 0, b""), ("b", 0, RECORDS)])
    a, b = {key("a", version)}, {key("b", version)}

    assert has_partition(whole, version, None, with_records=True)
    assert has_partition(whole, version, a, with_records=False)
    assert not has_partition(whole, version, a, with_records=True)
    assert has_partition(whole, version, b, with_records=True)
    assert not has_partition(response(version, []), version, None, with_records=False)


def test_response_that_ends_early_is_refused() -> None:
    whole = response(12, [("a", 0, RECORDS)])

    with pytest.raises(ProtocolError):
        without_records(whole[:-20], 12, None)
