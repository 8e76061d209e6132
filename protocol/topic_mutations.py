"""Reads and rewrites CreateTopics (key 19, v0-7), DeleteTopics (20, v0-6) and CreatePartitions (37, v0-3).

All functions take whole frames. A topic's entry is kept as a range of bytes, so that it can be copied unchanged to a
frame with fewer topics.

Source: KIP-599.
"""

from collections import deque
from collections.abc import Iterable, Set
from typing import Final, NamedTuple
from uuid import UUID

from kafka_quota_proxy.protocol import codec
from kafka_quota_proxy.protocol.api import HIGHEST_VERSION, ApiKey, is_flexible
from kafka_quota_proxy.protocol.codec import framed
from kafka_quota_proxy.protocol.primitives import NULL_UUID, written_count

# A topic's name in UTF-8, or its id.
Topic = bytes | UUID

_CREATE: Final = int(ApiKey.CREATE_TOPICS)
_DELETE: Final = int(ApiKey.DELETE_TOPICS)
_GROW: Final = int(ApiKey.CREATE_PARTITIONS)

# In a CreateTopics request this number of partitions stands for the broker's num.partitions.
BROKER_DEFAULT: Final = -1
NO_ERROR: Final = 0
THROTTLING_QUOTA_EXCEEDED: Final = 89
# The message that Kafka's class ``Errors`` has for this code.
THROTTLING_QUOTA_EXCEEDED_MESSAGE: Final = b"The throttling quota has been exceeded."

# The first versions whose clients know THROTTLING_QUOTA_EXCEEDED and can be refused with it (KIP-599).
FIRST_REFUSABLE_VERSION: Final[dict[int, int]] = {_CREATE: 6, _GROW: 3, _DELETE: 5}
_UNKNOWN: Final = -1
_MAX_INT32: Final = 2**31 - 1


class TopicMutation(NamedTuple):
    """One topic in a request. Its entry is the frame's bytes from ``begin`` to ``end``.

    ``partitions`` depends on the API. For CreateTopics it is the number of partitions to create, which may be
    ``BROKER_DEFAULT``. For CreatePartitions it is the total that the topic is to have. For DeleteTopics it is 0.
    """

    topic: Topic
    partitions: int
    begin: int
    end: int


class MutationRequest(NamedTuple):
    """A CreateTopics, CreatePartitions or DeleteTopics request, which may list a topic twice.

    The array of topics consists of the bytes of the frame from the offset ``topics_at`` to ``topics_end``.
    """

    api_key: int
    api_version: int
    correlation_id: int
    topics: tuple[TopicMutation, ...]
    validate_only: bool
    topics_at: int
    topics_end: int


class TopicResult(NamedTuple):
    """The result for one topic in a response. Its entry is the frame's bytes from ``begin`` to ``end``.

    ``name`` is None if DeleteTopics v6 finds no topic with the given id. ``topic_id`` is None if the response has no id
    or an id of zeros. ``partitions`` is the number of partitions that CreateTopics (v5+) created, otherwise -1.
    """

    name: bytes | None
    topic_id: UUID | None
    error_code: int
    partitions: int
    begin: int
    end: int


class MutationResponse(NamedTuple):
    """A CreateTopics, CreatePartitions or DeleteTopics response.

    The field throttle_time_ms consists of the bytes from the offset ``throttle_at`` to ``results_at``, which are equal
    if the version lacks the field. The array of results consists of those from ``results_at`` to ``results_end``.
    """

    throttle_time_ms: int
    results: tuple[TopicResult, ...]
    throttle_at: int
    results_at: int
    results_end: int


def is_mutation(api_key: int, api_version: int) -> bool:
    """Whether a request is CreateTopics, CreatePartitions or DeleteTopics, in a version that this module can read."""
    return api_key in FIRST_REFUSABLE_VERSION and api_version <= HIGHEST_VERSION[api_key]


# -- requests


def read_request(frame: bytes) -> MutationRequest:
    """Read a whole request for which ``is_mutation`` is true."""
    head = codec.read_whole_head(frame)
    api_key, values = head.api_key, codec.read_request(frame, head)
    validate_only = False
    if api_key == _CREATE:
        topics, topics_end, _, validate_only = values
        topics = [(begin, name, len(assigned) or count) for begin, name, count, _, assigned, _ in topics]
    elif api_key == _GROW:
        topics, topics_end, _, validate_only = values
    else:
        topics, names, topics_end, _ = values
        topics = [(begin, UUID(bytes=topic_id) if name is None else name, 0) for begin, name, topic_id in topics or ()]
        topics += ((begin, name, 0) for begin, name in names or ())
    ends = [*(topic[0] for topic in topics[1:]), topics_end]
    mutations = tuple(
        TopicMutation(topic, partitions, begin, end)
        for (begin, topic, partitions, *_), end in zip(topics, ends, strict=False)
    )
    return MutationRequest(
        api_key, head.api_version, head.correlation_id, mutations, bool(validate_only), head.body, topics_end
    )


