"""DescribeClientQuotas (key 48), v0 and v1."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.api import Api
from tests.simulation.wire.common import RequestHeader

API_KEY: Final = 48
VERSIONS: Final = range(2)

# How a component of a filter matches.
EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2


class Component(NamedTuple):
    """A condition on one part of an entity: "user", "client-id" or "ip"."""

    entity_type: str
    match_type: int = ANY
    match: str | None = None


class DescribeClientQuotasRequest(NamedTuple):
    """A request. Without components, it asks for all."""

    header: RequestHeader
    components: Sequence[Component] = ()
    strict: bool = False


class EntityPart(NamedTuple):
    """A part of an entity. ``name`` None is the default of its type."""

    entity_type: str
    name: str | None


class QuotaValue(NamedTuple):
    key: str
    value: float


class Entry(NamedTuple):
    """The quotas of an entity."""

    entity: Sequence[EntityPart]
    values: Sequence[QuotaValue]


class DescribeClientQuotasResponse(NamedTuple):
    correlation_id: int
    entries: Sequence[Entry] | None
    throttle_ms: int = 0
    error_code: int = 0
    error_message: str | None = None


API: Final = Api(API_KEY, VERSIONS, DescribeClientQuotasRequest, DescribeClientQuotasResponse)
request, parse_request = API.request, API.parse_request
response, parse_response = API.response, API.parse_response
