"""Requests about client quotas: by whom they may be made, and by whom they are answered.

Who is an administrator is answered here, and the broker does not hear of it. What he asks may take a disk's time, so
his request waits meanwhile (``proxy.session.quota_requests``), and those behind it.
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
from kafka_quota_proxy.proxy.client_quotas.formats.json_codec import Changes
from kafka_quota_proxy.proxy.client_quotas.rules.alter import refuse_alter
from kafka_quota_proxy.proxy.client_quotas.rules.describe import refuse_describe
from kafka_quota_proxy.proxy.client_quotas.rules.errors import (
    CLUSTER_AUTHORIZATION_FAILED,
    CLUSTER_AUTHORIZATION_FAILED_MESSAGE,
)
from kafka_quota_proxy.proxy.client_quotas.rules.outcome import Origin, Outcome

# Of a request: some 50,000 entities and limits. Kafka itself takes up to socket.request.max.bytes.
MAX_REQUEST_BYTES: Final = 4 * 1024 * 1024
# Of one that is refused, which is read on the loop, and answered entity by entity: in some milliseconds.
MAX_REFUSED_BYTES: Final = 64 * 1024
MAX_REFUSED_ELEMENTS: Final = 1_000
# Of what is answered here, whatever the broker has.
VERSIONS: Final[Mapping[int, VersionRange]] = MappingProxyType(
    {api_key: VersionRange(0, HIGHEST_VERSION[api_key]) for api_key in (DESCRIBE, ALTER)}
)
QuotaRequest = DescribeRequest | AlterRequest


class QuotasAltered(NamedTuple):
    """What became of a request to change quotas.

    Attributes:
        results: As Kafka tells them.
        outcomes: Of each entity.
        throttle_time_ms: After which time it may be tried again, where there were too many changes; else 0.
    """

    results: tuple[Altered, ...]
    outcomes: tuple[Outcome, ...]
    throttle_time_ms: int = 0


class TicketOwner(Protocol):
    """Whoever owns a ticket."""

    def take_turn(self) -> None:
        """Go on: the answer is there."""

    def fail(self) -> None:
        """End: there will be none, for a fault of this program."""


class Ticket:
    """What is being answered.

    Attributes:
        frame: The request, whole; nothing once it is dropped.
        origin: Who asks.
        owner: Whom to wake; a ``TicketOwner``.
        changes: What is asked for, where that is no frame; likewise.
        answer: The whole frame, once it is there.
        altered: What became of ``changes``, once that is done.
        error: Why there is none, if it was no such request.
        is_dropped: Nobody waits for it any more.
    """

    __slots__ = ("altered", "answer", "changes", "error", "frame", "is_dropped", "origin", "owner")

    def __init__(self, frame: bytes, origin: Origin, owner: object, changes: Changes | None = None) -> None:
        self.frame = frame
        self.origin = origin
        self.owner = owner
        self.changes = changes
        self.answer: bytes | None = None
        self.altered: QuotasAltered | None = None
        self.error: ProtocolError | None = None
        self.is_dropped = False

    def drop(self) -> None:
        """Take it that nobody waits for it: what has not begun need not."""
        self.frame, self.changes, self.owner = b"", None, None
        self.is_dropped = True


class QuotaRequestHandler(Protocol):
    """Who answers administrators."""

    def submit(self, frame: bytes, origin: Origin, owner: object) -> Ticket | None:
        """Begin to read a request, which is whole, and to answer it; ``owner`` is told when it is.

        None: too much waits already; to be asked again later.
        """


class Administration(NamedTuple):
    """Who may administer quotas on a listener, and who answers; ``forwards``: others ask the broker."""

    admins: frozenset[str]
    forwards: bool
    handler: QuotaRequestHandler
    listener: str = ""

    def is_answered_here(self, principal: str) -> bool:
        """Whether requests of ``principal`` do not go to the broker."""
        return principal in self.admins or not self.forwards

    def max_request_bytes(self, principal: str) -> int:
        """Return how long a request of ``principal`` may be that is answered here."""
        return MAX_REQUEST_BYTES if principal in self.admins else MAX_REFUSED_BYTES


def read_request(frame: bytes, *, most_elements: int = MAX_ELEMENTS) -> QuotaRequest:
    """Read a whole request of one of the two.

    Raises:
        ProtocolError: It is none, or has more elements.
    """
    is_describe = int.from_bytes(frame[4:6]) == DESCRIBE
    return (read_describe_request if is_describe else read_alter_request)(frame, most_elements=most_elements)


def refusal(
    request: QuotaRequest,
    error_code: int = CLUSTER_AUTHORIZATION_FAILED,
    message: str = CLUSTER_AUTHORIZATION_FAILED_MESSAGE,
) -> bytes:
    """Return the frame with which a request as a whole is refused: as Kafka refuses who may not, if nothing is said."""
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