def without_topics(frame: bytes, request: MutationRequest, left_out: Set[Topic]) -> bytes:
    """Return the frame of a request without the topics in ``left_out``. All other bytes stay as they are."""
    kept = [mutation for mutation in request.topics if mutation.topic not in left_out]
    if len(kept) == len(request.topics):
        return frame
    return framed(
        frame[4 : request.topics_at],
        written_count(len(kept), is_flexible=is_flexible(request.api_key, request.api_version)),
        *(frame[mutation.begin : mutation.end] for mutation in kept),
        frame[request.topics_end :],
    )


# -- responses


def read_response(frame: bytes, api_key: int, api_version: int) -> MutationResponse:
    """Read a whole response to a request for which ``is_mutation`` is true."""
    throttle_at, throttle_time_ms, results_at, entries, results_end = codec.read_response(frame, api_key, api_version)
    results = []
    for entry, end in zip(entries, [*(entry[0] for entry in entries[1:]), results_end], strict=False):
        begin, name, topic_id, error_code, *rest = (*entry[:2], None, *entry[2:]) if api_key == _GROW else entry
        partitions = rest[1] if api_key == _CREATE else None
        results.append(
            TopicResult(
                name,
                UUID(bytes=topic_id) if topic_id and topic_id != NULL_UUID else None,
                error_code,
                _UNKNOWN if partitions is None else partitions,
                begin,
                end,
            )
        )
    return MutationResponse(throttle_time_ms or 0, tuple(results), throttle_at, results_at, results_end)


def with_refused_topics(frame: bytes, request: MutationRequest, refused: Set[Topic], *, throttle_time_ms: int) -> bytes:
    """Return the broker's response, with entries for the topics that ``without_topics`` left out of the request.

    These topics have the error THROTTLING_QUOTA_EXCEEDED. All topics are in the order of the client's request, and
    topics that appear only in the response are last. The throttle time is the longer of the broker's and
    ``throttle_time_ms``. All other bytes stay as they are.
    """
    api_key, api_version = request.api_key, request.api_version
    response = read_response(frame, api_key, api_version)
    own_frame = _refusal(request, refused, max(throttle_time_ms, response.throttle_time_ms))
    own = read_response(own_frame, api_key, api_version)
    refusals = dict(zip(refused, own.results, strict=True))
    entries = _in_order_of_request(request, response, refused)
    return framed(
        frame[4 : response.throttle_at],
        own_frame[own.throttle_at : own.results_at],
        written_count(len(entries), is_flexible=is_flexible(api_key, api_version)),
        *(
            frame[entry.begin : entry.end]
            if isinstance(entry, TopicResult)
            else own_frame[refusals[entry].begin : refusals[entry].end]
            for entry in entries
        ),
        frame[response.results_end :],
    )


def refuse_all_topics(request: MutationRequest, *, throttle_time_ms: int) -> bytes:
    """Return a response that refuses all topics of a request with THROTTLING_QUOTA_EXCEEDED.

    Clients know this error from ``FIRST_REFUSABLE_VERSION`` on.
    """
    return _refusal(request, dict.fromkeys(mutation.topic for mutation in request.topics), throttle_time_ms)


def _in_order_of_request(
    request: MutationRequest, response: MutationResponse, refused: Set[Topic]
) -> list[Topic | TopicResult]:
    """Return the refused topics and the broker's results in the order in which the request lists their topics."""
    results: dict[Topic, deque[int]] = {}
    for index, result in enumerate(response.results):
        # The request has the name or the id of a topic. The response may have both.
        for topic in (result.name, result.topic_id):
            if topic is not None:
                results.setdefault(topic, deque()).append(index)
    ordered: list[Topic | TopicResult] = []
    used: set[int] = set()
    for topic in dict.fromkeys(mutation.topic for mutation in request.topics):
        if topic in refused:
            ordered.append(topic)
            continue
        for index in results.get(topic, ()):
            if index not in used:
                used.add(index)
                ordered.append(response.results[index])
    ordered += (result for index, result in enumerate(response.results) if index not in used)
    return ordered


def _refusal(request: MutationRequest, topics: Iterable[Topic], throttle_time_ms: int) -> bytes:
    """Return a response that refuses these topics."""
    api_key = request.api_key
    entries = []
    for topic in topics:
        name, topic_id = (topic, NULL_UUID) if isinstance(topic, bytes) else (None, topic.bytes)
        ids = () if api_key == _GROW else (topic_id,)
        details = (_UNKNOWN, _UNKNOWN, ()) if api_key == _CREATE else ()
        entries.append((None, name, *ids, THROTTLING_QUOTA_EXCEEDED, THROTTLING_QUOTA_EXCEEDED_MESSAGE, *details))
    values = (None, min(throttle_time_ms, _MAX_INT32), None, entries, None)
    return codec.write_response(api_key, request.api_version, request.correlation_id, values)
