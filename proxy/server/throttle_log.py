"""Who is throttled, for the log: the first time at WARNING with the rule and the rate, then once a minute."""

import logging
from collections.abc import Iterable
from typing import Final

from kafka_quota_proxy.proxy.quota.bucket import Bucket

log = logging.getLogger(__name__)

_AGAIN_AFTER_MS: Final = 60_000
# A flood of names must fill neither the log nor, with buckets that have made room for others, the memory.
_MAX_REMEMBERED: Final = 1_000


class ThrottleLog:
    """Says it once for each bucket and minute."""

    def __init__(self) -> None:
        self._told_ms: dict[Bucket, int] = {}

    def write(self, throttled: Iterable[Bucket], *, now_ms: int) -> None:
        """Log those of ``throttled`` that were not logged within the last minute."""
        untold = 0
        for bucket in throttled:
            if now_ms - self._told_ms.get(bucket, -_AGAIN_AFTER_MS) < _AGAIN_AFTER_MS:
                continue
            if bucket not in self._told_ms and len(self._told_ms) >= _MAX_REMEMBERED:
                untold += 1
                continue
            level = logging.INFO if bucket in self._told_ms else logging.WARNING
            self._told_ms[bucket] = now_ms
            log.log(level, "%s", describe(bucket, now_ms=now_ms))
        if untold:
            log.warning(
                "%d more are over their quotas; their names are left out, %d were told of lately",
                untold,
                _MAX_REMEMBERED,
            )
        # A bucket that was quiet for a while is news again when it returns.
        for bucket in [known for known, told_ms in self._told_ms.items() if now_ms - told_ms > 2 * _AGAIN_AFTER_MS]:
            del self._told_ms[bucket]


def describe(bucket: Bucket, *, now_ms: int) -> str:
    """Return one line: who, how fast, against which rule, waited how long."""
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
