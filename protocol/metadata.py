"""Finds the nodes and the cluster id in Metadata responses (key 3) and DescribeCluster responses (key 60).

    Metadata           [v3+ int32 throttle_time_ms]
    response           array of { int32 node_id, string host, int32 port, [v1+ string rack] }
                       [v2+ string cluster_id] [v1+ int32 controller_id] array of topics ...
    DescribeCluster    int32 throttle_time_ms, int16 error_code, string error_message, [v1+ int8 endpoint_type],
    response           string cluster_id, int32 controller_id,
                       array of { int32 broker_id, string host, int32 port, string rack, [v2+ bool is_fenced] } ...

From Metadata v9 and DescribeCluster v0 on strings and arrays are compact, and each structure ends with tags. The topics
of a Metadata response are not read.

Source: MetadataResponse.json (0 to 13), DescribeClusterResponse.json (0 to 2) in Apache Kafka; KIP-919.
"""

from typing import Final, NamedTuple

from kafka_quota_proxy.protocol.broker_list import (
    AdvertisedAddresses,
    BrokerList,
    frame_so_far,
    read_broker_list,
    read_cluster_id,
    read_from_front,
    replace_front,
    skip_nothing,
    skip_rack_and_tags,
)
from kafka_quota_proxy.protocol.errors import Truncated
from kafka_quota_proxy.protocol.primitives import Buffer, skip, skip_compact_string, skip_string, skip_tags

# Values of endpoint_type.
BROKERS: Final = 1
CONTROLLERS: Final = 2


def find_brokers(data: bytes, start: int, api_version: int) -> BrokerList | None:
    """Return the brokers that the Metadata response at ``start`` lists, or None if more bytes are needed."""

    def read(frame: memoryview, offset: int) -> BrokerList:
        is_flexible = api_version >= 9
        if is_flexible:
            offset = skip_tags(frame, offset)
        if api_version >= 3:
            offset = skip(frame, offset, 4)  # throttle_time_ms
        skip_rest = skip_rack_and_tags if is_flexible else skip_string if api_version >= 1 else skip_nothing
        return read_broker_list(frame, offset, is_compact=is_flexible, skip_rest=skip_rest)

    return read_from_front(data, start, read)


def find_cluster_id(data: bytes, start: int, brokers: BrokerList, api_version: int) -> str | None:
    """Return the cluster id in a Metadata response, or None if it is missing or has not arrived yet."""
    if api_version < 2:
        return None
    try:
        return read_cluster_id(frame_so_far(data, start), brokers.end, is_compact=brokers.is_compact)
    except Truncated:
        return None


class Endpoints(NamedTuple):
    """The cluster id and the nodes in a DescribeCluster response.

    ``endpoint_type`` says whether the nodes are ``BROKERS`` or ``CONTROLLERS``.
    """

    endpoint_type: int
    brokers: BrokerList
    cluster_id: str | None


def find_endpoints(data: bytes, start: int, api_version: int) -> Endpoints | None:
    """Return the nodes and the cluster id in a DescribeCluster response, or None if more bytes are needed."""

    def read(frame: memoryview, offset: int) -> Endpoints:
        offset = skip_compact_string(frame, skip(frame, skip_tags(frame, offset), 4 + 2))  # error_message
        endpoint_type = BROKERS
        if api_version >= 1:
            end = skip(frame, offset, 1)
            endpoint_type, offset = frame[offset], end
        cluster_id = read_cluster_id(frame, offset, is_compact=True)
        offset = skip(frame, skip_compact_string(frame, offset), 4)  # controller_id
        skip_rest = _skip_rack_fenced_and_tags if api_version >= 2 else skip_rack_and_tags
        brokers = read_broker_list(frame, offset, is_compact=True, skip_rest=skip_rest)
        return Endpoints(endpoint_type, brokers, cluster_id)

    return read_from_front(data, start, read)


def replace_endpoints(data: bytes, start: int, endpoints: Endpoints, addresses: AdvertisedAddresses) -> bytes:
    """Return the DescribeCluster frame at ``start`` up to the end of its nodes, with the advertised addresses.

    The caller can forward the rest of the frame unchanged. Controllers are removed from the list, because the proxy has
    no ports for them.
    """
    is_brokers = endpoints.endpoint_type == BROKERS
    return replace_front(data, start, endpoints.brokers, addresses if is_brokers else {})


def _skip_rack_fenced_and_tags(data: Buffer, offset: int) -> int:
    return skip_tags(data, skip(data, skip_compact_string(data, offset), 1))
