"""What a connection's requests are charged beside their bytes: service time and their number.

Both are limits of users and client-ids like bytes, and measured like them: ``request_percentage`` (KIP-124; what counts
as service time here, ``quota.request_time`` says) and ``request_rate``. A request that is answered is charged when its
answer begins; one that is not (a Produce with acks=0) is counted when it has passed, and its time is nobody's.

Source: ``ClientRequestQuotaManager``, ``RequestHandlerHelper.sendResponseMaybeThrottle``.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kafka_quota_proxy.proxy.fair_queue.request_kind import RequestKind
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.request_time import ServiceTime, charged_ns
from kafka_quota_proxy.proxy.session.client_account import ClientAccount, RequestBuckets

# Who was charged, and how long its sender must be silent for it, in milliseconds; 0 or less: not at all.
Charge = tuple[Bucket, int]


class RequestCharge(NamedTuple):
    """A request that awaits its answer, as far as charging it is concerned; the same for all that are alike."""

    buckets: RequestBuckets
    kind: RequestKind
    identity: str | None  # whose turn it has to be; None: nobody has to wait for one

    def begin(self) -> None:
        """Take it that it passes."""
        if self.buckets.rate is not None:
            self.buckets.rate.in_flight += 1

    def pass_unanswered(self, *, now_ms: int) -> Iterator[Charge]:
        """Charge a request that has passed and will have no answer: for being one, not for the time that it takes."""
        rate = self.buckets.rate
        if rate is not None:
            rate.in_flight -= 1
            yield rate, rate.charge(1, now_ms=now_ms)

    def forget(self) -> tuple[()]:
        """Take it that the broker never had the whole of it; nobody is charged."""
        if self.buckets.rate is not None:
            self.buckets.rate.in_flight -= 1
        return ()

    def settle(
        self, service: ServiceTime, request_bytes: int, answer_bytes: int, *, scale: float, now_ms: int
    ) -> Iterator[Charge]:
        """Charge everybody who pays for it.

        Args:
            service: How long its answer took, and how long the broker worked.
            request_bytes: Its size.
            answer_bytes: The answer's size; 0: there is none.
            scale: ``request_time_scale``.
            now_ms: When the answer begins.
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
    """Whether a request that is sent ahead may pass now that would be charged to ``buckets``.

    It would be served during a wait. One with nothing unanswered in front of it needs no room: a broker takes it up as
    well, and makes its sender wait afterwards.

    Args:
        account: Whose request it is.
        buckets: Who pays.
        now_ms: The time.
    """
    time, rate = buckets
    if time is not None and time.is_limited and not account.observes(time):
        return False  # what it costs only its answer tells
    return rate is None or account.observes(rate) or rate.has_room(1, now_ms=now_ms)


def longest(account: ClientAccount, charges: Iterable[Charge], *, now_ms: int) -> Charge | None:
    """Return the charge whose wait counts, which is the longest; None where nobody has to wait.

    Where two are equal it is the later one, as in Kafka the request quota's. The waits of those that only observe are
    counted, and hide none of the others. What is owed is owed to each bucket, whichever wait the client is told.
    """
    found: Charge | None = None
    for bucket, wait_ms in charges:
        if wait_ms <= 0:
            continue
        if account.observes(bucket):
            account.slow_down(bucket, wait_ms, now_ms=now_ms)
            continue
        bucket.silence(wait_ms, now_ms=now_ms)
        if found is None or wait_ms >= found[1]:
            found = bucket, wait_ms
    return found
