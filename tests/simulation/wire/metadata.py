"""Metadata (key 3), v1 to v13."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.api import Api
from tests.simulation.wire.common import NO_TOPIC_ID, NodeEndpoint, RequestHeader

API_KEY: Final = 3
VERSIONS: Final = range(1, 14)


class AskedTopic(NamedTuple):
    """A topic that is asked for: by its name, or from v12 on by its id alone."""

    name: str | None
    topic_id: bytes = NO_TOPIC_ID


class MetadataRequest(NamedTuple):
    """A request. ``topics`` None asks for all."""

    header: RequestHeader
    topics: Sequence[AskedTopic] | None
    allow_auto_creation: bool = False


class Partition(NamedTuple):
    partition: int
    leader: int
    replicas: Sequence[int]
    in_sync: Sequence[int]
    leader_epoch: int = -1
    error_code: int = 0
    offline: Sequence[int] = ()


class Topic(NamedTuple):
    name: str | None
    partitions: Sequence[Partition]
    topic_id: bytes = NO_TOPIC_ID
    error_code: int = 0


class MetadataResponse(NamedTuple):
    correlation_id: int
    brokers: Sequence[NodeEndpoint]
    topics: Sequence[Topic]
    controller_id: int = -1
    cluster_id: str | None = None
    throttle_ms: int = 0
    error_code: int = 0


API: Final = Api(API_KEY, VERSIONS, MetadataRequest, MetadataResponse)
request, parse_request = API.request, API.parse_request
response, parse_response = API.response, API.parse_response
