"""CreateTopics (key 19), v2 to v7."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.api import Api
from tests.simulation.wire.common import NO_TOPIC_ID, RequestHeader

API_KEY: Final = 19
VERSIONS: Final = range(2, 8)
# The first version in which a refusal has THROTTLING_QUOTA_EXCEEDED (KIP-599).
FIRST_REFUSAL: Final = 6
THROTTLING_QUOTA_EXCEEDED: Final = 89


class Assignment(NamedTuple):
    """The brokers of a partition."""

    partition: int
    brokers: Sequence[int]


class NewTopic(NamedTuple):
    """A topic to create. With ``assignments``, ``partitions`` and ``replication_factor`` are -1."""

    name: str
    partitions: int = 1
    replication_factor: int = 1
    assignments: Sequence[Assignment] = ()


class CreateTopicsRequest(NamedTuple):
    header: RequestHeader
    topics: Sequence[NewTopic]
    timeout_ms: int = 30_000
    validate_only: bool = False


class CreatedTopic(NamedTuple):
    """What became of a topic."""

    name: str
    error_code: int = 0
    error_message: str | None = None
    topic_id: bytes = NO_TOPIC_ID
    partitions: int = -1
    replication_factor: int = -1


class CreateTopicsResponse(NamedTuple):
    correlation_id: int
    topics: Sequence[CreatedTopic]
    throttle_ms: int = 0


API: Final = Api(API_KEY, VERSIONS, CreateTopicsRequest, CreateTopicsResponse)
request, parse_request = API.request, API.parse_request
response, parse_response = API.response, API.parse_response
