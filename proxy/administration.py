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
from proxy.quota_store.alter import refuse_alter
from proxy.quota_store.describe import refuse_describe
from proxy.quota_store.errors import CLUSTER_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED_MESSAGE

# Of a request: some 50,000 entities and limits. Kafka itself takes up to socket.request.max.bytes.
MAX_REQUEST_BYTES: Final = 4 * 1024 * 1024
QuotaRequest = DescribeRequest | AlterRequest


class Ticket:
    """What is being answered; ``answer`` is the whole frame once it is there."""

    __slots__ = ("answer",)

    def __init__(self) -> None:
        self.answer: bytes | None = None


class Desk(Protocol):
    """Who answers administrators."""

    def submit(self, request: QuotaRequest, principal: str, owner: object) -> Ticket:
        """Begin to answer a request; ``owner`` is told when it is."""


class Administration(NamedTuple):
    """Who may administer quotas on a listener, and who answers; ``forwards``: others ask the broker."""

    admins: frozenset[str]
    forwards: bool
    desk: Desk

    def is_answered_here(self, principal: str) -> bool:
        """Whether requests of ``principal`` do not go to the broker."""
        return principal in self.admins or not self.forwards


class QuotaRequests:
    """One connection's requests about quotas; there is one at a time."""

    __slots__ = ("_ticket",)

    def __init__(self) -> None:
        self._ticket: Ticket | None = None

    def take(
        self, frame: bytes, api_key: int, administration: Administration, principal: str, owner: object
    ) -> bytes | None:
        """Return the answer to a request, a whole frame; None: not yet.

        Args:
            frame: The request, whole, behind whose predecessors nothing is unanswered. The same one until it has its
                answer.
            api_key: Of it.
            administration: Of the listener.
            principal: Who asks.
            owner: To be woken when the answer is there.

        Raises:
            ProtocolError: It is no such request.
        """
        ticket = self._ticket
        if ticket is None:
            request = read_describe_request(frame) if api_key == DESCRIBE else read_alter_request(frame)
            if principal not in administration.admins:
                return refusal(request)
            ticket = self._ticket = administration.desk.submit(request, principal, owner)
        if ticket.answer is not None:
            self._ticket = None
        return ticket.answer


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
