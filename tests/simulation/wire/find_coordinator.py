"""FindCoordinator (key 10), v0 to v6. Before v4, a request has one key."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.simulation.wire.api import Api
from tests.simulation.wire.common import RequestHeader

API_KEY: Final = 10
VERSIONS: Final = range(7)
GROUP: Final = 0
TRANSACTION: Final = 1

_FIRST_BATCH: Final = 4


class FindCoordinatorRequest(NamedTuple):
    """A request: ``key`` before v4, ``keys`` from then on."""

    header: RequestHeader
    key: str = ""
    keys: Sequence[str] = ()
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
    """A response: ``coordinators`` from v4 on, the fields of the one coordinator before."""

    correlation_id: int
    coordinators: Sequence[Coordinator] = ()
    node_id: int = -1
    host: str = ""
    port: int = -1
    error_code: int = 0
    error_message: str | None = None
    throttle_ms: int = 0


API: Final = Api(API_KEY, VERSIONS, FindCoordinatorRequest, FindCoordinatorResponse)


def request(
    correlation_id: int, version: int, client_id: str | None, keys: Sequence[str], *, key_type: int = GROUP
) -> bytes:
    """Return a request."""
    return API.request(correlation_id, version, client_id, keys[0], keys, key_type)


def parse_request(frame: bytes) -> FindCoordinatorRequest:
    """Read a request, with its key among its keys."""
    found = API.parse_request(frame)
    return found if found.header.api_version >= _FIRST_BATCH else found._replace(keys=[found.key])


def response(correlation_id: int, version: int, coordinators: Sequence[Coordinator], *, throttle_ms: int = 0) -> bytes:
    """Return a response."""
    return API.response(correlation_id, version, coordinators, *coordinators[0][1:], throttle_ms)


def parse_response(frame: bytes, version: int) -> FindCoordinatorResponse:
    """Read a response, with its coordinator among its coordinators, whose key is empty before v4."""
    found = API.parse_response(frame, version)
    return found if version >= _FIRST_BATCH else found._replace(coordinators=[Coordinator("", *found[2:7])])
