"""DescribeClientQuotas (key 48), v0 and v1."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.common import RequestHeader
from tests.simulation.wire.layout import (
    BOOLEAN,
    F64,
    I8,
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
    header: RequestHeader
    components: Sequence[Component]
    strict: bool


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
    throttle_ms: int
    error_code: int
    error_message: str | None
    entries: Sequence[Entry] | None


ENTITY_PART: Final = Struct(EntityPart, Field("entity_type", STRING), Field("name", NULLABLE_STRING))
_COMPONENT: Final = Struct(
    Component, Field("entity_type", STRING), Field("match_type", I8), Field("match", NULLABLE_STRING)
)
_REQUEST: Final = Request(
    API_KEY, VERSIONS, DescribeClientQuotasRequest, Field("components", Array(_COMPONENT)), Field("strict", BOOLEAN)
)
_VALUE: Final = Struct(QuotaValue, Field("key", STRING), Field("value", F64))
_ENTRY: Final = Struct(Entry, Field("entity", Array(ENTITY_PART)), Field("values", Array(_VALUE)))
_RESPONSE: Final = Response(
    API_KEY,
    VERSIONS,
    DescribeClientQuotasResponse,
    Field("throttle_ms", I32),
    Field("error_code", I16),
    Field("error_message", NULLABLE_STRING),
    Field("entries", Array(_ENTRY, nullable=True)),
)


def request(
    correlation_id: int,
    version: int,
    client_id: str | None,
    components: Sequence[Component] = (),
    *,
    strict: bool = False,
) -> bytes:
    """Return a request. Without components, it asks for all."""
    return _REQUEST.write(correlation_id, version, client_id, components=components, strict=strict)


parse_request: Final = _REQUEST.read


def response(
    correlation_id: int,
    version: int,
    entries: Sequence[Entry] | None,
    *,
    throttle_ms: int = 0,
    error_code: int = 0,
    error_message: str | None = None,
) -> bytes:
    """Return a response."""
    return _RESPONSE.write(
        correlation_id,
        version,
        entries=entries,
        throttle_ms=throttle_ms,
        error_code=error_code,
        error_message=error_message,
    )


parse_response: Final = _RESPONSE.read
