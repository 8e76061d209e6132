"""What a connection's requests are charged beside their bytes: service time and their number.

Both are limits of users and client-ids like bytes, and measured like them: ``request_percentage`` (KIP-124; what counts
as service time here, ``proxy.service_time`` says) and ``request_rate``. A request that is answered is charged when its
answer begins; one that is not (a Produce with acks=0) is counted when it has passed, and its time is nobody's.

Source: ``ClientRequestQuotaManager``, ``RequestHandlerHelper.sendResponseMaybeThrottle``.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from proxy.account import Account, Payers
from proxy.quota.client import Bucket
from proxy.service_time import Asked, ServiceTime, charged_ns

# Who was charged, and how long its sender must be silent for it, in milliseconds; 0 or less: not at all.
Charge = tuple[Bucket, int]


class Sent(NamedTuple):
    """A request that awaits its answer, as far as charging it is concerned."""

    payers: Payers
    asked: Asked
    identity: str | None  # whose turn it was; None: nobody had to wait for one

    def pass_unanswered(self, *, now_ms: int) -> Iterator[Charge]:
        """Charge a request that has passed and will have no answer: for being one, not for the time that it takes."""
        rate = self.payers.rate
        if rate is not None:
            rate.in_flight -= 1
            yield rate, rate.charge(1, now_ms=now_ms)

    def forget(self) -> tuple[()]:
        """Take it that the broker never had the whole of it; nobody is charged."""
        if self.payers.rate is not None:
            self.payers.rate.in_flight -= 1
        return ()

    def settle(self, service: ServiceTime, answer_bytes: int, *, now_ms: int) -> Iterator[Charge]:
        """Charge everybody who pays for it.

        Args:
            service: How long its answer took, and how long the broker worked.
            answer_bytes: The answer's size; 0: there is none.
            now_ms: When the answer begins.
        """
        time, rate = self.payers
        if rate is not None:
            rate.in_flight -= 1
            yield rate, rate.charge(1, now_ms=now_ms)
        if time is not None:
            asked = self.asked
            spent_ns = charged_ns(asked.api_key, service, request_bytes=asked.size_bytes, response_bytes=answer_bytes)
            yield time, time.charge(spent_ns, now_ms=now_ms)


def begin(payers: Payers, asked: Asked, identity: str | None) -> Sent:
    """Take it that a request passes for which these pay."""
    if payers.rate is not None:
        payers.rate.in_flight += 1
    return Sent(payers, asked, identity)


def has_room(account: Account, payers: Payers, *, is_alone: bool, now_ms: int) -> bool:
    """Whether a request may pass now that would be charged to ``payers``.

    Args:
        account: Whose request it is.
        payers: Who pays.
        is_alone: Whether none of the connection is unanswered. Then it passes: a broker takes it up as well, and makes
            its sender wait afterwards. One that is sent ahead would be served during that wait.
        now_ms: The time.
    """
    if is_alone:
        return True
    time, rate = payers
    if time is not None and time.is_limited and not account.observes(time):
        return False  # what it costs only its answer tells
    return rate is None or account.observes(rate) or rate.has_room(1, now_ms=now_ms)


def longest(account: Account, charges: Iterable[Charge], *, now_ms: int) -> Charge | None:
    """Return the charge whose wait counts, which is the longest; None where nobody has to wait.

    Where two are equal it is the later one, as in Kafka the request quota's. The waits of those that only observe are
    counted, and hide nobody's.
    """
    found: Charge | None = None
    for bucket, wait_ms in charges:
        if wait_ms <= 0:
            continue
        if account.observes(bucket):
            account.slow_down(bucket, wait_ms, now_ms=now_ms)
        elif found is None or wait_ms >= found[1]:
            found = bucket, wait_ms
    return found
