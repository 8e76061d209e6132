"""AlterClientQuotas (key 49), v0 and v1."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.api import Api
from tests.simulation.wire.common import RequestHeader
from tests.simulation.wire.describe_client_quotas import EntityPart as EntityPart

API_KEY: Final = 49
VERSIONS: Final = range(2)


class Operation(NamedTuple):
    """A quota to set, or to remove."""

    key: str
    value: float = 0.0
    remove: bool = False


class Alteration(NamedTuple):
    """What to do to the quotas of an entity."""

    entity: Sequence[EntityPart]
    operations: Sequence[Operation]


class AlterClientQuotasRequest(NamedTuple):
    header: RequestHeader
    entries: Sequence[Alteration]
    validate_only: bool = False


class Result(NamedTuple):
    """What became of an alteration."""

    entity: Sequence[EntityPart]
    error_code: int = 0
    error_message: str | None = None


class AlterClientQuotasResponse(NamedTuple):
    correlation_id: int
    entries: Sequence[Result]
    throttle_ms: int = 0


API: Final = Api(API_KEY, VERSIONS, AlterClientQuotasRequest, AlterClientQuotasResponse)
request, parse_request = API.request, API.parse_request
response, parse_response = API.response, API.parse_response
