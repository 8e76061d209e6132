"""DescribeCluster (key 60): the brokers, or the controllers, of a response.

    response   int32 throttle_time_ms, int16 error_code, string error_message, [v1+ int8 endpoint_type],
               string cluster_id, int32 controller_id,
               array of { int32 broker_id, string host, int32 port, string rack, [v2+ bool is_fenced] }
               int32 cluster_authorized_operations

Strings and arrays are compact, and each structure ends with tags, in all versions.

Source: DescribeClusterRequest.json, DescribeClusterResponse.json (0 to 2) in Apache Kafka; KIP-919 for endpoint_type.
"""

from typing import Final, NamedTuple

from kafka_quota_proxy.protocol.broker_list import (
    AdvertisedAddresses,
    BrokerList,
    read_broker_list,
    read_cluster_id,
    read_from_front,
    replace_front,
    skip_rack_and_tags,
)
from kafka_quota_proxy.protocol.primitives import Buffer, skip, skip_compact_string, skip_tags

BROKERS: Final = 1
CONTROLLERS: Final = 2


class Endpoints(NamedTuple):
    """The listed ``BROKERS`` or ``CONTROLLERS``, and the id of the cluster.

    The node ids of brokers and of controllers are unrelated.
    """

    endpoint_type: int
    brokers: BrokerList
    cluster_id: str | None


def find_endpoints(data: bytes, start: int, api_version: int) -> Endpoints | None:
    """Find the endpoints of a response; None if more bytes are needed."""

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
    """Return the frame from ``start`` to the end of the endpoints; the rest may follow unchanged.

    Brokers get their advertised addresses. Controllers are left out: this proxy has no ports for them.
    """
    is_brokers = endpoints.endpoint_type == BROKERS
    return replace_front(data, start, endpoints.brokers, addresses if is_brokers else {})


def _skip_rack_fenced_and_tags(data: Buffer, offset: int) -> int:
    return skip_tags(data, skip(data, skip_compact_string(data, offset), 1))
