"""Tests the brokers of Metadata and DescribeCluster responses, against kio."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.protocol import metadata
from tests.protocol.support import kio_messages
from tests.protocol.support.broker_lists import (
    ADVERTISED,
    DESCRIBE_CLUSTER,
    METADATA,
    NODES,
    as_advertised,
    broker,
    decoded,
    rewritten,
    versions,
)
from tests.support.cases import FEW_EXAMPLES, each_case


@pytest.mark.parametrize("version", versions(METADATA))
@FEW_EXAMPLES
@given(nodes=NODES, topics=st.integers(0, 3))
def test_brokers_get_advertised_addresses_and_all_else_is_unchanged(
    version: int, nodes: list[tuple[int, str, int]], topics: int
) -> None:
    kind = kio_messages.response_class(METADATA, version)
    broker_kind = kind.__annotations__["brokers"].__args__[0]
    brokers = tuple(broker(broker_kind, *node) for node in nodes)
    message = kio_messages.example(kind, {"brokers": brokers}, array_length=topics)

    after = decoded(rewritten(kio_messages.response_frame(message), METADATA, version), kind)

    expected = tuple(as_advertised(broker, "node_id") for broker in brokers if broker.node_id in ADVERTISED)
    assert after == replace(message, brokers=expected)


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
@pytest.mark.parametrize("endpoint_type", [1, 2])
@FEW_EXAMPLES
@given(nodes=NODES)
def test_brokers_get_advertised_addresses_and_controllers_are_left_out(
    version: int, endpoint_type: int, nodes: list[tuple[int, str, int]]
) -> None:
    kind = kio_messages.response_class(DESCRIBE_CLUSTER, version)
    broker_kind = kind.__annotations__["brokers"].__args__[0]
    brokers = tuple(broker(broker_kind, *node) for node in nodes)
    values = {"brokers": brokers} | ({"endpoint_type": endpoint_type} if version >= 1 else {})
    message = kio_messages.example(kind, values)

    after = decoded(rewritten(kio_messages.response_frame(message), DESCRIBE_CLUSTER, version), kind)

    listed = brokers if endpoint_type == 1 or version == 0 else ()
    expected = tuple(as_advertised(broker, "broker_id") for broker in listed if broker.broker_id in ADVERTISED)
    assert after == replace(message, brokers=expected)


@pytest.mark.parametrize("version", versions(DESCRIBE_CLUSTER))
def test_cluster_id_of_a_described_cluster_is_read(version: int) -> None:
    kind = kio_messages.response_class(DESCRIBE_CLUSTER, version)
    frame = kio_messages.response_frame(kio_messages.example(kind, {"cluster_id": "vPeOCWypqUOSepEvx0cbog"}))

    found = metadata.find_endpoints(frame, 0, version)

    assert found
    assert found.cluster_id == "vPeOCWypqUOSepEvx0cbog"
