"""FindCoordinator (key 10), v0 to v6. Before v4, a request has one key."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.common import RequestHeader, WireError
from tests.simulation.wire.layout import I8, I16, I32, NULLABLE_STRING, STRING, Array, Field, Request, Response, Struct

API_KEY: Final = 10
VERSIONS: Final = range(7)
GROUP: Final = 0
TRANSACTION: Final = 1

_FIRST_BATCH: Final = 4


class FindCoordinatorRequest(NamedTuple):
    header: RequestHeader
    keys: Sequence[str]
    key_type: int = GROUP


class Coordinator(NamedTuple):
    """The broker that coordinates a group, or a transactional id."""

    key: str
    node_id: int
    host: str
    port: int
    error_code: int = 0
    error_message: str | None = None


class FindCoordinatorResponse(NamedTuple):
    """A response. Before v4, the key of its coordinator is empty."""

    correlation_id: int
    throttle_ms: int
    coordinators: Sequence[Coordinator]


class _RawRequest(NamedTuple):
    header: RequestHeader
    key: str | None = None
    key_type: int = GROUP
    keys: Sequence[str] = ()


class _RawResponse(NamedTuple):
    correlation_id: int
    throttle_ms: int = 0
    coordinators: Sequence[Coordinator] = ()
    error_code: int = 0
    error_message: str | None = None
    node_id: int = -1
    host: str = ""
    port: int = -1


_REQUEST: Final = Request(
    API_KEY,
    VERSIONS,
    _RawRequest,
    Field("key", STRING, last=_FIRST_BATCH - 1),
    Field("key_type", I8, first=1),
    Field("keys", Array(STRING), first=_FIRST_BATCH),
)
_ADDRESS: Final = (Field("node_id", I32), Field("host", STRING), Field("port", I32))
_COORDINATOR: Final = Struct(
    Coordinator,
    Field("key", STRING),
    *_ADDRESS,
    Field("error_code", I16),
    Field("error_message", NULLABLE_STRING),
)
_RESPONSE: Final = Response(
    API_KEY,
    VERSIONS,
    _RawResponse,
    Field("throttle_ms", I32, first=1),
    Field("error_code", I16, last=_FIRST_BATCH - 1),
    Field("error_message", NULLABLE_STRING, first=1, last=_FIRST_BATCH - 1),
    *(field._replace(last=_FIRST_BATCH - 1) for field in _ADDRESS),
    Field("coordinators", Array(_COORDINATOR), first=_FIRST_BATCH),
)


def request(
    correlation_id: int, version: int, client_id: str | None, keys: Sequence[str], *, key_type: int = GROUP
) -> bytes:
    """Return a request."""
    if version < _FIRST_BATCH and len(keys) != 1:
        raise WireError(f"{len(keys)} keys in v{version}")
    return _REQUEST.write(correlation_id, version, client_id, key=keys[0], keys=keys, key_type=key_type)


def parse_request(frame: bytes) -> FindCoordinatorRequest:
    """Read a request."""
    header, key, key_type, keys = _REQUEST.read(frame)
    return FindCoordinatorRequest(header, keys if key is None else [key], key_type)


def response(correlation_id: int, version: int, coordinators: Sequence[Coordinator], *, throttle_ms: int = 0) -> bytes:
    """Return a response."""
    if version >= _FIRST_BATCH:
        return _RESPONSE.write(correlation_id, version, throttle_ms=throttle_ms, coordinators=coordinators)
    (coordinator,) = coordinators
    return _RESPONSE.write(correlation_id, version, throttle_ms=throttle_ms, **coordinator._asdict())


def parse_response(frame: bytes, version: int) -> FindCoordinatorResponse:
    """Read a response."""
    raw = _RESPONSE.read(frame, version)
    coordinators = raw.coordinators
    if version < _FIRST_BATCH:
        coordinators = [Coordinator("", raw.node_id, raw.host, raw.port, raw.error_code, raw.error_message)]
    return FindCoordinatorResponse(raw.correlation_id, raw.throttle_ms, coordinators)
