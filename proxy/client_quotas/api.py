"""Has the interface through which a client's session submits administrators' requests about client quotas.

The proxy answers these requests itself, so they do not reach the broker. An answer may take as long as a write to a
disk. Later requests of the same connection wait for it (``proxy.session.handlers.quota_requests``).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from kafka_quota_proxy.protocol.api import HIGHEST_VERSION
from kafka_quota_proxy.protocol.api_versions import VersionRange
from kafka_quota_proxy.protocol.client_quotas import (
    ALTER,
    DESCRIBE,
    Altered,
    AlterRequest,
    AlterResponse,
    DescribeRequest,
    read_alter_request,
    read_describe_request,
    write_alter_response,
    write_describe_response,
)
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.protocol.field_reader import MAX_ELEMENTS
from kafka_quota_proxy.proxy.client_quotas.formats.json_codec import RequestedChanges
from kafka_quota_proxy.proxy.client_quotas.rules.alter import refuse_alter
from kafka_quota_proxy.proxy.client_quotas.rules.describe import refuse_describe
from kafka_quota_proxy.proxy.client_quotas.rules.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    CLUSTER_AUTHORIZATION_FAILED_MESSAGE,
)
from kafka_quota_proxy.proxy.client_quotas.rules.outcome import Origin, Outcome

# The longest request of an administrator. It has room for some 50,000 entities and limits. Kafka accepts requests of up
# to socket.request.max.bytes.
MAX_REQUEST_BYTES: Final = 4 * 1024 * 1024
# The largest request that is refused. The event loop reads and refuses such a request in some milliseconds.
MAX_REFUSED_BYTES: Final = 64 * 1024
MAX_REFUSED_ELEMENTS: Final = 1_000
# The versions that the proxy answers, even if the broker does not support them.
VERSIONS: Final[Mapping[int, VersionRange]] = MappingProxyType(
    {api_key: VersionRange(0, HIGHEST_VERSION[api_key]) for api_key in (DESCRIBE, ALTER)}
)
QuotaRequest = DescribeRequest | AlterRequest


class QuotasAltered(NamedTuple):
    """The results of a request to change quotas.

    Attributes:
        results: The results for the response of Kafka's API.
        outcomes: The outcome for each entity.
        throttle_time_ms: How long the client must wait after too many changes, or 0.
    """

    results: tuple[Altered, ...]
    outcomes: tuple[Outcome, ...]
    throttle_time_ms: int = 0


class TicketOwner(Protocol):
    """The connection that waits for the answer to a ticket."""

    def take_turn(self) -> None:
        """Go on with the connection, now that the answer is ready."""

    def fail(self) -> None:
        """End the connection, because an internal error has left the request without an answer."""


class Ticket:
    """A request that is being answered.

    Attributes:
        frame: The bytes of the whole request. It is empty after the ticket was dropped.
        origin: The client.
        owner: The ``TicketOwner`` that is woken when the answer is ready.
        changes: The requested changes, if the request did not come as a frame. It is None after the ticket was dropped.
        answer: The bytes of the whole response to ``frame``. It is None until the response is ready.
        altered: The results of ``changes``. It is None until the changes are made.
        error: The reason why the frame cannot be read. Such a request gets no answer.
        is_dropped: Whether the owner no longer waits.
    """

    __slots__ = ("altered", "answer", "changes", "error", "frame", "is_dropped", "origin", "owner")

    def __init__(self, frame: bytes, origin: Origin, owner: object, changes: RequestedChanges | None = None) -> None:
        self.frame = frame
        self.origin = origin
        self.owner = owner
        self.changes = changes
        self.answer: bytes | None = None
        self.altered: QuotasAltered | None = None
        self.error: ProtocolError | None = None
        self.is_dropped = False

    def drop(self) -> None:
        """Stop waiting for the answer. If the work on the request has begun, it goes on."""
        self.frame, self.changes, self.owner = b"", None, None
        self.is_dropped = True


class QuotaRequestHandler(Protocol):
    """Answers the requests of administrators."""

    def submit(self, frame: bytes, origin: Origin, owner: object) -> Ticket | None:
        """Begin to answer a request. ``owner`` is woken when the answer is ready.

        Returns None if too many requests are waiting.
        """


class Administration(NamedTuple):
    """Says how a listener treats requests about quotas.

    Attributes:
        admins: The principals that may administer quotas.
        forwards: Whether requests of other principals go to the broker. Otherwise they are refused.
        handler: The object that answers the requests of ``admins``.
        listener: The name of the listener.
    """

    admins: frozenset[str]
    forwards: bool
    handler: QuotaRequestHandler
    listener: str = ""

    def is_answered_here(self, principal: str) -> bool:
        """Return whether the proxy answers requests of ``principal`` itself, so that they do not go to the broker."""
        return principal in self.admins or not self.forwards

    def max_request_bytes(self, principal: str) -> int:
        """Return the size of the longest request from ``principal`` that the proxy answers itself, in bytes."""
        return MAX_REQUEST_BYTES if principal in self.admins else MAX_REFUSED_BYTES


def read_request(frame: bytes, *, most_elements: int = MAX_ELEMENTS) -> QuotaRequest:
    """Read a whole DescribeClientQuotas or AlterClientQuotas request.

    Raises:
        ProtocolError: The request is malformed, or has too many elements.
    """
    is_describe = int.from_bytes(frame[4:6]) == DESCRIBE
    return (read_describe_request if is_describe else read_alter_request)(frame, most_elements=most_elements)


def refusal(
    request: QuotaRequest,
    error_code: int = CLUSTER_AUTHORIZATION_FAILED,
    message: str = CLUSTER_AUTHORIZATION_FAILED_MESSAGE,
) -> bytes:
    """Return the response that refuses a request as a whole. By default the client is not authorized."""
    if isinstance(request, DescribeRequest):
        return write_describe_response(
            refuse_describe(error_code, message),
            correlation_id=request.correlation_id,
            api_version=request.api_version,
        )
    return write_alter_response(
        AlterResponse(0, refuse_alter(request, error_code, message)),
        correlation_id=request.correlation_id,
        api_version=request.api_version,
    )
