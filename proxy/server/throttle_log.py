"""Logs throttled clients with their rule and rate: at WARNING first, then at INFO at most once a minute.

A client that was not logged for two minutes is logged at WARNING again.
"""

import logging
from collections.abc import Iterable
from typing import Final

from kafka_quota_proxy.proxy.quota.bucket import Bucket

log = logging.getLogger(__name__)

_AGAIN_AFTER_MS: Final = 60_000
# How many buckets are remembered. A flood of client names must not fill the log, nor keep evicted buckets in memory.
_MAX_REMEMBERED: Final = 1_000


class ThrottleLog:
    """Logs each throttled bucket at most once a minute. A bucket holds the usage of one client under one quota."""

    def __init__(self) -> None:
        self._logged_ms: dict[Bucket, int] = {}

    def write(self, throttled: Iterable[Bucket], *, now_ms: int) -> None:
        """Log the clients in ``throttled``, which are given by their buckets, unless logged within the last minute."""
        skipped = 0
        for bucket in throttled:
            if now_ms - self._logged_ms.get(bucket, -_AGAIN_AFTER_MS) < _AGAIN_AFTER_MS:
                continue
            if bucket not in self._logged_ms and len(self._logged_ms) >= _MAX_REMEMBERED:
                skipped += 1
                continue
            level = logging.INFO if bucket in self._logged_ms else logging.WARNING
            self._logged_ms[bucket] = now_ms
            log.log(level, "%s", describe(bucket, now_ms=now_ms))
        if skipped:
            log.warning(
                "%d more are over their quotas; not logged, since %d were logged recently",
                skipped,
                _MAX_REMEMBERED,
            )
        # A bucket that returns after two quiet minutes is logged at WARNING again.
        for bucket in [
            known for known, logged_ms in self._logged_ms.items() if now_ms - logged_ms > 2 * _AGAIN_AFTER_MS
        ]:
            del self._logged_ms[bucket]


def describe(bucket: Bucket, *, now_ms: int) -> str:
    """Return one line about a throttled bucket: the client, its rate, the rule, and how long it was throttled."""
    rule = bucket.rule
    where = (
        f"{rule.source or 'a rule'} (level {bucket.level.number}, {bucket.level.says})"
        if rule and bucket.level
        else "?"
    )
    waits = bucket.throttling.time_ms or bucket.throttling.observed_time_ms
    done = "throttled" if bucket.throttling.requests else "over its quota, observed only"
    return (
        f"{done}: {bucket.kind.label} of user={bucket.tags.user!r} client-id={bucket.tags.client_id!r}: "
        f"{bucket.rate.peek(now_ms=now_ms):,.0f} B/s against {bucket.limit:,.0f} B/s, by {where}; "
        f"throttled for {waits / 1_000:,.1f} s in all"
    )
