"""AlterClientQuotas (key 49), v0 and v1."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.common import RequestHeader
from tests.simulation.wire.describe_client_quotas import ENTITY_PART
from tests.simulation.wire.describe_client_quotas import EntityPart as EntityPart
from tests.simulation.wire.layout import (
    BOOLEAN,
    F64,
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
    validate_only: bool


class Result(NamedTuple):
    """What became of an alteration."""

    entity: Sequence[EntityPart]
    error_code: int = 0
    error_message: str | None = None


class AlterClientQuotasResponse(NamedTuple):
    correlation_id: int
    throttle_ms: int
    entries: Sequence[Result]


_OPERATION: Final = Struct(Operation, Field("key", STRING), Field("value", F64), Field("remove", BOOLEAN))
_ALTERATION: Final = Struct(Alteration, Field("entity", Array(ENTITY_PART)), Field("operations", Array(_OPERATION)))
_REQUEST: Final = Request(
    API_KEY,
    VERSIONS,
    AlterClientQuotasRequest,
    Field("entries", Array(_ALTERATION)),
    Field("validate_only", BOOLEAN),
)
_RESULT: Final = Struct(
    Result,
    Field("error_code", I16),
    Field("error_message", NULLABLE_STRING),
    Field("entity", Array(ENTITY_PART)),
)
_RESPONSE: Final = Response(
    API_KEY, VERSIONS, AlterClientQuotasResponse, Field("throttle_ms", I32), Field("entries", Array(_RESULT))
)


def request(
    correlation_id: int,
    version: int,
    client_id: str | None,
    entries: Sequence[Alteration],
    *,
    validate_only: bool = False,
) -> bytes:
    """Return a request."""
    return _REQUEST.write(correlation_id, version, client_id, entries=entries, validate_only=validate_only)


parse_request: Final = _REQUEST.read


def response(correlation_id: int, version: int, entries: Sequence[Result], *, throttle_ms: int = 0) -> bytes:
    """Return a response."""
    return _RESPONSE.write(correlation_id, version, entries=entries, throttle_ms=throttle_ms)


parse_response: Final = _RESPONSE.read
