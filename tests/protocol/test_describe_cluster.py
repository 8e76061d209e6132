"""The endpoints of DescribeCluster responses, as kio writes and reads them."""

from dataclasses import replace

import pytest
from hypothesis import given

from kafka_quota_proxy.protocol import describe_cluster
from tests.protocol.support import kio_messages
from tests.protocol.support.broker_lists import (
    ADVERTISED,
    DESCRIBE_CLUSTER,
    NODES,
    as_advertised,
    broker,
    decoded,
    rewritten,
    versions,
)
from tests.support.cases import FEW_EXAMPLES


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
def test_cluster_id_is_read(version: int) -> None:
    kind = kio_messages.response_class(DESCRIBE_CLUSTER, version)
    frame = kio_messages.response_frame(kio_messages.example(kind, {"cluster_id": "vPeOCWypqUOSepEvx0cbog"}))

    found = describe_cluster.find_endpoints(frame, 0, version)

    assert found
    assert found.cluster_id == "vPeOCWypqUOSepEvx0cbog"
