"""Fetches whose client is gone before the broker has answered: charged when it has, as Kafka charges them.

Of an answer no more is read than how long it is; what is behind the last of them does not matter any more. Each fetch's
bucket is held until then, so that none can be another's by the time it is charged, and keeps what it had reserved.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.session.client_account import Account
from kafka_quota_proxy.proxy.session.state import PRODUCE, InFlight, charged_bytes

_HEAD: Final = Struct(">ii").unpack_from  # size_bytes and correlation_id
_HEAD_BYTES: Final = 8


class _Flight(NamedTuple):
    correlation_id: int
    api_key: int
    api_version: int
    bucket: Bucket | None  # None: nothing is charged
    reserved_bytes: int


def is_awaited(flight: InFlight) -> bool:
    """Whether a request is charged by its answer, under a limit."""
    _, api_key, _, _, bucket, _, _ = flight
    return api_key != PRODUCE and bucket is not None and bucket.is_limited


class Unanswered:
    """What a broker still owes to a connection that has ended, up to the last answer that is charged.

    Args:
        account: Of the connection.
        flights: The requests that the broker has had as a whole, oldest first, one at least that ``is_awaited``.
        begun: What of its answers has come and was not taken up.
        skip_bytes: How much of that, and of what comes behind it, is of an answer that was.
    """

    __slots__ = ("_account", "_flights", "_head", "_skip_bytes")

    def __init__(self, account: Account, flights: Iterable[InFlight], *, begun: bytes, skip_bytes: int) -> None:
        self._account = account
        self._head = begun
        self._skip_bytes = skip_bytes
        self._flights: list[_Flight] = []
        for flight in flights:
            correlation_id, api_key, api_version, _, bucket, _, reserved_bytes = flight
            bucket = bucket if is_awaited(flight) else None
            if bucket is not None:
                account.listening.quotas.hold(bucket)
            self._flights.append(_Flight(correlation_id, api_key, api_version, bucket, reserved_bytes))
        while self._flights and self._flights[-1].bucket is None:
            self._flights.pop()

    @property
    def is_done(self) -> bool:
        """Whether no answer is awaited."""
        return not self._flights

    def receive(self, data: bytes, *, now_ms: int) -> bool:
        """Take what the broker sent; return whether it is what was asked for."""
        data, at = self._head + data, 0
        while self._flights:
            at += self._skip_bytes
            self._skip_bytes = max(0, at - len(data))
            if at + _HEAD_BYTES > len(data):
                break
            size_bytes, correlation_id = _HEAD(data, at)
            flight = self._flights[0]
            if size_bytes < 4 or correlation_id != flight.correlation_id:
                return False
            self._flights.pop(0)
            self._end(flight, charged_bytes(size_bytes, flight.api_key, flight.api_version), now_ms)
            self._skip_bytes = 4 + size_bytes
        self._head = data[at:]
        return True

    def close(self, *, now_ms: int, is_charged: bool) -> None:
        """Await nothing any more; with ``is_charged`` each fetch is charged what was expected of it."""
        flights, self._flights = self._flights, []
        for flight in flights:
            self._end(flight, flight.reserved_bytes if is_charged else 0, now_ms)

    def _end(self, flight: _Flight, amount: int, now_ms: int) -> None:
        bucket = flight.bucket
        if bucket is None:
            return
        bucket.settle(flight.reserved_bytes)
        if amount:
            wait_ms = bucket.charge(amount, now_ms=now_ms)
            if bucket.line is not None:
                bucket.line.note(amount)
            if wait_ms > 0 and not self._account.observes(bucket):
                bucket.silence(wait_ms, now_ms=now_ms)
        if bucket.line is not None:
            bucket.line.wake_first()
        self._account.listening.quotas.release(bucket, now_ms=now_ms)
