"""An API: the frames of its requests and responses, in each version."""

from collections.abc import Callable
from dataclasses import field, make_dataclass
from functools import cache, partial
from typing import Any, Concatenate, Final, Generic, NamedTuple, ParamSpec, TypeVar

from kio.index import load_request_schema, load_response_schema

from tests.simulation.wire.common import (
    DAMAGES,
    RequestHeader,
    WireError,
    framed,
    open_response,
    parse_header,
    request_header,
    response_header,
)
from tests.simulation.wire.reading import Read, reader
from tests.simulation.wire.schema import Untyped, whole
from tests.simulation.wire.writing import Put, writer

P = ParamSpec("P")
Q = ParamSpec("Q")
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

_FETCH: Final = 1
_FIRST_ENDPOINTS: Final = 16
# In a Fetch response that the proxy streams, it hides the endpoints by this tag, which no client knows.
_HIDDEN: Final = 127
# Of a request that is written: its header is written apart.
_NO_HEADER: Final = RequestHeader(0, 0, 0, None, 0)


class _Version(NamedTuple):
    """A request or a response in one version."""

    put: Put
    reader: Read

    def read(self, frame: bytes, at: int, *front: object) -> Untyped:
        """Return what the body of a frame has, behind the value in front, if there is one."""
        try:
            message, end = self.reader(frame, at, *front)
        except DAMAGES as error:
            raise WireError(f"{error!r} in {frame[:40]!r}") from error
        if end != len(frame):
            raise WireError(f"the last field ends at {end}, the frame at {len(frame)}")
        return message


class Api(Generic[P, RequestT, Q, ResponseT]):
    """An API of Kafka's, of which the simulation speaks some versions.

    A request is a named tuple whose first field is its header. That of a response is its correlation id.

    Attributes:
        key: The API's key.
        versions: Its versions that are spoken.
        request_class: The named tuple of its requests.
        response_class: The named tuple of its responses.
    """

    def __init__(
        self,
        key: int,
        versions: range,
        request: Callable[Concatenate[RequestHeader, P], RequestT],
        response: Callable[Concatenate[int, Q], ResponseT],
    ) -> None:
        self.key = key
        self.versions = versions
        self.request_class = request
        self.response_class = response
        self._of_request = cache(partial(self._of_version, load_request_schema, request))
        self._of_response = cache(partial(self._of_version, response_schema, response))

    def _of_version(self, load: Callable[[int, int], Untyped], made_of: Untyped, version: int) -> _Version:
        if version not in self.versions:
            raise WireError(f"API {self.key} v{version}")
        schema = load(self.key, version)
        return _Version(writer(schema, made_of), reader(schema, made_of))

    def request(
        self, correlation_id: int, version: int, client_id: str | None, /, *args: P.args, **values: P.kwargs
    ) -> bytes:
        """Return the frame of a request."""
        parts = [request_header(self.key, version, correlation_id, client_id)]
        self._of_request(version).put(parts, self.request_class(_NO_HEADER, *args, **values))
        return framed(parts)

    def parse_request(self, frame: bytes) -> RequestT:
        """Read the frame of a request."""
        header = parse_header(frame)
        if header.api_key != self.key:
            raise WireError(f"API {header.api_key} v{header.api_version} where API {self.key} was expected")
        read: Callable[..., RequestT] = self._of_request(header.api_version).read
        return read(frame, header.body_at, header)

    def response(self, correlation_id: int, version: int, /, *args: Q.args, **values: Q.kwargs) -> bytes:
        """Return the frame of a response."""
        parts = [response_header(self.key, version, correlation_id)]
        self._of_response(version).put(parts, self.response_class(correlation_id, *args, **values))
        return framed(parts)

    def parse_response(self, frame: bytes, version: int) -> ResponseT:
        """Read the frame of a response."""
        read: Callable[..., ResponseT] = self._of_response(version).read
        correlation_id, at = open_response(frame, self.key, version)
        return read(frame, at, correlation_id)


AnyApi = Api[..., Any, ..., Any]


@cache
def response_schema(api_key: int, version: int) -> Untyped:
    """Return kio's class of a response. A Fetch response may have its endpoints where no client finds them, too."""
    schema: Untyped = load_response_schema(api_key, version)
    if api_key != _FETCH or version < _FIRST_ENDPOINTS:
        return schema
    endpoints = schema.__dataclass_fields__["node_endpoints"].type
    hidden = ("hidden_endpoints", endpoints, field(metadata={"tag": _HIDDEN}, default=()))
    return make_dataclass(schema.__name__, [hidden], bases=(schema,), frozen=True, slots=True, kw_only=True)


@cache
def _whole_version(api_key: int, version: int) -> _Version:
    schema = response_schema(api_key, version)
    named = whole(schema)
    return _Version(writer(schema, named), reader(schema, named))


def whole_response(frame: bytes, api_key: int, version: int) -> Untyped:
    """Return all fields that the body of a response has, by kio's names."""
    return _whole_version(api_key, version).read(frame, open_response(frame, api_key, version)[1])
