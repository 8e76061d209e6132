"""Counts the bytes of records in the response to a Fetch (key 1) or ShareFetch (key 78)."""

from typing import Final

from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey
from kafka_quota_proxy.protocol.codec import read_response as read_any_response
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.protocol.replica_fetch.response import read_response

_FETCH: Final = int(ApiKey.FETCH)
_SHARE_FETCH: Final = int(ApiKey.SHARE_FETCH)


def brought_bytes(data: bytes, position: int, frame_bytes: int, api_key: int, api_version: int) -> int:
    """Return the bytes of records of all partitions in the response that begins at ``position`` of ``data``.

    ``frame_bytes`` is the size of the response's frame, including the size field. It is returned if the response has
    not arrived as a whole, or cannot be read: then all of it may be records.
    """
    if position + frame_bytes > len(data) or api_version > HIGHEST_VERSION[api_key]:
        return frame_bytes
    try:
        if api_key == _FETCH:
            partitions = read_response(data, position, frame_bytes, api_version).partitions
            return sum(one.records_end - one.records for one in partitions)
        *_, topics, _ = read_any_response(data[position : position + frame_bytes], _SHARE_FETCH, api_version)
        return sum(len(records or b"") for _, partitions in topics for *_, records, _ in partitions)
    except ProtocolError:
        return frame_bytes
