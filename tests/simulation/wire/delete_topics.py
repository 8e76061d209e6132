"""DeleteTopics (key 20), v1 to v6. v6 may say which topic it is by its id alone."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.common import NO_TOPIC_ID, RequestHeader
from tests.simulation.wire.layout import (
    I16,
    I32,
    NULLABLE_STRING,
    STRING,
    UUID,
    Array,
    Field,
    Request,
    Response,
    Struct,
)

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
    header: RequestHeader
    timeout_ms: int
    topics: Sequence[DoomedTopic]


class DeletedTopic(NamedTuple):
    """What became of a topic."""

    name: str | None
    error_code: int = 0
    error_message: str | None = None
    topic_id: bytes = NO_TOPIC_ID


class DeleteTopicsResponse(NamedTuple):
    correlation_id: int
    throttle_ms: int
    topics: Sequence[DeletedTopic]


class _RawRequest(NamedTuple):
    header: RequestHeader
    timeout_ms: int
    names: Sequence[str] = ()
    topics: Sequence[DoomedTopic] = ()


_DOOMED: Final = Struct(DoomedTopic, Field("name", NULLABLE_STRING), Field("topic_id", UUID))
_REQUEST: Final = Request(
    API_KEY,
    VERSIONS,
    _RawRequest,
    Field("names", Array(STRING), last=_FIRST_TOPIC_ID - 1),
    Field("topics", Array(_DOOMED), first=_FIRST_TOPIC_ID),
    Field("timeout_ms", I32),
)
_DELETED: Final = Struct(
    DeletedTopic,
    Field("name", STRING, last=_FIRST_TOPIC_ID - 1),
    Field("name", NULLABLE_STRING, first=_FIRST_TOPIC_ID),
    Field("topic_id", UUID, first=_FIRST_TOPIC_ID),
    Field("error_code", I16),
    Field("error_message", NULLABLE_STRING, first=5),
)
_RESPONSE: Final = Response(
    API_KEY, VERSIONS, DeleteTopicsResponse, Field("throttle_ms", I32), Field("topics", Array(_DELETED))
)


def request(
    correlation_id: int,
    version: int,
    client_id: str | None,
    topics: Sequence[DoomedTopic],
    *,
    timeout_ms: int = 30_000,
) -> bytes:
    """Return a request."""
    names = [topic.name for topic in topics]
    return _REQUEST.write(correlation_id, version, client_id, names=names, topics=topics, timeout_ms=timeout_ms)


def parse_request(frame: bytes) -> DeleteTopicsRequest:
    """Read a request."""
    header, timeout_ms, names, topics = _REQUEST.read(frame)
    return DeleteTopicsRequest(header, timeout_ms, topics or [DoomedTopic(name) for name in names])


def response(correlation_id: int, version: int, topics: Sequence[DeletedTopic], *, throttle_ms: int = 0) -> bytes:
    """Return a response."""
    return _RESPONSE.write(correlation_id, version, topics=topics, throttle_ms=throttle_ms)


parse_response: Final = _RESPONSE.read
