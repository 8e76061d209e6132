"""ApiVersions (key 18), v0 to v4.

A broker that does not know the version of the request answers in v0, with error 35.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from tests.simulation.wire.common import RequestHeader, get_i16, open_response
from tests.simulation.wire.fields import Reader, Writer, strict

API_KEY: Final = 18
VERSIONS: Final = range(5)
UNSUPPORTED_VERSION: Final = 35

_FIRST_THROTTLE: Final = 1
_FIRST_SOFTWARE: Final = 3


class ApiVersionsRequest(NamedTuple):
    header: RequestHeader
    software_name: str
    software_version: str


class ApiVersionsResponse(NamedTuple):
    """The first and the last version of each API that the broker knows."""

    correlation_id: int
    error_code: int
    apis: Mapping[int, tuple[int, int]]
    throttle_ms: int


def request(
    correlation_id: int,
    version: int,
    client_id: str | None,
    *,
    software_name: str = "simulated",
    software_version: str = "1.0",
) -> bytes:
    """Return a request."""
    writer = Writer.request(API_KEY, version, correlation_id, client_id)
    if version >= _FIRST_SOFTWARE:
        writer.string(software_name)
        writer.string(software_version)
    return writer.end()


@strict
def parse_request(frame: bytes) -> ApiVersionsRequest:
    """Read a request."""
    header, reader = Reader.request(frame, API_KEY, VERSIONS)
    name = version = ""
    if header.api_version >= _FIRST_SOFTWARE:
        name, version = reader.string(), reader.string()
    reader.end()
    return ApiVersionsRequest(header, name, version)


def response(
    correlation_id: int,
    version: int,
    apis: Mapping[int, tuple[int, int]],
    *,
    error_code: int = 0,
    throttle_ms: int = 0,
) -> bytes:
    """Return a response."""
    writer = Writer.response(API_KEY, version, correlation_id)
    writer.i16(error_code)

    def write_api(api_key: int) -> None:
        writer.i16(api_key)
        writer.i16(apis[api_key][0])
        writer.i16(apis[api_key][1])
        writer.tags()

    writer.array(sorted(apis), write_api)
    if version >= _FIRST_THROTTLE:
        writer.i32(throttle_ms)
    return writer.end()


@strict
def parse_response(frame: bytes, version: int) -> ApiVersionsResponse:
    """Read a response. One with error 35 is read as v0, as clients do."""
    if get_i16(frame, open_response(frame, API_KEY, version)[1])[0] == UNSUPPORTED_VERSION:
        version = 0
    correlation_id, reader = Reader.response(frame, API_KEY, version)
    error_code = reader.i16()

    def read_api() -> tuple[int, tuple[int, int]]:
        api_key, first, last = reader.i16(), reader.i16(), reader.i16()
        reader.tags()
        return api_key, (first, last)

    apis = dict(reader.array(read_api))
    throttle_ms = reader.i32() if version >= _FIRST_THROTTLE else 0
    reader.end()
    return ApiVersionsResponse(correlation_id, error_code, apis, throttle_ms)
