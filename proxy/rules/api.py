"""Defines the interface through which a client's session submits administrators' requests about client quotas.

The proxy answers these requests itself. A ticket is a request that waits for its answer. Until the answer is ready, the
later requests on the same connection wait, too (``proxy.session.handlers.quota_requests``).
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from kafka_quota_proxy.config.principals import ANONYMOUS
from kafka_quota_proxy.protocol.api import HIGHEST_VERSION
from kafka_quota_proxy.protocol.api_versions import VersionRange
from kafka_quota_proxy.protocol.client_quotas import (
    ALTER,
    DESCRIBE,
    AlterRequest,
    AlterResponse,
    DescribeRequest,
    write_response,
)
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.protocol.header import RequestHead
from kafka_quota_proxy.proxy.rules.alter import Decision, refuse_alter
from kafka_quota_proxy.proxy.rules.codec import RequestedChanges
from kafka_quota_proxy.proxy.rules.describe import refuse_describe
from kafka_quota_proxy.proxy.rules.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    CLUSTER_AUTHORIZATION_FAILED_MESSAGE,
)
from kafka_quota_proxy.proxy.rules.text import shown_name

# The longest request of an administrator. It can have some 50,000 entities and limits. Kafka's own limit is
# socket.request.max.bytes.
MAX_REQUEST_BYTES: Final = 4 * 1024 * 1024
# The longest request that is refused. The event loop reads and refuses such a request in some milliseconds.
MAX_REFUSED_BYTES: Final = 64 * 1024
MAX_REFUSED_ELEMENTS: Final = 1_000
# The longest part of a user's name in the message of a refusal, which each element of the response repeats.
_MAX_SHOWN_NAME: Final = 64
# The versions that the proxy answers, even if the broker does not support them.
VERSIONS: Final[Mapping[int, VersionRange]] = MappingProxyType(
    {api_key: VersionRange(0, HIGHEST_VERSION[api_key]) for api_key in (DESCRIBE, ALTER)}
)
# ``Origin.listener`` of a change that came through the admin port.
ADMIN: Final = "admin"
QuotaRequest = DescribeRequest | AlterRequest


class Origin(NamedTuple):
    """The client that requests a change of quotas, as recorded in the log of changes.

    Attributes:
        principal: The user, or ``token@ADDRESS`` for a client of the admin port that has a token.
        listener: The name of the listener to which the client is connected, or ``ADMIN`` for the admin port.
    """

    principal: str
    client_id: str | None = None
    address: str = ""
    listener: str = ""


class TicketOwner(Protocol):
    """An object that waits for the answer to a request about quotas, such as a client's connection."""

    def take_turn(self) -> None:
        """Go on with the request that waited, because its answer is ready."""

    def fail(self) -> None:
        """Stop waiting, because an internal error prevents an answer. A client's connection then closes itself."""


class Ticket:
    """A request that waits for its answer. It contains either a ``frame`` of Kafka's protocol or ``changes``.

    Attributes:
        frame: The bytes of the whole request. Empty if the ticket has ``changes`` or was dropped.
        head: The header of the request in ``frame``. None if the ticket has ``changes``.
        owner: The ``TicketOwner`` that is called when the answer is ready. None if the ticket was dropped.
        changes: The changes that were requested through the admin port. None if the ticket has a frame or was dropped.
        answer: The whole response to ``frame``, or None until it is ready.
        altered: The results of ``changes``, or None until they are ready.
        error: Why the frame cannot be read, or None. A frame that cannot be read gets no response.
    """

    __slots__ = ("altered", "answer", "changes", "error", "frame", "head", "is_dropped", "origin", "owner")

    def __init__(
        self,
        origin: Origin,
        owner: object,
        *,
        frame: bytes = b"",
        head: RequestHead | None = None,
        changes: RequestedChanges | None = None,
    ) -> None:
        self.frame = frame
        self.head = head
        self.origin = origin
        self.owner = owner
        self.changes = changes
        self.answer: bytes | None = None
        self.altered: Decision | None = None
        self.error: ProtocolError | None = None
        self.is_dropped = False

    def drop(self) -> None:
        """Stop waiting for the answer. If work on the request has begun, it is still completed."""
        self.frame, self.changes, self.owner = b"", None, None
        self.is_dropped = True


class QuotaRequestHandler(Protocol):
    """Answers administrators' requests about quotas in place of a broker."""

    @property
    def submit(self) -> Callable[[Ticket], bool]:
        """Queues a request that is to be answered, and returns False if the queue is full."""

    def refused(self, origin: Origin, message: str, now_ms: int) -> None:
        """Note that the request of a user who is no administrator was refused with this message."""


class Administration(NamedTuple):
    """A listener's settings for requests about quotas. ``handler`` answers the requests of the users ``admins``.

    Requests of all others are refused.
    """

    admins: frozenset[str]
    handler: QuotaRequestHandler
    listener: str = ""


def unauthorized(principal: str) -> str:
    """Return the message for a user who is no administrator. It names the user and the key that would change it."""
    user = f"{shown_name(principal[:_MAX_SHOWN_NAME])}{', as nobody logs in,' if principal == ANONYMOUS else ''}"
    return f"{CLUSTER_AUTHORIZATION_FAILED_MESSAGE} The user {user} is not in principals.admins of kafka-quota-proxy."


def refusal(
    request: QuotaRequest,
    message: str,
    error_code: int = CLUSTER_AUTHORIZATION_FAILED,
) -> bytes:
    """Return the response that refuses the whole request, by default because the client is not authorized."""
    response = (
        refuse_describe(error_code, message)
        if isinstance(request, DescribeRequest)
        else AlterResponse(0, refuse_alter(request, error_code, message))
    )
    return write_response(response, correlation_id=request.correlation_id, api_version=request.api_version)
