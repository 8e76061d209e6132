"""Charges the fetches of a client that has disconnected before the broker answered them.

Kafka charges such fetches, too. A fetch is charged for the size of its response, so only the sizes of responses are
read. The bucket of each fetch is kept until the response arrives, so that the bucket still exists when it is charged.
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
    bucket: Bucket | None  # None if the response is not charged


class Unanswered:
    """Reads the responses that a broker has yet to send to a client that has disconnected, and charges their fetches.

    No bytes are read beyond the last response that is charged.

    Args:
        account: The identity and the buckets of the client.
        pending: The requests that were forwarded as a whole, the oldest first. At least one must be charged
            for the bytes of its response.
        begun: The bytes that have arrived from the broker and were not processed yet.
        skip_bytes: How many of the next bytes, beginning with ``begun``, belong to a response that was already charged.
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
        """Whether all awaited responses have begun to arrive, so that nothing more has to be read."""
        return not self._awaited

    @property
    def held_bytes(self) -> int:
        """The number of bytes that have arrived and are kept until more arrive."""
        return len(self._head)

    def receive(self, data: bytes, *, now_ms: int) -> bool:
        """Take bytes that the broker has sent. Returns False if they are not the awaited responses."""
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
        """Give up the responses that are still awaited, and release all buckets.

        If ``is_charged`` is set, each of their fetches is charged for the bytes that it has reserved in its bucket.
        """
        awaited, self._awaited = self._awaited, []
        for pending, bucket in awaited:
            if bucket is not None:
                self._end(pending, bucket, pending.reserved_bytes if is_charged else 0, now_ms)

    def _end(self, pending: PendingRequest, bucket: Bucket, amount: int, now_ms: int) -> None:
        bucket.reserved.settle(pending.reserved_bytes)
        if amount:
            self._account.silence(bucket, bucket.charge(amount, now_ms=now_ms), now_ms=now_ms)
            if bucket.line is not None:
                bucket.line.note(amount)
        if bucket.line is not None:
            bucket.line.wake_first()
        self._account.context.quotas.release(bucket, now_ms=now_ms)
