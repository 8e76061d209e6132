"""ShareAcknowledge (key 79), v1 and v2."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.api import Api
from tests.simulation.wire.common import NO_LEADER, Leader, NodeEndpoint, RequestHeader
from tests.simulation.wire.share import ShareTopic

API_KEY: Final = 79
VERSIONS: Final = range(1, 3)


class ShareAcknowledgeRequest(NamedTuple):
    header: RequestHeader
    topics: Sequence[ShareTopic]
    group_id: str | None = "share"
    member_id: str | None = "member"
    session_epoch: int = 0


class AcknowledgedPartition(NamedTuple):
    """What a partition answers."""

    partition: int
    error_code: int = 0
    error_message: str | None = None
    leader: Leader = NO_LEADER


class AcknowledgedTopic(NamedTuple):
    topic_id: bytes
    partitions: Sequence[AcknowledgedPartition]


class ShareAcknowledgeResponse(NamedTuple):
    correlation_id: int
    topics: Sequence[AcknowledgedTopic]
    throttle_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    lock_timeout_ms: int = 30_000
    endpoints: Sequence[NodeEndpoint] = ()


API: Final = Api(API_KEY, VERSIONS, ShareAcknowledgeRequest, ShareAcknowledgeResponse)
request, parse_request = API.request, API.parse_request
response, parse_response = API.response, API.parse_response
