"""Finds the nodes and the cluster id in Metadata responses (key 3) and DescribeCluster responses (key 60).

The topics of a Metadata response are not read.

Source: KIP-919.
"""

from typing import Final, NamedTuple

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.broker_list import (
    AdvertisedAddresses,
    BrokerList,
    broker_list,
    read_front,
    replace_front,
)
from kafka_quota_proxy.protocol.errors import Truncated
from kafka_quota_proxy.protocol.primitives import read_int16, read_uvarint, skip_compact_string, skip_string

_METADATA: Final = int(ApiKey.METADATA)
_DESCRIBE_CLUSTER: Final = int(ApiKey.DESCRIBE_CLUSTER)
# Values of endpoint_type.
BROKERS: Final = 1
CONTROLLERS: Final = 2
# A cluster id is usually a UUID of 22 letters. Older brokers and other products use a few words.
MAX_CLUSTER_ID_BYTES: Final = 256


def find_brokers(data: bytes, start: int, api_version: int) -> BrokerList | None:
    """Return the brokers that the Metadata response at ``start`` lists, or None if more bytes are needed."""
    front = read_front(data, start, _METADATA, api_version)
    return None if front is None else broker_list(*front[1:], is_compact=api_version >= 9)


def find_cluster_id(data: bytes, start: int, brokers: BrokerList, api_version: int) -> str | None:
    """Return the cluster id in a Metadata response, or None if it is missing or has not arrived yet."""
    if api_version < 2:
        return None
    frame = memoryview(data)[: start + 4 + int.from_bytes(data[start : start + 4])]
    try:
        end = (skip_compact_string if brokers.is_compact else skip_string)(frame, brokers.end)
    except Truncated:
        return None
    _, begin = (read_uvarint if brokers.is_compact else read_int16)(frame, brokers.end)
    return _cluster_id(data[begin:end])


def _cluster_id(value: bytes | None) -> str | None:
    """Return a cluster id, or None if it is null, empty or longer than ``MAX_CLUSTER_ID_BYTES``."""
    return value.decode("utf-8", "backslashreplace") if value and len(value) <= MAX_CLUSTER_ID_BYTES else None


class Endpoints(NamedTuple):
    """The cluster id and the nodes in a DescribeCluster response.

    ``endpoint_type`` says whether the nodes are ``BROKERS`` or ``CONTROLLERS``.
    """

    endpoint_type: int
    brokers: BrokerList
    cluster_id: str | None


def find_endpoints(data: bytes, start: int, api_version: int) -> Endpoints | None:
    """Return the nodes and the cluster id in a DescribeCluster response, or None if more bytes are needed."""
    front = read_front(data, start, _DESCRIBE_CLUSTER, api_version)
    if front is None:
        return None
    _, _, _, endpoint_type, cluster_id, _, *brokers = front
    listed = broker_list(*brokers, is_compact=True)
    return Endpoints(BROKERS if endpoint_type is None else endpoint_type, listed, _cluster_id(cluster_id))


def replace_endpoints(data: bytes, start: int, endpoints: Endpoints, addresses: AdvertisedAddresses) -> bytes:
    """Return the DescribeCluster frame at ``start`` up to the end of its nodes, with the advertised addresses.

    The caller can forward the rest of the frame unchanged. Controllers are removed from the list, because the proxy has
    no ports for them.
    """
    is_brokers = endpoints.endpoint_type == BROKERS
    return replace_front(data, start, endpoints.brokers, addresses if is_brokers else {})
