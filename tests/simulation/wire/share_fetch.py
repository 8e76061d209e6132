"""ShareFetch (key 78), v1 and v2."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.api import Api
from tests.simulation.wire.common import NO_LEADER, Leader, NodeEndpoint, RequestHeader
from tests.simulation.wire.share import ShareTopic

API_KEY: Final = 78
VERSIONS: Final = range(1, 3)


class ForgottenTopic(NamedTuple):
    """Partitions that leave the session."""

    topic_id: bytes
    partitions: Sequence[int]


class ShareFetchRequest(NamedTuple):
    header: RequestHeader
    topics: Sequence[ShareTopic]
    group_id: str | None = "share"
    member_id: str | None = "member"
    session_epoch: int = 0
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 52_428_800
    max_records: int = 500
    batch_size: int = 500
    forgotten: Sequence[ForgottenTopic] = ()


class AcquiredRecords(NamedTuple):
    first_offset: int
    last_offset: int
    delivery_count: int = 1


class SharedPartition(NamedTuple):
    """What a partition answers."""

    partition: int
    records: bytes | None = b""
    acquired: Sequence[AcquiredRecords] = ()
    error_code: int = 0
    error_message: str | None = None
    acknowledge_error_code: int = 0
    acknowledge_error_message: str | None = None
    leader: Leader = NO_LEADER


class SharedTopic(NamedTuple):
    topic_id: bytes
    partitions: Sequence[SharedPartition]


class ShareFetchResponse(NamedTuple):
    correlation_id: int
    topics: Sequence[SharedTopic]
    throttle_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    lock_timeout_ms: int = 30_000
    endpoints: Sequence[NodeEndpoint] = ()


API: Final = Api(API_KEY, VERSIONS, ShareFetchRequest, ShareFetchResponse)
request, parse_request = API.request, API.parse_request
response, parse_response = API.response, API.parse_response
