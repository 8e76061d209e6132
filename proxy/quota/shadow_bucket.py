"""Computes the state that a bucket would have under enforcement, for a bucket whose limit is only observed.

A bucket measures the usage of a user, a client-id, or both. Clients of an observed bucket never wait, so they send more
than they would under enforcement. The shadow bucket, a copy, is charged only for requests that enforcement would have
forwarded. During a wait, enforcement would hold back one request and forward it afterwards. All other requests during
the wait are ignored.
"""

from kafka_quota_proxy.config.units import UNLIMITED
from kafka_quota_proxy.proxy.quota.rate import Rate
from kafka_quota_proxy.proxy.quota.throttle import throttle_time_ms, wait_for_tokens_ms
from kafka_quota_proxy.proxy.quota.token_bucket import TokenBucket


class ShadowBucket:
    """A copy of a bucket, made at its first request over the limit. The copy is charged as if the limit were enforced.

    Args:
        rate: The rate of the bucket after that request was charged.
        tokens: The token bucket after that request was charged, or None if the quota is not paced.
        wait_ms: For how many ms the client would have to wait because of that request.
        now_ms: The time.
    """

    __slots__ = ("_blocked_until_ms", "_held_amount", "_rate", "_tokens")

    def __init__(self, rate: Rate, tokens: TokenBucket | None, *, wait_ms: int, now_ms: int) -> None:
        self._rate = Rate(samples=rate.samples, window_ms=rate.sample_ms)
        self._rate.restore(rate.slots())
        self._tokens = None if tokens is None else tokens.copy()
        self._blocked_until_ms = now_ms + wait_ms
        self._held_amount = 0  # the amount of the request that is forwarded after the wait

    def charge(self, amount: int, *, limit: float, took_ms: int, now_ms: int) -> list[int]:
        """Charge a request that the broker took ``took_ms`` to answer, if enforcement would have forwarded it.

        Return the waits in ms, without those of 0, that enforcement would have caused since the last call.
        """
        waits_ms = []
        held_charged_ms = self._blocked_until_ms + took_ms
        if self._held_amount and held_charged_ms <= now_ms:
            waits_ms.append(self._pass(self._held_amount, limit, held_charged_ms))
            self._held_amount = 0
        # A request that would be held back is charged when its wait is over and the broker has answered it.
        if now_ms < self._blocked_until_ms + took_ms:
            self._held_amount = amount
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
        self._blocked_until_ms = now_ms + wait_ms
        return wait_ms
