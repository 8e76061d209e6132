"""OffsetFetch (key 9), v1 to v7: of one group."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.api import Api
from tests.simulation.wire.common import RequestHeader

API_KEY: Final = 9
VERSIONS: Final = range(1, 8)


class AskedTopic(NamedTuple):
    name: str
    partitions: Sequence[int]


class OffsetFetchRequest(NamedTuple):
    """A request. ``topics`` None asks for all, from v2 on."""

    header: RequestHeader
    group_id: str
    topics: Sequence[AskedTopic] | None


class FoundPartition(NamedTuple):
    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str | None = ""
    error_code: int = 0


class FoundTopic(NamedTuple):
    name: str
    partitions: Sequence[FoundPartition]


class OffsetFetchResponse(NamedTuple):
    correlation_id: int
    topics: Sequence[FoundTopic]
    throttle_ms: int = 0
    error_code: int = 0


API: Final = Api(API_KEY, VERSIONS, OffsetFetchRequest, OffsetFetchResponse)
request, parse_request = API.request, API.parse_request
response, parse_response = API.response, API.parse_response
