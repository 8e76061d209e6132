"""The charge of a request besides its bytes: the broker's time (``request_percentage``, KIP-124) and ``request_rate``.

Both limit users and client-ids, and are measured like bytes. A request is charged when its response begins. A Produce
with acks=0 has no response: it counts for ``request_rate`` when it has passed, and its time is charged to no bucket.

Source: ``ClientRequestQuotaManager``, ``RequestHandlerHelper.sendResponseMaybeThrottle``.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kafka_quota_proxy.proxy.fair_queue.request_kind import RequestKind
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.request_time import ServiceTime, charged_ns
from kafka_quota_proxy.proxy.session.client_account import ClientAccount, RequestBuckets

# A bucket that was charged, and its wait in milliseconds; 0 or less: none.
Charge = tuple[Bucket, int]


class RequestCharge(NamedTuple):
    """The charge of a request; the same for all requests that are alike."""

    buckets: RequestBuckets
    kind: RequestKind
    identity: str | None  # that queues in the fair call queue; None: it does not queue

    def begin(self) -> None:
        """Note that the request passes."""
        if self.buckets.rate is not None:
            self.buckets.rate.in_flight += 1

    def pass_unanswered(self, *, now_ms: int) -> Iterator[Charge]:
        """Charge a request that has passed and has no response: its number, not its time."""
        rate = self.buckets.rate
        if rate is not None:
            rate.in_flight -= 1
            yield rate, rate.charge(1, now_ms=now_ms)

    def forget(self) -> tuple[()]:
        """Charge nothing: the broker never got all of the request."""
        if self.buckets.rate is not None:
            self.buckets.rate.in_flight -= 1
        return ()

    def settle(
        self, service: ServiceTime, request_bytes: int, answer_bytes: int, *, scale: float, now_ms: int
    ) -> Iterator[Charge]:
        """Charge all buckets when the response begins; ``answer_bytes`` of 0: there is none."""
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
    """Return whether a request may pass that is sent ahead of earlier responses and charges ``buckets``.

    It could be served during a wait. A request with no other in flight needs no room: a broker takes it up too, and
    throttles its client afterwards.
    """
    time, rate = buckets
    if time is not None and time.is_limited and not account.observes(time):
        return False  # its time is known when it is answered
    return rate is None or account.observes(rate) or rate.has_room(1, now_ms=now_ms)


def longest_wait(account: ClientAccount, charges: Iterable[Charge], *, now_ms: int) -> Charge | None:
    """Return the charge with the longest wait; None: none has to wait.

    Of two equal ones it is the later, as the request quota's is in Kafka. Waits of observed buckets are counted, and
    hide no other. Each bucket is owed its own wait, whichever one the client is told.
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
