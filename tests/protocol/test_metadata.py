"""Tests what a Metadata response says beside its brokers, against kio."""

import pytest

from kafka_quota_proxy.protocol import metadata
from tests.protocol.support import kio_messages
from tests.protocol.support.broker_lists import (
    DESCRIBE_CLUSTER,
    METADATA,
    versions,
)
from tests.support.cases import each_case


def test_topics_are_not_read() -> None:
    kind = kio_messages.response_class(METADATA, 13)
    frame = kio_messages.response_frame(kio_messages.example(kind, array_length=2))
    brokers = metadata.find_brokers(frame, 0, 13)
    assert brokers
    cut = frame[: brokers.end]

    assert metadata.find_brokers(cut, 0, 13) == brokers


@each_case("version", versions(METADATA))
@each_case("cluster_id", ["vPeOCWypqUOSepEvx0cbog", "a", "x" * 256, None, "", "x" * 257])
def test_cluster_id_is_read_if_present(version: int, cluster_id: str | None) -> None:
    kind = kio_messages.response_class(METADATA, version)
    values = {"cluster_id": cluster_id} if version >= 2 else {}
    frame = kio_messages.response_frame(kio_messages.example(kind, values, array_length=2))
    data, start = b"before" + frame, 6
    brokers = metadata.find_brokers(data, start, version)
    assert brokers

    known = cluster_id if version >= 2 and cluster_id and len(cluster_id) <= 256 else None
    assert metadata.find_cluster_id(data, start, brokers, version) == known
    # The cluster id is None if the frame ends before it. Bytes after the frame are not read.
    assert metadata.find_cluster_id(data[: brokers.end], start, brokers, version) is None


# -- DescribeCluster


@pytest.mark.parametrize("version", versions(DESCRIBE_CLUSTER))
def test_cluster_id_of_a_described_cluster_is_read(version: int) -> None:
    kind = kio_messages.response_class(DESCRIBE_CLUSTER, version)
    frame = kio_messages.response_frame(kio_messages.example(kind, {"cluster_id": "vPeOCWypqUOSepEvx0cbog"}))

    found = metadata.find_endpoints(frame, 0, version)

    assert found
    assert found.cluster_id == "vPeOCWypqUOSepEvx0cbog"
