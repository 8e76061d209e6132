"""Writes the Metadata request (key 3, v1-13) with which the proxy asks for partition counts, and reads the response.

Before v4 a request for a topic may create the topic, so in those versions the proxy asks for all topics.

Source: ``KafkaApis.handleTopicMetadataRequest`` in Apache Kafka.
"""

from collections.abc import Collection
from typing import Any, Final
from uuid import UUID

from kafka_quota_proxy.protocol import codec
from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey
from kafka_quota_proxy.protocol.errors import TooManyElements
from kafka_quota_proxy.protocol.primitives import NULL_UUID
from kafka_quota_proxy.protocol.topic_mutations import NO_ERROR, Topic

FIRST_VERSION: Final = 1
# The first version that can ask for a topic by its id (KIP-516). In v10 and v11 the topic id is a reserved field.
FIRST_TOPIC_ID: Final = 12
LATEST_VERSION: Final = HIGHEST_VERSION[ApiKey.METADATA]

_METADATA: Final = int(ApiKey.METADATA)

# With these errors the client cannot change the topic, so the topic counts as one without partitions:
# UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID.
_NOT_THERE: Final = frozenset({3, 17, 29, 100})


def write_request(
    topics: Collection[Topic], *, correlation_id: int, client_id: bytes | None, api_version: int
) -> bytes:
    """Encode a Metadata request as a whole frame, in a version from ``FIRST_VERSION`` to ``LATEST_VERSION``.

    Each of ``topics`` is a name or, in versions from ``FIRST_TOPIC_ID`` on, a topic id. Before v4 the request asks for
    all topics.
    """
    asked = [(topic.bytes, None) if isinstance(topic, UUID) else (NULL_UUID, topic) for topic in topics]
    values = (None if api_version < 4 else asked, False, False, False)
    return codec.write_request(_METADATA, api_version, correlation_id, client_id, values)


def read_partition_counts(frame: bytes, topics: Collection[Topic], api_version: int) -> dict[Topic, int]:
    """Return the partition counts of ``topics`` from a whole Metadata response.

    The count is 0 for a topic that does not exist, or that the client has no right to see. A topic is missing from the
    result if the response does not say its partitions. All are if it has more than ``MAX_RESPONSE_ELEMENTS`` array
    elements.
    """
    counts: dict[Topic, int] = {}
    wanted = set(topics)
    try:
        found = read_topics(frame, api_version)
    except TooManyElements:
        # The cluster is large and the response lists all of its topics.
        return counts
    for error_code, name, topic_id, _, partitions, _ in found:
        if error_code in _NOT_THERE:
            partitions = ()
        elif error_code != NO_ERROR and not partitions:
            continue
        names: list[Topic] = [one for one in (name, topic_id and UUID(bytes=topic_id)) if one is not None]
        counts |= dict.fromkeys(wanted.intersection(names), len(partitions))
    return counts


def read_topics(frame: bytes, api_version: int) -> tuple[tuple[Any, ...], ...]:
    """Return the topics in a whole Metadata response, as ``protocol.messages`` lists their fields."""
    _, _, _, _, topics, *_ = codec.read_response(frame, _METADATA, api_version)
    return tuple(topics)
