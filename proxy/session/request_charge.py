"""Charges a request for the broker's time (``request_percentage``, KIP-124) and for ``request_rate``, not for bytes.

Both quotas limit users and client-ids, and are measured like quotas on bytes. A request is charged when its response
begins. A Produce with acks=0 has no response. It is charged to ``request_rate`` when it has been forwarded, and its
time is not charged.

Source: ``ClientRequestQuotaManager``, ``RequestHandlerHelper.sendResponseMaybeThrottle``.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kafka_quota_proxy.proxy.fair_queue.request_kind import RequestKind
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.request_time import ServiceTime, charged_ns
from kafka_quota_proxy.proxy.session.client_account import ClientAccount, RequestBuckets

# A bucket that was charged, and the wait in milliseconds that the charge has caused. 0 or less means no wait.
Charge = tuple[Bucket, int]


class RequestCharge(NamedTuple):
    """What a request is charged in addition to its bytes. Requests of the same kind share one ``RequestCharge``."""

    buckets: RequestBuckets
    kind: RequestKind
    identity: str | None  # the identity that pays in the fair call queue; None if the request does not queue

    def begin(self) -> None:
        """Note that the request is forwarded, so that it counts as in flight for ``request_rate``."""
        if self.buckets.rate is not None:
            self.buckets.rate.in_flight += 1

    def pass_unanswered(self, *, now_ms: int) -> Iterator[Charge]:
        """Charge a forwarded request without a response to the request rate. Its time is not charged."""
        rate = self.buckets.rate
        if rate is not None:
            rate.in_flight -= 1
            yield rate, rate.charge(1, now_ms=now_ms)

    def forget(self) -> tuple[()]:
        """Charge nothing, for example because the broker never got all of the request."""
        if self.buckets.rate is not None:
            self.buckets.rate.in_flight -= 1
        return ()

    def settle(
        self, service: ServiceTime, request_bytes: int, answer_bytes: int, *, scale: float, now_ms: int
    ) -> Iterator[Charge]:
        """Charge all buckets when the response begins, and yield each charge.

        ``answer_bytes`` is the size of the response, or 0 if the request will have no response.
        """
        time, rate = self.buckets
        if rate is not None:
            rate.in_flight -= 1
            yield rate, rate.charge(1, now_ms=now_ms)
        if time is not None:
            api_key = self.kind.api_key
            spent_ns = charged_ns(
                api_key, service, request_bytes=request_bytes, response_bytes=answer_bytes, scale=scale
            )
            yield time, time.charge(spent_ns, now_ms=now_ms)


def has_room(account: ClientAccount, buckets: RequestBuckets, *, now_ms: int) -> bool:
    """Return whether ``buckets`` have room for a request while earlier requests have no response yet.

    If not, the request waits. An earlier response may throttle the client, and the broker would then serve the request
    too early. Do not call this if no other request is in flight. Such a request needs no room, because a broker would
    serve it, too, and throttle the client afterwards.
    """
    time, rate = buckets
    if time is not None and time.is_limited and not account.observes(time):
        return False  # how much time a request takes is known only when it is answered
    return rate is None or account.observes(rate) or rate.has_room(1, now_ms=now_ms)


def longest_wait(account: ClientAccount, charges: Iterable[Charge], *, now_ms: int) -> Charge | None:
    """Return the charge with the longest wait, or None if no charge causes a wait.

    Of two equal waits the later one counts. In Kafka this is the wait of the request quota. The waits of buckets that
    are only observed are counted, but never returned. Each bucket blocks requests for its own wait, even if the client
    gets the longer throttle time of another bucket.
    """
    found: Charge | None = None
    for bucket, wait_ms in charges:
        if wait_ms <= 0:
            continue
        if account.observes(bucket):
            account.throttle(bucket, wait_ms, now_ms=now_ms)
            continue
        bucket.silence(wait_ms, now_ms=now_ms)
        if found is None or wait_ms >= found[1]:
            found = bucket, wait_ms
    return found
