"""Fetches whose client is gone before the broker has answered: charged when it has, as Kafka charges them.

Only the size of a response is read, and nothing behind the last of them. Each fetch holds its bucket and what it has
reserved there until then, so that no other client has that bucket by the time it is charged.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.session.client_account import ClientAccount
from kafka_quota_proxy.proxy.session.handlers.fetch import charged_bytes
from kafka_quota_proxy.proxy.session.in_flight import PendingRequest

_HEAD: Final = Struct(">ii").unpack_from  # size_bytes and correlation_id
_HEAD_BYTES: Final = 8


class _Awaited(NamedTuple):
    pending: PendingRequest
    bucket: Bucket | None  # None: nothing is charged


class Unanswered:
    """The responses that a broker still owes to a connection that has ended, up to the last that is charged.

    Args:
        account: Of the connection.
        pending: The requests that the broker has had as a whole, oldest first; one at least is charged by its response.
        begun: What of the responses has come and was not taken up.
        skip_bytes: How much of that, and of what comes behind it, belongs to a response that was.
    """

    __slots__ = ("_account", "_awaited", "_head", "_skip_bytes")

    def __init__(
        self, account: ClientAccount, pending: Iterable[PendingRequest], *, begun: bytes, skip_bytes: int
    ) -> None:
        self._account = account
        self._head = begun
        self._skip_bytes = skip_bytes
        self._awaited = [_Awaited(one, one.profile.bucket if one.is_charged_by_response else None) for one in pending]
        while self._awaited and self._awaited[-1].bucket is None:
            self._awaited.pop()
        for _, bucket in self._awaited:
            if bucket is not None:
                account.context.quotas.hold(bucket)

    @property
    def is_done(self) -> bool:
        """Whether no response is awaited."""
        return not self._awaited

    def receive(self, data: bytes, *, now_ms: int) -> bool:
        """Take what the broker sent; return whether it answers what was asked."""
        data, at = self._head + data, 0
        while self._awaited:
            at += self._skip_bytes
            self._skip_bytes = max(0, at - len(data))
            if at + _HEAD_BYTES > len(data):
                break
            size_bytes, correlation_id = _HEAD(data, at)
            awaited = self._awaited[0]
            if size_bytes < 4 or correlation_id != awaited.pending.correlation_id:
                return False
            self._awaited.pop(0)
            if awaited.bucket is not None:
                self._end(awaited.pending, awaited.bucket, charged_bytes(awaited.pending.profile, size_bytes), now_ms)
            self._skip_bytes = 4 + size_bytes
        self._head = data[at:]
        return True

    def close(self, *, now_ms: int, is_charged: bool) -> None:
        """Await nothing any more; with ``is_charged`` each fetch is charged what was expected of it."""
        awaited, self._awaited = self._awaited, []
        for pending, bucket in awaited:
            if bucket is not None:
                self._end(pending, bucket, pending.reserved_bytes if is_charged else 0, now_ms)

    def _end(self, pending: PendingRequest, bucket: Bucket, amount: int, now_ms: int) -> None:
        bucket.settle(pending.reserved_bytes)
        if amount:
            wait_ms = bucket.charge(amount, now_ms=now_ms)
            if bucket.line is not None:
                bucket.line.note(amount)
            if wait_ms > 0 and not self._account.observes(bucket):
                bucket.silence(wait_ms, now_ms=now_ms)
        if bucket.line is not None:
            bucket.line.wake_first()
        self._account.context.quotas.release(bucket, now_ms=now_ms)
