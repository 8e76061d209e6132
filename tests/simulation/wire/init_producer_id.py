"""InitProducerId (key 22), v0 to v5."""

from typing import Final, NamedTuple

from tests.simulation.wire.common import RequestHeader
from tests.simulation.wire.layout import I16, I32, I64, NULLABLE_STRING, Field, Request, Response

API_KEY: Final = 22
VERSIONS: Final = range(6)


class InitProducerIdRequest(NamedTuple):
    header: RequestHeader
    transactional_id: str | None
    timeout_ms: int
    producer_id: int = -1
    epoch: int = -1


class InitProducerIdResponse(NamedTuple):
    correlation_id: int
    throttle_ms: int
    error_code: int
    producer_id: int
    epoch: int


_REQUEST: Final = Request(
    API_KEY,
    VERSIONS,
    InitProducerIdRequest,
    Field("transactional_id", NULLABLE_STRING),
    Field("timeout_ms", I32),
    Field("producer_id", I64, first=3),
    Field("epoch", I16, first=3),
)
_RESPONSE: Final = Response(
    API_KEY,
    VERSIONS,
    InitProducerIdResponse,
    Field("throttle_ms", I32),
    Field("error_code", I16),
    Field("producer_id", I64),
    Field("epoch", I16),
)


def request(
    correlation_id: int,
    version: int,
    client_id: str | None,
    *,
    transactional_id: str | None = None,
    timeout_ms: int = 60_000,
    producer_id: int = -1,
    epoch: int = -1,
) -> bytes:
    """Return a request."""
    return _REQUEST.write(
        correlation_id,
        version,
        client_id,
        transactional_id=transactional_id,
        timeout_ms=timeout_ms,
        producer_id=producer_id,
        epoch=epoch,
    )


parse_request: Final = _REQUEST.read


def response(
    correlation_id: int,
    version: int,
    *,
    producer_id: int,
    epoch: int = 0,
    error_code: int = 0,
    throttle_ms: int = 0,
) -> bytes:
    """Return a response."""
    return _RESPONSE.write(
        correlation_id,
        version,
        throttle_ms=throttle_ms,
        error_code=error_code,
        producer_id=producer_id,
        epoch=epoch,
    )


parse_response: Final = _RESPONSE.read
