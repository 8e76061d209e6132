"""Charges requests to ``request_percentage``, by their time at the broker (KIP-124), and to ``request_rate``, 1 each.

A request is charged when its response begins. A Produce with acks=0 has no response. It is charged to ``request_rate``
when it has been forwarded as a whole, and its time is not charged.

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
    """What a request is charged in addition to its bytes.

    It is charged to the buckets of the quotas on requests, and in the fair call queue.
    """

    buckets: RequestBuckets
    kind: RequestKind
    identity: str | None  # the identity that pays in the fair call queue; None if the request does not queue

    def pass_unanswered(self, *, now_ms: int) -> Iterator[Charge]:
        """Charge the bucket of ``request_rate`` for a forwarded request without a response, and yield the charge."""
        rate = self.buckets.rate
        if rate is not None:
            yield rate, _charge_one(rate, now_ms)

    def forget(self) -> tuple[()]:
        """End the request without charging it, for example because it was not forwarded as a whole."""
        rate = self.buckets.rate
        if rate is not None:
            rate.reserved.settle(1)
            if rate.line is not None:
                rate.line.wake_first()
        return ()

    def settle(
        self, service: ServiceTime, request_bytes: int, answer_bytes: int, *, scale: float, now_ms: int
    ) -> Iterator[Charge]:
        """Charge the buckets of both quotas on requests, and yield each charge.

        ``answer_bytes`` is the size of the response, or 0 if there will be no response.
        """
        time, rate = self.buckets
        if rate is not None:
            yield rate, _charge_one(rate, now_ms)
        if time is not None:
            api_key = self.kind.api_key
            spent_ns = charged_ns(
                api_key, service, request_bytes=request_bytes, response_bytes=answer_bytes, scale=scale
            )
            yield time, time.charge(spent_ns, now_ms=now_ms)


def _charge_one(rate: Bucket, now_ms: int) -> int:
    """Charge a request to the bucket of ``request_rate``, and return the wait in ms that this causes."""
    rate.reserved.settle(1)
    wait_ms = rate.charge(1, now_ms=now_ms)
    if rate.line is not None:
        rate.line.end_request(1)
    return wait_ms


def longest_wait(account: ClientAccount, charges: Iterable[Charge], *, now_ms: int) -> Charge | None:
    """Return the charge with the longest wait, or None if no charge causes a wait.

    If several waits are equally long, the last one is returned, as in Kafka. Each bucket holds requests back for its
    own wait, even if another bucket's wait is returned. If a bucket is only observed (it throttles nobody), its wait is
    counted, but not returned.
    """
    found: Charge | None = None
    for bucket, wait_ms in charges:
        if wait_ms <= 0:
            continue
        if account.observes(bucket):
            account.throttle(bucket, wait_ms, now_ms=now_ms)
            continue
        wait_ms = bucket.silence(wait_ms, now_ms=now_ms)
        if found is None or wait_ms >= found[1]:
            found = bucket, wait_ms
    return found
