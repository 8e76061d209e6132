"""Replaces partitions of a whole Fetch response (key 1) by partitions without records.

The layout is in ``protocol.replica_fetch.response``.
"""

from collections.abc import Container, Iterator

from kafka_quota_proxy.protocol.primitives import Buffer, framed
from kafka_quota_proxy.protocol.replica_fetch.response import ResponsePartition, read_response, truncate_partition

# An entry begins with int32 partition, int16 error_code.
_ERROR_AT = 4
_AFTER_ERROR = 6


def has_partition(frame: bytes, api_version: int, topics: Container[bytes] | None, *, with_records: bool) -> bool:
    """Return whether a response has a partition of ``topics``, or of any topic if that is None.

    ``topics`` contains names, or 16-byte ids from v13 on. If ``with_records``, only partitions with records count.

    Raises:
        ProtocolError: If the response cannot be read.
    """
    return any(not with_records or one.records_end > one.records for one in _chosen(frame, api_version, topics))


def without_records(
    frame: bytes, api_version: int, topics: Container[bytes] | None, *, error_code: int | None = None
) -> bytes:
    """Return a response in which the partitions of ``topics`` have no records, and the error if one is given.

    All other bytes stay as they are. ``topics`` is what ``has_partition`` takes.

    Raises:
        ProtocolError: If the response cannot be read.
    """
    parts: list[Buffer] = []
    at = 4  # after the size
    for one in _chosen(frame, api_version, topics):
        entry = b"".join(truncate_partition(frame, one, one.records, api_version))
        if error_code is not None:
            entry = entry[:_ERROR_AT] + error_code.to_bytes(2, signed=True) + entry[_AFTER_ERROR:]
        parts += (frame[at : one.begin], entry)
        at = one.end
    return framed(*parts, frame[at:])


def _chosen(frame: bytes, api_version: int, topics: Container[bytes] | None) -> Iterator[ResponsePartition]:
    for one in read_response(frame, 0, len(frame), api_version).partitions:
        if topics is None or one.topic in topics:
            yield one
