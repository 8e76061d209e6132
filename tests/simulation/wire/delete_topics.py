"""DeleteTopics (key 20), v1 to v6. v6 may say which topic it is by its id alone."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.api import Api
from tests.simulation.wire.common import NO_TOPIC_ID, RequestHeader

API_KEY: Final = 20
VERSIONS: Final = range(1, 7)
# The first version in which a refusal has THROTTLING_QUOTA_EXCEEDED (KIP-599).
FIRST_REFUSAL: Final = 5
THROTTLING_QUOTA_EXCEEDED: Final = 89

_FIRST_TOPIC_ID: Final = 6


class DoomedTopic(NamedTuple):
    """A topic to delete. ``name`` is None if its id says which."""

    name: str | None
    topic_id: bytes = NO_TOPIC_ID


class DeleteTopicsRequest(NamedTuple):
    """A request: ``topics`` from v6 on, ``names`` before."""

    header: RequestHeader
    timeout_ms: int = 30_000
    topics: Sequence[DoomedTopic] = ()
    names: Sequence[str | None] = ()


class DeletedTopic(NamedTuple):
    """What became of a topic."""

    name: str | None
    error_code: int = 0
    error_message: str | None = None
    topic_id: bytes = NO_TOPIC_ID


class DeleteTopicsResponse(NamedTuple):
    correlation_id: int
    topics: Sequence[DeletedTopic]
    throttle_ms: int = 0


API: Final = Api(API_KEY, VERSIONS, DeleteTopicsRequest, DeleteTopicsResponse)
response, parse_response = API.response, API.parse_response


def request(
    correlation_id: int,
    version: int,
    client_id: str | None,
    topics: Sequence[DoomedTopic],
    *,
    timeout_ms: int = 30_000,
) -> bytes:
    """Return a request."""
    return API.request(correlation_id, version, client_id, timeout_ms, topics, [topic.name for topic in topics])


def parse_request(frame: bytes) -> DeleteTopicsRequest:
    """Read a request, with its names among its topics."""
    found = API.parse_request(frame)
    if found.header.api_version >= _FIRST_TOPIC_ID:
        return found
    return found._replace(topics=[DoomedTopic(name) for name in found.names])
