"""Tests the Metadata query and the counts in its response, against two codecs."""

from random import Random
from struct import pack
from uuid import UUID

import pytest

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.codec import MAX_RESPONSE_ELEMENTS, framed
from kafka_quota_proxy.protocol.metadata_query import (
    FIRST_TOPIC_ID,
    FIRST_VERSION,
    LATEST_VERSION,
    read_partition_counts,
    write_request,
)
from kafka_quota_proxy.protocol.topic_mutations import Topic
from tests.protocol.support.codecs import Codec, KafkaPython, Kio, codecs, uuid_of
from tests.protocol.support.kio_messages import Untyped
from tests.support.cases import SEEDS, each_case

METADATA = int(ApiKey.METADATA)
VERSIONS = range(FIRST_VERSION, LATEST_VERSION + 1)
NAMES = [b"a", "ü".encode(), b"moving", b""]
IDS = [UUID(int=3), UUID(int=2**127)]
NOT_THERE = (3, 17, 29, 100)


@each_case("version", VERSIONS)
@each_case("client_id", [None, b"", "ü".encode()])
def test_request_is_what_a_codec_writes_and_creates_no_topic(version: int, client_id: bytes | None) -> None:
    codec = KafkaPython("request", METADATA, version)
    topics: list[Topic] = [*NAMES, *IDS] if version >= FIRST_TOPIC_ID else [*NAMES]

    written = write_request(topics, correlation_id=-7, client_id=client_id, api_version=version)

    elements = [
        codec.element(
            "topics",
            name=topic.decode() if isinstance(topic, bytes) else None,
            topic_id=topic if isinstance(topic, UUID) else None,
        )
        for topic in topics
    ]
    meant = codec.made(
        topics=elements if version >= 4 else None,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    assert written == codec.frame(meant, correlation_id=-7, client_id=None if client_id is None else client_id.decode())
    kio = Kio("request", METADATA, version)
    if client_id is not None:
        message = kio.decoded(written)
        listed = None if message.topics is None else list(message.topics)
        assert (listed is None) == (version < 4)
        assert not kio.get(message, "allow_auto_topic_creation", default=False)


@pytest.mark.parametrize("codec", codecs("response", METADATA, FIRST_VERSION), ids=repr)
@each_case("seed", SEEDS)
def test_partitions_are_counted_as_a_codec_lists_them(codec: Codec, seed: int) -> None:
    random = Random(seed)  # noqa: S311
    message = codec.generated(random)
    topics = [
        codec.changed(topic, error_code=random.choice([0, 0, 5, *NOT_THERE]), name=f"t{number}")
        for number, topic in enumerate(message.topics)
    ]
    if codec.version >= FIRST_TOPIC_ID and topics and random.random() < 0.3:
        topics[0] = codec.changed(topics[0], name=None)
    frame = codec.frame(codec.changed(message, topics=topics))
    names = [topic.name.encode() for topic in topics if topic.name]
    ids = [uuid_of(codec.get(topic, "topic_id")) for topic in topics] if codec.version >= 10 else []
    wanted: list[Topic] = [topic for topic in (*names, *ids) if random.random() < 0.7]

    counts = read_partition_counts(frame, [*wanted, b"else", UUID(int=1)], codec.version)

    expected: dict[Topic, int] = {}
    for topic in topics:
        error_code, partitions = codec.get(topic, "error_code"), len(topic.partitions)
        if error_code in NOT_THERE:
            partitions = 0
        elif error_code and not partitions:
            continue
        for identity in (topic.name.encode() if topic.name else None, uuid_of(codec.get(topic, "topic_id"))):
            if identity in wanted:
                expected[identity] = partitions
    assert counts == expected


def test_no_topics_of_too_large_a_cluster_are_counted() -> None:
    codec = KafkaPython("response", METADATA, 1)
    few, many = (
        codec.element("topics", error_code=0, name=name, is_internal=False, partitions=partitions)
        for name, partitions in (("few", [partition_of(codec)] * 3), ("many", []))
    )
    frame = codec.frame(codec.made(brokers=[], controller_id=0, topics=[few, many]))
    # The frame ends with the count of the last topic's partitions.
    count = MAX_RESPONSE_ELEMENTS + 1
    frame = framed(frame[4:-4], pack(">i", count), bytes(2 + 4 + 4 + 4 + 4) * count)

    assert read_partition_counts(frame, [b"few", b"many"], 1) == {}


def partition_of(codec: KafkaPython) -> Untyped:
    return codec.element(
        "topics.partitions", error_code=0, partition_index=0, leader_id=0, replica_nodes=[1, 2], isr_nodes=[1]
    )
