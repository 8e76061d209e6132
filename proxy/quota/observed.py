"""What enforcement would have done to a bucket that is only observed.

Its clients wait for nothing, so what they send is no sign of what they would have sent. A shadow of the bucket is
charged as an enforced one would be: what comes while it is silent would have waited, and one such request goes out when
the silence ends. So time that passes is counted once, however many requests come in it.
"""

from kafka_quota_proxy.config.model import UNLIMITED
from kafka_quota_proxy.proxy.quota.rate import Rate
from kafka_quota_proxy.proxy.quota.throttle import throttle_time_ms, wait_for_tokens_ms
from kafka_quota_proxy.proxy.quota.token_bucket import TokenBucket


class Shadow:
    """A bucket as it would be under enforcement, from its first wait on.

    Args:
        rate: The bucket's, as it is when the first request would have had to wait, that request included.
        tokens: Likewise; None: sampled windows decide.
        wait_ms: What that request would have been told.
        now_ms: When.

    Attributes:
        requests: How many requests the bucket had counted when this one was last charged.
    """

    __slots__ = ("_rate", "_silent_until_ms", "_tokens", "_waiting", "requests")

    def __init__(self, rate: Rate, tokens: TokenBucket | None, *, wait_ms: int, now_ms: int) -> None:
        self._rate = Rate(samples=rate.samples, window_ms=rate.sample_ms)
        self._rate.restore(rate.slots())
        self._tokens = None if tokens is None else tokens.copy()
        self._silent_until_ms = now_ms + wait_ms
        self._waiting = 0  # bytes of the request that goes out when the silence ends
        self.requests = 0

    def charge(self, amount: int, *, limit: float, took_ms: int, now_ms: int) -> list[int]:
        """Take a request that charged ``amount``; return the waits that clients would have been told since the last.

        Args:
            amount: What it charged.
            limit: The bucket's, per second.
            took_ms: How long the broker took to answer it. One that had waited would be charged as much later.
            now_ms: The time.
        """
        waits_ms = []
        at_ms = self._silent_until_ms + took_ms
        if self._waiting and at_ms <= now_ms:
            waits_ms.append(self._pass(self._waiting, limit, at_ms))
            self._waiting = 0
        if now_ms < self._silent_until_ms + took_ms:
            self._waiting = amount
        else:
            waits_ms.append(self._pass(amount, limit, now_ms))
        return [wait_ms for wait_ms in waits_ms if wait_ms > 0]

    def _pass(self, amount: int, limit: float, now_ms: int) -> int:
        self._rate.record(amount, now_ms=now_ms)
        if self._tokens is not None:
            left = self._tokens.record(amount, byte_rate_limit=limit, now_ms=now_ms)
            wait_ms = wait_for_tokens_ms(tokens=left, byte_rate_limit=limit)
        elif limit < UNLIMITED:
            byte_rate, window_ms = self._rate.measure(now_ms=now_ms), self._rate.window_ms(now_ms=now_ms)
            wait_ms = max(0, throttle_time_ms(byte_rate=byte_rate, byte_rate_limit=limit, window_ms=window_ms))
        else:
            wait_ms = 0
        self._silent_until_ms = now_ms + wait_ms
        return wait_ms
