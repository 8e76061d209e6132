"""Metadata (key 3): the brokers of a response, and the id of their cluster.

    response   [v3+ int32 throttle_time_ms]
               array of { int32 node_id, string host, int32 port, [v1+ string rack] }
               [v2+ string cluster_id] [v1+ int32 controller_id] array of topics ...

From v9 on strings and arrays are compact, and each structure ends with tags. The topics after the cluster_id are not
read, however many there are.

Source: MetadataRequest.json, MetadataResponse.json (0 to 13) in Apache Kafka.
"""

from kafka_quota_proxy.protocol.broker_list import (
    BrokerList,
    frame_so_far,
    read_broker_list,
    read_cluster_id,
    read_from_front,
    skip_nothing,
    skip_rack_and_tags,
)
from kafka_quota_proxy.protocol.errors import Truncated
from kafka_quota_proxy.protocol.primitives import skip, skip_string, skip_tags


def find_brokers(data: bytes, start: int, api_version: int) -> BrokerList | None:
    """Find all live brokers of the cluster in a response; None if more bytes are needed."""

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
    """Return the cluster's id; None if the response has none, or if it has not arrived yet: it is not worth a wait."""
    if api_version < 2:
        return None
    try:
        return read_cluster_id(frame_so_far(data, start), brokers.end, is_compact=brokers.is_compact)
    except Truncated:
        return None
