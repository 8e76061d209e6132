"""An API: the frames of its requests and responses, in each version."""

from collections.abc import Callable
from dataclasses import field, make_dataclass
from functools import cache, partial
from typing import Concatenate, Final, Generic, NamedTuple, ParamSpec, TypeVar

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader
from kio.serial.errors import SerialError

from tests.simulation.wire.codec import Get, Put, Untyped, getters, writer
from tests.simulation.wire.common import (
    RequestHeader,
    WireError,
    framed,
    open_response,
    parse_header,
    request_header,
    response_header,
)

P = ParamSpec("P")
Q = ParamSpec("Q")
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

_FETCH: Final = 1
_FIRST_ENDPOINTS: Final = 16
# In a Fetch response that the proxy streams, it hides the endpoints by this tag, which no client knows.
_HIDDEN: Final = 127


class _Version(NamedTuple):
    """A request or a response in one version. ``gets`` are for the fields behind the first."""

    schema: Untyped
    write: Put
    gets: list[Get]


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
        return _Version(schema, writer(schema, made_of), getters(schema, made_of)[1:])

    def request(
        self, correlation_id: int, version: int, client_id: str | None, /, *args: P.args, **values: P.kwargs
    ) -> bytes:
        """Return the frame of a request."""
        parts = [request_header(self.key, version, correlation_id, client_id)]
        header = RequestHeader(self.key, version, correlation_id, client_id, 0)
        self._of_request(version).write(parts, self.request_class(header, *args, **values))
        return framed(parts)

    def parse_request(self, frame: bytes) -> RequestT:
        """Read the frame of a request."""
        header = parse_header(frame)
        if header.api_key != self.key:
            raise WireError(f"API {header.api_key} v{header.api_version} where API {self.key} was expected")
        schema, _, gets = self._of_request(header.api_version)
        body = _body(schema, frame, header.body_at)
        make: Callable[..., RequestT] = self.request_class
        return make(header, *[get(body) for get in gets])

    def response(self, correlation_id: int, version: int, /, *args: Q.args, **values: Q.kwargs) -> bytes:
        """Return the frame of a response."""
        parts = [response_header(self.key, version, correlation_id)]
        self._of_response(version).write(parts, self.response_class(correlation_id, *args, **values))
        return framed(parts)

    def parse_response(self, frame: bytes, version: int) -> ResponseT:
        """Read the frame of a response."""
        schema, _, gets = self._of_response(version)
        correlation_id, at = open_response(frame, self.key, version)
        body = _body(schema, frame, at)
        make: Callable[..., ResponseT] = self.response_class
        return make(correlation_id, *[get(body) for get in gets])


@cache
def response_schema(api_key: int, version: int) -> Untyped:
    """Return kio's class of a response. A Fetch response may have its endpoints where no client finds them, too."""
    schema: Untyped = load_response_schema(api_key, version)
    if api_key != _FETCH or version < _FIRST_ENDPOINTS:
        return schema
    endpoints = schema.__dataclass_fields__["node_endpoints"].type
    hidden = ("hidden_endpoints", endpoints, field(metadata={"tag": _HIDDEN}, default=()))
    return make_dataclass(schema.__name__, [hidden], bases=(schema,), frozen=True, slots=True, kw_only=True)


def response_body(frame: bytes, api_key: int, version: int) -> Untyped:
    """Return all that a response has, as an instance of kio's class."""
    return _body(response_schema(api_key, version), frame, open_response(frame, api_key, version)[1])


def _body(schema: Untyped, frame: bytes, at: int) -> Untyped:
    try:
        body, size = entity_reader(schema)(frame, at)
    except (SerialError, ValueError, LookupError) as error:
        raise WireError(f"no {schema.__name__} v{schema.__version__}: {error!r}") from error
    if at + size != len(frame):
        raise WireError(f"the last field ends at {at + size}, the frame at {len(frame)}")
    return body
