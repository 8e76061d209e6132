"""CreatePartitions (key 37), v0 to v3."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.common import RequestHeader
from tests.simulation.wire.layout import (
    BOOLEAN,
    I16,
    I32,
    NULLABLE_STRING,
    STRING,
    Array,
    Field,
    Request,
    Response,
    Struct,
)

API_KEY: Final = 37
VERSIONS: Final = range(4)
# The first version in which a refusal has THROTTLING_QUOTA_EXCEEDED (KIP-599).
FIRST_REFUSAL: Final = 3
THROTTLING_QUOTA_EXCEEDED: Final = 89


class Assignment(NamedTuple):
    """The brokers of a new partition."""

    brokers: Sequence[int]


class GrownTopic(NamedTuple):
    """A topic that is to have ``partitions`` in all. ``assignments`` None lets the broker choose."""

    name: str
    partitions: int
    assignments: Sequence[Assignment] | None = None


class CreatePartitionsRequest(NamedTuple):
    header: RequestHeader
    topics: Sequence[GrownTopic]
    timeout_ms: int
    validate_only: bool


class Result(NamedTuple):
    """What became of a topic."""

    name: str
    error_code: int = 0
    error_message: str | None = None


class CreatePartitionsResponse(NamedTuple):
    correlation_id: int
    throttle_ms: int
    topics: Sequence[Result]


_ASSIGNMENT: Final = Struct(Assignment, Field("brokers", Array(I32)))
_TOPIC: Final = Struct(
    GrownTopic,
    Field("name", STRING),
    Field("partitions", I32),
    Field("assignments", Array(_ASSIGNMENT, nullable=True)),
)
_REQUEST: Final = Request(
    API_KEY,
    VERSIONS,
    CreatePartitionsRequest,
    Field("topics", Array(_TOPIC)),
    Field("timeout_ms", I32),
    Field("validate_only", BOOLEAN),
)
_RESULT: Final = Struct(
    Result, Field("name", STRING), Field("error_code", I16), Field("error_message", NULLABLE_STRING)
)
_RESPONSE: Final = Response(
    API_KEY, VERSIONS, CreatePartitionsResponse, Field("throttle_ms", I32), Field("topics", Array(_RESULT))
)


def request(
    correlation_id: int,
    version: int,
    client_id: str | None,
    topics: Sequence[GrownTopic],
    *,
    timeout_ms: int = 30_000,
    validate_only: bool = False,
) -> bytes:
    """Return a request."""
    return _REQUEST.write(
        correlation_id, version, client_id, topics=topics, timeout_ms=timeout_ms, validate_only=validate_only
    )


parse_request: Final = _REQUEST.read


def response(correlation_id: int, version: int, topics: Sequence[Result], *, throttle_ms: int = 0) -> bytes:
    """Return a response."""
    return _RESPONSE.write(correlation_id, version, topics=topics, throttle_ms=throttle_ms)


parse_response: Final = _RESPONSE.read
