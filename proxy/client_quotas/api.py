"""The interface through which a session has administrators' requests about client quotas answered.

They do not reach the broker. They may take as long as a disk takes; the connection's later requests wait meanwhile
(``proxy.session.handlers.quota_requests``).
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

# Some 50,000 entities and limits. Kafka takes up to socket.request.max.bytes.
MAX_REQUEST_BYTES: Final = 4 * 1024 * 1024
# The loop reads and refuses such a request in some milliseconds.
MAX_REFUSED_BYTES: Final = 64 * 1024
MAX_REFUSED_ELEMENTS: Final = 1_000
# The versions that are answered here, even if the broker lacks them.
VERSIONS: Final[Mapping[int, VersionRange]] = MappingProxyType(
    {api_key: VersionRange(0, HIGHEST_VERSION[api_key]) for api_key in (DESCRIBE, ALTER)}
)
QuotaRequest = DescribeRequest | AlterRequest


class QuotasAltered(NamedTuple):
    """The results of a request to change quotas.

    Attributes:
        results: Kafka's results.
        outcomes: The outcome for each entity.
        throttle_time_ms: When to try again after too many changes; else 0.
    """

    results: tuple[Altered, ...]
    outcomes: tuple[Outcome, ...]
    throttle_time_ms: int = 0


class TicketOwner(Protocol):
    """The connection that waits for a ticket."""

    def take_turn(self) -> None:
        """Continue: the answer is ready."""

    def fail(self) -> None:
        """End the connection: after an internal error there is no answer."""


class Ticket:
    """A request that is being answered.

    Attributes:
        frame: The whole request; empty once the ticket is dropped.
        origin: The client.
        owner: The ``TicketOwner`` to wake.
        changes: The changes of a request that is no frame; None once the ticket is dropped.
        answer: The whole response, once it is ready.
        altered: The results of ``changes``, once they are made.
        error: Why the frame cannot be read; there is no answer then.
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
        """Drop the request. Work that has begun goes on."""
        self.frame, self.changes, self.owner = b"", None, None
        self.is_dropped = True


class QuotaRequestHandler(Protocol):
    """Answers administrators' requests."""

    def submit(self, frame: bytes, origin: Origin, owner: object) -> Ticket | None:
        """Begin to answer a request; ``owner`` is woken when the answer is ready. None: too many requests wait."""


class Administration(NamedTuple):
    """How a listener treats requests about quotas.

    Attributes:
        admins: The principals that may administer quotas.
        forwards: Whether requests of other principals go to the broker; otherwise they are refused.
        handler: Answers the requests of ``admins``.
    """

    admins: frozenset[str]
    forwards: bool
    handler: QuotaRequestHandler
    listener: str = ""

    def is_answered_here(self, principal: str) -> bool:
        """Return whether requests of ``principal`` do not go to the broker."""
        return principal in self.admins or not self.forwards

    def max_request_bytes(self, principal: str) -> int:
        """Return the longest request of ``principal`` that is answered here."""
        return MAX_REQUEST_BYTES if principal in self.admins else MAX_REFUSED_BYTES


def read_request(frame: bytes, *, most_elements: int = MAX_ELEMENTS) -> QuotaRequest:
    """Read a whole Describe or Alter request.

    Raises:
        ProtocolError: It is malformed, or has too many elements.
    """
    is_describe = int.from_bytes(frame[4:6]) == DESCRIBE
    return (read_describe_request if is_describe else read_alter_request)(frame, most_elements=most_elements)


def refusal(
    request: QuotaRequest,
    error_code: int = CLUSTER_AUTHORIZATION_FAILED,
    message: str = CLUSTER_AUTHORIZATION_FAILED_MESSAGE,
) -> bytes:
    """Return the response that refuses a request as a whole; by default for want of authorization."""
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
