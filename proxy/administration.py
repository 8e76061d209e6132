"""Requests about client quotas, on one connection: by whom they may be made, and by whom they are answered.

Who is an administrator is answered here, and the broker does not hear of it. What he asks may take a disk's time, so
his request waits meanwhile, and those behind it.
"""

from typing import Final, NamedTuple, Protocol

from protocol.client_quotas import (
    DESCRIBE,
    AlterRequest,
    AlterResponse,
    DescribeRequest,
    read_alter_request,
    read_describe_request,
    write_alter_response,
    write_describe_response,
)
from protocol.errors import ProtocolError
from protocol.walk import MAX_ELEMENTS
from proxy.quota_store.alter import refuse_alter
from proxy.quota_store.describe import refuse_describe
from proxy.quota_store.errors import CLUSTER_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED_MESSAGE

# Of a request: some 50,000 entities and limits. Kafka itself takes up to socket.request.max.bytes.
MAX_REQUEST_BYTES: Final = 4 * 1024 * 1024
# Of one that is refused, which is read on the loop, and answered entity by entity: in some milliseconds.
MAX_REFUSED_BYTES: Final = 64 * 1024
MAX_REFUSED_ELEMENTS: Final = 1_000
QuotaRequest = DescribeRequest | AlterRequest


class Ticket:
    """What is being answered.

    Attributes:
        answer: The whole frame, once it is there.
        error: Why there is none, if it was no such request.
    """

    __slots__ = ("answer", "error")

    def __init__(self) -> None:
        self.answer: bytes | None = None
        self.error: ProtocolError | None = None


class Desk(Protocol):
    """Who answers administrators."""

    def submit(self, frame: bytes, principal: str, owner: object) -> Ticket:
        """Begin to read a request, which is whole, and to answer it; ``owner`` is told when it is."""


class Administration(NamedTuple):
    """Who may administer quotas on a listener, and who answers; ``forwards``: others ask the broker."""

    admins: frozenset[str]
    forwards: bool
    desk: Desk

    def is_answered_here(self, principal: str) -> bool:
        """Whether requests of ``principal`` do not go to the broker."""
        return principal in self.admins or not self.forwards

    def max_request_bytes(self, principal: str) -> int:
        """Return how long a request of ``principal`` may be that is answered here."""
        return MAX_REQUEST_BYTES if principal in self.admins else MAX_REFUSED_BYTES


class QuotaRequests:
    """One connection's requests about quotas; there is one at a time.

    Attributes:
        lacks_bytes: How much of the one that is coming is still to come.
    """

    __slots__ = ("_pieces", "_ticket", "lacks_bytes")

    def __init__(self) -> None:
        self._ticket: Ticket | None = None
        self._pieces: list[bytes] = []  # joined once, when it is whole: it may have many MB
        self.lacks_bytes = 0

    @property
    def held_bytes(self) -> int:
        """How much of it was collected."""
        return sum(map(len, self._pieces))

    def collect(self, data: bytes) -> bytes:
        """Keep what has come of a request until nothing is lacking; return all of that then, and nothing before."""
        self._pieces.append(data)
        self.lacks_bytes -= len(data)
        if self.lacks_bytes > 0:
            return b""
        whole, self._pieces, self.lacks_bytes = b"".join(self._pieces), [], 0
        return whole

    @property
    def is_pending(self) -> bool:
        """Whether a request has been taken that has not had its answer."""
        return self._ticket is not None

    def take(self, frame: bytes, administration: Administration, principal: str, owner: object) -> bytes | None:
        """Return the answer to a request, a whole frame; None: not yet.

        Args:
            frame: The request, whole, behind whose predecessors nothing is unanswered. The same one until it has its
                answer.
            administration: Of the listener.
            principal: Who asks.
            owner: To be woken when the answer is there.

        Raises:
            ProtocolError: It is no such request.
        """
        ticket = self._ticket
        if ticket is None:
            if principal not in administration.admins:
                return refusal(read_request(frame, most_elements=MAX_REFUSED_ELEMENTS))
            ticket = self._ticket = administration.desk.submit(frame, principal, owner)
        if ticket.error is not None:
            raise ticket.error
        if ticket.answer is not None:
            self._ticket = None
        return ticket.answer


def read_request(frame: bytes, *, most_elements: int = MAX_ELEMENTS) -> QuotaRequest:
    """Read a whole request of one of the two.

    Raises:
        ProtocolError: It is none, or has more elements.
    """
    is_describe = int.from_bytes(frame[4:6]) == DESCRIBE
    return (read_describe_request if is_describe else read_alter_request)(frame, most_elements=most_elements)


def refusal(request: QuotaRequest) -> bytes:
    """Return what Kafka answers who may not."""
    error = CLUSTER_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED_MESSAGE
    if isinstance(request, DescribeRequest):
        return write_describe_response(
            refuse_describe(*error), correlation_id=request.correlation_id, api_version=request.api_version
        )
    return write_alter_response(
        AlterResponse(0, refuse_alter(request, *error)),
        correlation_id=request.correlation_id,
        api_version=request.api_version,
    )
