"""Requests that were passed on and have no response yet. A broker answers a connection's requests in their order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.session.request_charge import RequestCharge

if TYPE_CHECKING:
    from kafka_quota_proxy.proxy.session.handlers.handler import Handler

# A broker needs no such bound, for it reads one request at a time. Here it keeps a client that never reads responses
# from filling memory with what is still expected. Java has at most 5 Produce requests in flight.
MAX_IN_FLIGHT: Final = 256


@dataclass(slots=True, eq=False, repr=False)
class RequestProfile:
    """The part of a request's handling that all requests with the same head share.

    Reading a head takes longer than all decisions about it. Comparing it with the last one takes a fraction of that, so
    the profiles of Produce, Fetch and ShareFetch are kept and compared.

    Attributes:
        handler: Decides on the request and on its response.
        api_key: The API.
        api_version: Its version.
        acks: Of a Produce; 1 for all other APIs.
        bucket: Charged for bytes; None: no bucket is.
        charge: The charge besides bytes; None: there is none, and the request does not queue.
        generation: The generation of the rules that gave the buckets.
        charges_response: Whether the size of the response is charged to the bucket, and not that of the request.
        is_edited: Whether the handler sees every response, and not only those that carry a throttle time.
        api: The bytes of ``api_key`` and ``api_version``.
        front: The bytes from ``client_id`` on, of a Produce to the end of ``acks``, of a Fetch to the body.
        front_end: Where ``front`` ends, from the frame's start.
    """

    handler: Handler
    api_key: int
    api_version: int
    acks: int = 1
    bucket: Bucket | None = None
    charge: RequestCharge | None = None
    generation: int = 0
    api: bytes = b""
    front: bytes = b""
    front_end: int = 0
    charges_response: bool = field(init=False)
    is_edited: bool = field(init=False)

    def __post_init__(self) -> None:
        self.charges_response = self.handler.charges_responses
        self.is_edited = self.handler.edits_every_response


@dataclass(slots=True, eq=False, repr=False)
class PendingRequest:
    """A request that was passed on and has no response yet.

    Attributes:
        profile: How it is handled.
        correlation_id: Of the request and of its response.
        size_bytes: Of the request, without its size prefix.
        reserved_bytes: What it has reserved in the bucket of its profile.
        charge: As in the profile, but for this request.
    """

    profile: RequestProfile
    correlation_id: int
    size_bytes: int
    reserved_bytes: int
    charge: RequestCharge | None

    @property
    def is_charged_by_response(self) -> bool:
        """Whether the size of its response is charged under a limit."""
        bucket = self.profile.bucket
        return bucket is not None and bucket.is_limited and self.profile.charges_response

    def settle_bytes(self) -> None:
        """Give back what it has reserved, and let the next request in the bucket's line look again."""
        bucket = self.profile.bucket
        if bucket is not None:
            bucket.settle(self.reserved_bytes)
            if bucket.line is not None:
                bucket.line.wake_first()


class InFlightQueue(list[PendingRequest]):
    """The pending requests of one connection, oldest first. Mostly empty or one long, where a list beats a deque.

    Attributes:
        limit: How many there may be; 0: none may follow until the oldest is answered.
    """

    __slots__ = ("limit",)

    def __init__(self) -> None:
        super().__init__()
        self.limit = MAX_IN_FLIGHT

    @property
    def is_waiting(self) -> bool:
        """Whether a response is expected."""
        return bool(self) or not self.limit

    def hold(self) -> None:
        """Let no request pass until ``open``."""
        self.limit = 0

    def open(self) -> None:
        """Let requests pass again."""
        self.limit = MAX_IN_FLIGHT

    def buckets(self) -> Iterator[Bucket | None]:
        """Yield the buckets that are still to be charged."""
        for pending in self:
            yield pending.profile.bucket
            if pending.charge is not None:
                yield from pending.charge.buckets
