"""Metadata (key 3): the brokers of a response, and the id of their cluster.

    response   [v3+ int32 throttle_time_ms]
               array of { int32 node_id, string host, int32 port, [v1+ string rack] }
               [v2+ string cluster_id] [v1+ int32 controller_id] array of topics ...

From v9 on strings and arrays are compact, and each of the structures ends with tags. What lies behind the cluster_id is
never looked at, however many topics it has.

Source: MetadataRequest.json, MetadataResponse.json (0 to 13) in Apache Kafka.
"""

from typing import Final

from kafka_quota_proxy.protocol.broker_list import (
    AdvertisedAddresses,
    BrokerList,
    frame_so_far,
    need_more,
    read_broker_list,
    read_cluster_id,
    replaced_front,
    written,
)
from kafka_quota_proxy.protocol.errors import Truncated
from kafka_quota_proxy.protocol.primitives import Buffer, skip, skip_compact_string, skip_string, skip_tags

_FIRST_RACK: Final = 1
_FIRST_CLUSTER_ID: Final = 2
_FIRST_THROTTLE: Final = 3
_FIRST_FLEXIBLE: Final = 9


def find_brokers(data: bytes, start: int, api_version: int) -> BrokerList | None:
    """Find the brokers of a response, which are all that are alive.

    Args:
        data: Bytes of the connection, as many as have come.
        start: Where in ``data`` the frame's size is.
        api_version: Of the request; one newer than 13 is read like 13.

    Returns:
        The brokers; None if more bytes are needed.

    Raises:
        ProtocolError: This is no such response, or its brokers take unreasonably many bytes.
    """
    is_flexible = api_version >= _FIRST_FLEXIBLE
    frame = frame_so_far(data, start)
    try:
        offset = skip(frame, start, 8)
        if is_flexible:
            offset = skip_tags(frame, offset)
        if api_version >= _FIRST_THROTTLE:
            offset = skip(frame, offset, 4)
        skip_rest = _skip_rack_and_tags if is_flexible else skip_string if api_version >= _FIRST_RACK else _skip_nothing
        return read_broker_list(frame, offset, is_compact=is_flexible, skip_rest=skip_rest)
    except Truncated as error:
        need_more(data, start, error)
        return None


def find_cluster_id(data: bytes, start: int, brokers: BrokerList, api_version: int) -> str | None:
    """Return the id of the cluster.

    Args:
        data: Bytes of the connection, as many as have come.
        start: Where in ``data`` the frame's size is.
        brokers: What ``find_brokers`` has found in it.
        api_version: Of the request.

    Returns:
        The id; None where the response has none, or where it has not come yet: nothing is worth a wait for it.

    Raises:
        ProtocolError: There is something else in its place.
    """
    if api_version < _FIRST_CLUSTER_ID:
        return None
    try:
        return read_cluster_id(frame_so_far(data, start), brokers.end, is_compact=brokers.is_compact)
    except Truncated:
        return None


def replace_brokers(data: bytes, start: int, brokers: BrokerList, told: AdvertisedAddresses) -> bytes:
    """Return the front of the frame anew, from ``start`` to ``brokers.end``; the rest may follow unchanged."""
    return replaced_front(data, start, brokers.begin, brokers.end, written(data, brokers, told))


def _skip_nothing(data: Buffer, offset: int) -> int:
    return offset


def _skip_rack_and_tags(data: Buffer, offset: int) -> int:
    return skip_tags(data, skip_compact_string(data, offset))
