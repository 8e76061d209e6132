"""Logs when a client begins to be throttled, and when this ends.

A period of throttling begins with the first throttle. It ends when the last wait has been over for 30 seconds, or for
the length of all windows over which rates are measured if that is longer. So a client that sends in bursts, and waits
in between, has one long period.

A client is the user, the client-id, or both, that a quota applies to. With several brokers, each has a bucket for the
client, but the log has one period. Its lines are about the bucket that was throttled last.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import QuotaRule
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.entity import Level, Tags
from kafka_quota_proxy.proxy.quota.rule_phrases import (
    as_written,
    level_words,
    limit_words,
    rate_words,
    rule_entity,
    rule_words,
)
from kafka_quota_proxy.proxy.session.blocked_by import BlockedBy
from kafka_quota_proxy.proxy.session.counters import MAX_HOSTS, RecentThrottles

log = logging.getLogger(__name__)

_QUIET_MS: Final = 30_000
# Bounds the clients that are remembered. A flood of client names must fill neither the log nor the memory.
_MAX_REMEMBERED: Final = 1_000
_MINUTE_MS: Final = 60_000
_MOST_LINES_A_MINUTE: Final = 60

_Client = tuple[str, Tags]  # the key of the kind of quota, and the client


class _OverLimit(NamedTuple):
    """A bucket over its limit, and the rule that sets this limit. ``limit`` is in the unit of the rule."""

    bucket: Bucket
    rule: QuotaRule
    level: Level
    limit: float

    def rate(self, now_ms: int) -> float:
        """Return the rate of the bucket, in the unit of the limit."""
        return self.bucket.rate.peek(now_ms=now_ms) / self.bucket.kind.per_unit


@dataclass(slots=True, eq=False, repr=False)
class _Period:
    """A period in which a client was throttled.

    Attributes:
        began_ms: The time of the first throttle.
        over: The bucket that was throttled last.
        until_ms: The end of the last wait.
        waits_for: What the client that was throttled last waits for, or None if the limit is only observed.
        hosts: The addresses of the throttled clients, up to ``MAX_HOSTS`` of them.
        is_logged: Whether the log has a line about the beginning.
    """

    began_ms: int
    over: _OverLimit
    until_ms: int = 0
    waits_for: BlockedBy | None = None
    hosts: dict[str, None] = field(default_factory=dict)
    is_logged: bool = False

    def add(self, over: _OverLimit, recent: RecentThrottles) -> None:
        """Add the recent throttles at one broker."""
        self.over = over
        self.until_ms = max(self.until_ms, recent.until_ms)
        self.waits_for = recent.waits_for
        for host in recent.hosts:
            if host and len(self.hosts) < MAX_HOSTS:
                self.hosts[host] = None

    def is_over(self, now_ms: int) -> bool:
        """Return whether the last wait has been over for so long that the period has ended."""
        return now_ms - self.until_ms >= max(_QUIET_MS, _windows_ms(self.over.bucket))

    def fields(self, now_ms: int, *, has_ended: bool) -> dict[str, object]:
        """Return the fields of the JSON form of a line."""
        over, tags = self.over, self.over.bucket.tags
        fields: dict[str, object] = {
            "event": "throttle_ended" if has_ended else "throttle_began",
            "kind": over.bucket.kind.label,
            "user": tags.user,
            "client_id": tags.client_id,
            "addresses": list(self.hosts),
            "waits_for": None if self.waits_for is None or has_ended else self.waits_for.value,
            "rate": round(over.rate(now_ms), 3),
            "limit": over.limit,
            "rule": {"user": None, "client-id": None, **rule_entity(over.rule), "source": over.rule.source},
            "rule_level": over.level.number,
            "enforced": self.waits_for is not None,
        }
        return fields | ({"duration_ms": self.until_ms - self.began_ms} if has_ended else {})

    def message(self, now_ms: int, *, has_ended: bool) -> str:
        """Return a line in the words of the command ``explain``."""
        over, bucket, key = self.over, self.over.bucket, self.over.bucket.kind.key
        if self.waits_for is None:
            what = "within its quota again, observed only" if has_ended else "over its quota, observed only"
        else:
            what = "no longer throttled" if has_ended else "throttled"
        names = (("user", bucket.tags.user), ("client-id", bucket.tags.client_id))
        parts = [f"{what}: {' '.join(f'{key}={name!r}' for key, name in names if name)}{self._addresses()}"]
        if has_ended:
            parts.append(f"this lasted {(self.until_ms - self.began_ms) / 1_000:,.1f} s")
        elif self.waits_for is not None:
            parts.append(f"waits for {self.waits_for.value}")
        limit, rate = limit_words(key, over.limit), rate_words(key, over.rate(now_ms), limit=over.limit)
        parts.append(f"{key}: limit {limit}, {rate} in the last {_windows_ms(bucket) / 1_000:g} s")
        rule = rule_words(over.rule)
        parts.append(f"rule {rule if rule.isprintable() else repr(rule)}, level {level_words(over.level)}")
        return "; ".join(parts)

    def _addresses(self) -> str:
        if not self.hosts:
            return ""
        more = len(self.hosts) - 1
        at_least = "at least " if len(self.hosts) == MAX_HOSTS else ""
        return f" from {next(iter(self.hosts))}" + (f" and {at_least}{more} more" if more else "")


class ThrottleLog:
    """Logs the periods in which clients are throttled."""

    def __init__(self) -> None:
        self._periods: dict[_Client, _Period] = {}
        self._minute_began_ms: int | None = None
        self._lines_left = _MOST_LINES_A_MINUTE
        self._has_unnamed = False  # whether a throttled client was not named in this minute

    def write(self, throttled: Iterable[Mapping[Bucket, RecentThrottles]], *, now_ms: int) -> None:
        """Log which clients began to be throttled, and which no longer are. Call this once a second.

        ``throttled`` has ``Counters.newly_throttled`` of each listener.
        """
        self._begin_minute(now_ms)
        seen: dict[_Period, None] = {}
        for newly_throttled in throttled:
            for bucket, recent in newly_throttled.items():
                over = _over_limit(bucket)
                if over is not None and (period := self._add(over, recent)) is not None:
                    seen[period] = None
        for client, period in list(self._periods.items()):
            if not period.is_over(now_ms):
                continue
            if not period.is_logged or self._log(logging.INFO, period, now_ms, has_ended=True):
                del self._periods[client]
        for period in seen:
            if not period.is_logged:
                period.is_logged = self._log(logging.WARNING, period, now_ms, has_ended=False)
                self._has_unnamed |= not period.is_logged

    def _begin_minute(self, now_ms: int) -> None:
        """At the beginning of a minute, allow more lines, and log whether the last one did not name all clients."""
        if self._minute_began_ms is not None and now_ms - self._minute_began_ms < _MINUTE_MS:
            return
        if self._has_unnamed:
            log.warning(
                "throttled: other clients too; not named, because the log has at most %d lines a minute about "
                "throttled clients, and remembers %d of them",
                _MOST_LINES_A_MINUTE, _MAX_REMEMBERED,
                extra={"event": "throttles_not_logged"},
            )  # fmt: skip
        self._minute_began_ms, self._lines_left, self._has_unnamed = now_ms, _MOST_LINES_A_MINUTE, False

    def _add(self, over: _OverLimit, recent: RecentThrottles) -> _Period | None:
        """Return the client's period, to which the throttles are added; None if too many clients are remembered."""
        client = over.bucket.kind.key, over.bucket.tags
        period = self._periods.get(client)
        if period is None:
            if len(self._periods) >= _MAX_REMEMBERED:
                self._has_unnamed = True
                return None
            period = self._periods[client] = _Period(recent.began_ms, over)
        period.add(over, recent)
        return period

    def _log(self, level: int, period: _Period, now_ms: int, *, has_ended: bool) -> bool:
        """Log a line about a period, and return True, unless this minute has had its lines."""
        if self._lines_left <= 0:
            return False
        self._lines_left -= 1
        fields = period.fields(now_ms, has_ended=has_ended)
        log.log(level, "%s", period.message(now_ms, has_ended=has_ended), extra=fields)
        return True


def _over_limit(bucket: Bucket) -> _OverLimit | None:
    """Return a throttled bucket with its rule, or None if the rule was removed since the bucket was throttled."""
    rule, level = bucket.rule, bucket.level
    if rule is None or level is None:
        return None
    limit = as_written(bucket.kind, bucket.limit / bucket.kind.per_unit, rule)
    return _OverLimit(bucket, rule, level, limit)


def _windows_ms(bucket: Bucket) -> int:
    """Return the length of all windows over which the rate of a bucket is measured."""
    return bucket.rate.samples * bucket.rate.sample_ms
