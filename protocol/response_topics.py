"""Lists the topics in whole responses of Produce (key 0), Fetch (key 1) and Metadata (key 3).

The layout of Produce is in ``protocol.produce``, that of Fetch in ``protocol.replica_fetch.response``, and that of
Metadata in ``protocol.metadata_query``.
"""

from typing import Final

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.field_reader import response_reader
from kafka_quota_proxy.protocol.metadata_query import read_topic_names
from kafka_quota_proxy.protocol.replica_fetch.response import read_response

_PRODUCE: Final = int(ApiKey.PRODUCE)
_FETCH: Final = int(ApiKey.FETCH)
_METADATA: Final = int(ApiKey.METADATA)

# The APIs that ``topics_of`` reads.
APIS_WITH_TOPICS: Final = frozenset({_PRODUCE, _FETCH})
# From these versions on, responses have topic ids instead of names (KIP-516).
_FIRST_TOPIC_ID: Final = {_PRODUCE: 13, _FETCH: 13}
# index, error_code, base_offset
_PARTITION_BYTES: Final = 4 + 2 + 8


def topics_of(frame: bytes, api_key: int, api_version: int) -> set[bytes]:
    """Return the topics in a response of one of ``APIS_WITH_TOPICS``: names, or 16-byte ids if ``has_topic_ids``.

    A Fetch response within a fetch session has only topics with news. In a Fetch response, topics without partitions
    are left out; brokers send none. ``frame`` begins with the size.

    Raises:
        ProtocolError: If the response cannot be read.
    """
    if api_key == _FETCH:
        return {partition.topic for partition in read_response(frame, 0, len(frame), api_version).partitions}
    reader = response_reader(frame, _PRODUCE, api_version)
    topics: set[bytes] = set()
    fixed_bytes = _PARTITION_BYTES + (8 if api_version >= 2 else 0) + (8 if api_version >= 5 else 0)
    for _ in range(reader.count()):
        topics.add(reader.raw(16) if has_topic_ids(api_key, api_version) else reader.string())
        for _ in range(reader.count()):
            reader.skip(fixed_bytes)
            if api_version >= 8:
                for _ in range(reader.count()):  # record_errors
                    reader.skip(4)
                    reader.nullable_string()
                    reader.skip_tags()
                reader.nullable_string()  # error_message
            reader.skip_tags()
        reader.skip_tags()
    return topics


def has_topic_ids(api_key: int, api_version: int) -> bool:
    """Whether responses of this version have topic ids instead of names."""
    return api_version >= _FIRST_TOPIC_ID[api_key]


def names_by_id(frame: bytes, api_version: int) -> dict[bytes, bytes]:
    """Return the topic names in a whole Metadata response by their 16-byte ids. Empty before v10, which has no ids.

    Raises:
        ProtocolError: If the response cannot be read.
    """
    return read_topic_names(response_reader(frame, _METADATA, api_version), api_version) if api_version >= 10 else {}
