"""Counts the bytes of records in the response to a Fetch (key 1) or ShareFetch (key 78).

The layout of Fetch is in ``protocol.replica_fetch.response``::

    ShareFetch   int32 throttle_time_ms, int16 error_code, string error_message, [v1+ int32 acquisition_lock_timeout_ms]
                 array of { uuid topic_id, array of partitions, tags }, array of node_endpoints, tags
    partition    int32 partition, int16 error_code, string error_message, int16 acknowledge_error_code,
                 string acknowledge_error_message, { int32 leader_id, int32 leader_epoch, tags }, bytes records,
                 array of { int64 first_offset, int64 last_offset, int16 delivery_count, tags }, tags

Source: ShareFetchResponse.json (0 to 2) in Apache Kafka.
"""

from typing import Final

from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.protocol.field_reader import response_reader
from kafka_quota_proxy.protocol.replica_fetch.response import read_response

_FETCH: Final = int(ApiKey.FETCH)
_SHARE_FETCH: Final = int(ApiKey.SHARE_FETCH)
_FIRST_LOCK_TIMEOUT: Final = 1


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
        return _share_fetch_bytes(data[position : position + frame_bytes], api_version)
    except ProtocolError:
        return frame_bytes


def _share_fetch_bytes(frame: bytes, api_version: int) -> int:
    reader = response_reader(frame, _SHARE_FETCH, api_version)
    reader.skip(4 + 2)
    reader.skip_bytes()
    if api_version >= _FIRST_LOCK_TIMEOUT:
        reader.skip(4)
    found = 0
    for _ in range(reader.count()):
        reader.skip(16)
        for _ in range(reader.count()):
            reader.skip(4 + 2)
            reader.skip_bytes()
            reader.skip(2)
            reader.skip_bytes()
            reader.skip(4 + 4)
            reader.skip_tags()
            before = reader.at
            reader.skip_bytes()
            found += reader.at - before - 1  # the length takes at least a byte
            for _ in range(reader.count()):
                reader.skip(8 + 8 + 2)
                reader.skip_tags()
            reader.skip_tags()
        reader.skip_tags()
    return found
