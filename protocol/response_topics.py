"""Lists the topics in whole responses of Produce (key 0), Fetch (key 1) and Metadata (key 3)."""

from typing import Final

from kafka_quota_proxy.protocol import codec
from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.protocol.metadata_query import read_topics
from kafka_quota_proxy.protocol.replica_fetch.response import read_response

_PRODUCE: Final = int(ApiKey.PRODUCE)
_FETCH: Final = int(ApiKey.FETCH)

# The APIs that ``topics_of`` reads.
APIS_WITH_TOPICS: Final = frozenset({_PRODUCE, _FETCH})


def topics_of(frame: bytes, api_key: int, api_version: int) -> set[bytes]:
    """Return the topics in a response of one of ``APIS_WITH_TOPICS``: names, or 16-byte ids from v13 on.

    A Fetch response within a fetch session has only topics with news. In a Fetch response, topics without partitions
    are left out; brokers send none. ``frame`` begins with the size.

    Raises:
        ProtocolError: If the response cannot be read.
    """
    if api_key == _FETCH:
        return {partition.topic for partition in read_response(frame, 0, len(frame), api_version).partitions}
    topics, _ = codec.read_response(frame, _PRODUCE, api_version)
    return {name if topic_id is None else topic_id for name, topic_id, _ in topics}


def names_by_id(frame: bytes, api_version: int) -> dict[bytes, bytes]:
    """Return the topic names in a whole Metadata response by their 16-byte ids. Empty before v10, which has no ids.

    Raises:
        ProtocolError: If the response cannot be read.
    """
    topics = read_topics(frame, api_version) if api_version >= 10 else ()
    return {topic_id: name for _, name, topic_id, *_ in topics if name is not None}
