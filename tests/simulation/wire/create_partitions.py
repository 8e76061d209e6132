"""CreatePartitions (key 37), v0 to v3."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.api import Api
from tests.simulation.wire.common import RequestHeader

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
    timeout_ms: int = 30_000
    validate_only: bool = False


class Result(NamedTuple):
    """What became of a topic."""

    name: str
    error_code: int = 0
    error_message: str | None = None


class CreatePartitionsResponse(NamedTuple):
    correlation_id: int
    topics: Sequence[Result]
    throttle_ms: int = 0


API: Final = Api(API_KEY, VERSIONS, CreatePartitionsRequest, CreatePartitionsResponse)
request, parse_request = API.request, API.parse_request
response, parse_response = API.response, API.parse_response
