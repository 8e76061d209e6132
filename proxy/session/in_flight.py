"""Keeps the pending requests of a connection, which were forwarded and have no response yet.

A broker answers a connection's requests in the order in which they were sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.session.request_charge import RequestCharge

if TYPE_CHECKING:
    from kafka_quota_proxy.proxy.session.handlers.handler import Handler

# The bound keeps a client that never reads responses from filling the memory. The Java client has at most 5 Produce
# requests in flight.
MAX_IN_FLIGHT: Final = 256


class RequestProfile:
    """Holds what requests with the same API, version and client-id have in common: handler, bucket and charges.

    These values form the head of a request. The profile of the last Produce, Fetch or ShareFetch is kept for the next
    request, because comparing the heads of two requests is much faster than reading one.

    Attributes:
        handler: Decides on the request and on its response.
        api_key: The API key of the request.
        api_version: The version of the API.
        client_id: The client-id in the request.
        acks: The ``acks`` of a Produce, and 1 for all other APIs.
        bucket: The bucket that is charged for bytes, or None if the request is not charged for bytes.
        charge: What the request is charged in addition to bytes, or None.
        generation: The number of the version of the quota rules with which the buckets were looked up.
        charges_response: Whether the bucket is charged for the size of the response. Otherwise it is charged for the
            size of the request.
        is_edited: Whether the handler edits every response, not only responses that need a throttle time.
        api: ``api_key`` and ``api_version`` as one number, as ``read_i32_be`` reads them.
        front: The bytes of the head from ``client_id`` on. In a Produce they include ``acks``.
        front_end: The offset at which ``front`` ends, counted from the start of the request.
    """

    __slots__ = (
        "acks", "api", "api_key", "api_version", "bucket", "charge", "charges_response", "client_id", "front",
        "front_end", "generation", "handler", "is_edited",
    )  # fmt: skip

    def __init__(
        self,
        handler: Handler,
        api_key: int,
        api_version: int,
        client_id: bytes = b"",
        *,
        acks: int = 1,
        bucket: Bucket | None = None,
        charge: RequestCharge | None = None,
    ) -> None:
        self.handler = handler
        self.api_key = api_key
        self.api_version = api_version
        self.client_id = client_id
        self.acks = acks
        self.bucket = bucket
        self.charge = charge
        self.generation = 0
        self.api = 0
        self.front = b""
        self.front_end = 0
        self.charges_response = handler.charges_responses
        self.is_edited = handler.edits_every_response


class PendingRequest:
    """A request that was forwarded and has no response yet.

    Attributes:
        profile: What the request shares with others of the same API, version and client-id, such as the bucket to
            charge.
        correlation_id: The correlation id of the request and of its response.
        size_bytes: The size of the request, without its size prefix.
        reserved_bytes: How many bytes of the bucket's room are set aside for the request until it is charged.
        charge: What this request is charged in addition to bytes. It may differ from the charge in the profile.
    """

    __slots__ = ("charge", "correlation_id", "profile", "reserved_bytes", "size_bytes")

    def __init__(
        self,
        profile: RequestProfile,
        correlation_id: int,
        size_bytes: int,
        reserved_bytes: int,
        charge: RequestCharge | None,
    ) -> None:
        self.profile = profile
        self.correlation_id = correlation_id
        self.size_bytes = size_bytes
        self.reserved_bytes = reserved_bytes
        self.charge = charge

    @property
    def is_charged_by_response(self) -> bool:
        """Whether the size of the response will be charged to a bucket that has a limit."""
        bucket = self.profile.bucket
        return bucket is not None and bucket.is_limited and self.profile.charges_response

    def settle_bytes(self) -> None:
        """End the request's reservation in its bucket, and wake the first request in the bucket's line."""
        bucket = self.profile.bucket
        if bucket is not None:
            bucket.reserved.settle(self.reserved_bytes)
            if bucket.line is not None:
                bucket.line.wake_first()

    def forget(self) -> None:
        """End the request without charging it."""
        self.settle_bytes()
        if self.charge is not None:
            self.charge.forget()


def charged_buckets(requests: Iterable[PendingRequest]) -> Iterator[Bucket | None]:
    """Yield the buckets that will be charged for ``requests``."""
    for pending in requests:
        yield pending.profile.bucket
        if pending.charge is not None:
            yield from pending.charge.buckets
