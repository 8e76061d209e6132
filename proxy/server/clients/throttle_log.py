"""Logs when a client begins to be throttled, when this ends, and meanwhile every five minutes that it goes on.

A period of throttling begins with the first throttle. It ends when the last wait has been over for 30 seconds, or for
the length of all windows over which rates are measured if that is longer. So a client that sends in bursts, and waits
in between, has one long period.

A client is the user, the client-id, or both, that a quota applies to. With several brokers, each has a bucket for the
client, but the log has one period.

The first period of a client begins with a warning. All other lines have the level INFO.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import QuotaRule, Shaping
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.entity import Level, Tags
from kafka_quota_proxy.proxy.quota.entity_usage import UsageTotals
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
_REMIND_EVERY_MS: Final = 300_000
# A client whose last period ended longer ago than this is logged at WARNING again.
_FORGET_AFTER_MS: Final = 3_600_000
# Bounds the clients that are remembered. A flood of client names must fill neither the log nor the memory.
_MAX_REMEMBERED: Final = 1_000
_MINUTE_MS: Final = 60_000
_MOST_LINES_A_MINUTE: Final = 60
# Reminders leave the other half of the lines to clients that begin or end to be throttled.
_KEPT_FROM_REMINDERS: Final = _MOST_LINES_A_MINUTE // 2

_Client = tuple[str, Tags]  # the key of the kind of quota, and the client


class _Event(Enum):
    """What a line of the log reports. The name is in the JSON form of the line."""

    BEGAN = "throttle_began"
    CONTINUES = "throttle_continues"
    ENDED = "throttle_ended"


# The beginning of the message: of a client that was throttled, and of one whose limit is only observed.
_HEADINGS: Final = {
    _Event.BEGAN: ("throttled", "over its quota, observed only"),
    _Event.CONTINUES: ("still throttled", "still over its quota, observed only"),
    _Event.ENDED: ("no longer throttled", "within its quota again, observed only"),
}


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
        first_level: The log level of the first line.
        worst: The client's bucket at the broker where it was the most over its limit when it was last throttled.
        until_ms: The end of the last wait.
        waits_for: What the client that was throttled last waits for, or None if the limit is only observed.
        seen_ms: When throttles were last added.
        logged_ms: When the last line was logged, or None if there was none.
        hosts: The addresses of the throttled clients, up to ``MAX_HOSTS`` of them.
        usage: The usage before the first throttle, and that after the last one. There is a bucket for each broker.
    """

    began_ms: int
    first_level: int
    worst: _OverLimit
    until_ms: int = 0
    waits_for: BlockedBy | None = None
    seen_ms: int = -1
    logged_ms: int | None = None
    hosts: dict[str, None] = field(default_factory=dict)
    usage: dict[Bucket, tuple[UsageTotals, UsageTotals]] = field(default_factory=dict)

    def add(self, over: _OverLimit, recent: RecentThrottles, *, now_ms: int) -> None:
        """Add the recent throttles at one broker."""
        worst = self.worst
        # A client has several buckets only with several brokers, so its rate is rarely needed here.
        if self.seen_ms != now_ms or over.rate(now_ms) / over.limit > worst.rate(now_ms) / worst.limit:
            self.worst = over
        self.seen_ms = now_ms
        self.until_ms = max(self.until_ms, recent.until_ms)
        self.waits_for = recent.waits_for
        for host in recent.hosts:
            if host and len(self.hosts) < MAX_HOSTS:
                self.hosts[host] = None
        before, _ = self.usage.get(over.bucket, (recent.usage_before, None))
        self.usage[over.bucket] = before, over.bucket.usage.totals

    def totals(self) -> list[UsageTotals]:
        """Return what each broker has counted in this period."""
        return [after.minus(before) for before, after in self.usage.values()]

    def is_over(self, now_ms: int) -> bool:
        """Return whether the last wait has been over for so long that the period has ended."""
        return now_ms - self.until_ms >= max(_QUIET_MS, _windows_ms(self.worst.bucket))


class ThrottleLog:
    """Logs the periods in which clients are throttled."""

    def __init__(self) -> None:
        self._periods: dict[_Client, _Period] = {}
        self._ended_ms: dict[_Client, int] = {}  # the ends of earlier periods, in their order
        self._minute_began_ms: int | None = None
        self._lines_left = _MOST_LINES_A_MINUTE
        self._most_unnamed = 0  # the most throttled clients at a time that no line has named

    def write(self, throttled: Iterable[Mapping[Bucket, RecentThrottles]], *, now_ms: int) -> None:
        """Log which clients began to be throttled, and which no longer are. Call this once a second.

        ``throttled`` has ``Counters.newly_throttled`` of each listener.
        """
        self._begin_minute(now_ms)
        left_out: set[_Client] = set()
        for newly_throttled in throttled:
            for bucket, recent in newly_throttled.items():
                client = (bucket.kind.key, bucket.tags)
                period = self._periods.get(client)
                if period is None and len(self._periods) >= _MAX_REMEMBERED:
                    left_out.add(client)
                elif (over := _over_limit(bucket)) is not None:
                    period = period or self._begin(client, over, recent.began_ms)
                    period.add(over, recent, now_ms=now_ms)
        self._log_ended(now_ms)
        unnamed = self._log_throttled(now_ms)
        self._most_unnamed = max(self._most_unnamed, len(left_out) + unnamed)

    def _begin_minute(self, now_ms: int) -> None:
        """At the beginning of a minute, allow more lines, and log how many clients the last minute did not name."""
        if self._minute_began_ms is not None and now_ms - self._minute_began_ms < _MINUTE_MS:
            return
        self._minute_began_ms, self._lines_left = now_ms, _MOST_LINES_A_MINUTE
        most, self._most_unnamed = self._most_unnamed, 0
        if most:
            log.warning(
                "throttled: %d or more other clients at a time; not named, because the log has at most %d lines a "
                "minute about throttled clients, and remembers %d of them",
                most, _MOST_LINES_A_MINUTE, _MAX_REMEMBERED,
                extra={"event": "throttles_not_logged", "clients": most},
            )  # fmt: skip

    def _begin(self, client: _Client, over: _OverLimit, began_ms: int) -> _Period:
        ended_ms = self._ended_ms.pop(client, None)
        is_known = ended_ms is not None and began_ms - ended_ms < _FORGET_AFTER_MS
        period = self._periods[client] = _Period(began_ms, logging.INFO if is_known else logging.WARNING, over)
        return period

    def _log_ended(self, now_ms: int) -> None:
        for client, period in list(self._periods.items()):
            if not period.is_over(now_ms):
                continue
            if period.logged_ms is not None:
                if self._lines_left <= 0:
                    continue  # its line follows in one of the next minutes
                self._log(_Event.ENDED, period, now_ms)
                self._ended_ms[client] = period.until_ms
                if len(self._ended_ms) > _MAX_REMEMBERED:
                    del self._ended_ms[next(iter(self._ended_ms))]
            del self._periods[client]

    def _log_throttled(self, now_ms: int) -> int:
        """Log the clients that began to be throttled, then reminders. Return how many throttled clients are unnamed."""
        unnamed = 0
        due: list[_Period] = []
        for period in self._periods.values():
            if period.seen_ms != now_ms:
                continue
            if period.logged_ms is not None:
                if now_ms - period.logged_ms >= _REMIND_EVERY_MS:
                    due.append(period)
            elif self._lines_left > 0:
                self._log(_Event.BEGAN, period, now_ms)
            else:
                unnamed += 1
        for period in due:
            if self._lines_left > _KEPT_FROM_REMINDERS:
                self._log(_Event.CONTINUES, period, now_ms)
        return unnamed

    def _log(self, event: _Event, period: _Period, now_ms: int) -> None:
        self._lines_left -= 1
        period.logged_ms = now_ms
        level = period.first_level if event is _Event.BEGAN else logging.INFO
        line = _Line.of(event, period, now_ms)
        log.log(level, "%s", line.message(), extra=line.fields())


class _Line(NamedTuple):
    """A line about a period, in words and as fields. Rates and the limit are in the unit of the limit.

    Each broker throttles a client by itself. ``throttle_time_ms`` is the time at the broker at which the client waited
    longest, or would have waited longest if the limit is only observed. ``requests`` is the sum of all brokers.
    ``waits_for`` is None if nobody waits: the period has ended, or the limit is only observed.
    ``mean_rate`` is the highest mean rate at one broker in the whole period, or None if the period is shorter than the
    time over which ``rate`` is measured.
    """

    event: _Event
    hosts: tuple[str, ...]
    waits_for: BlockedBy | None
    over: _OverLimit
    rate: float
    mean_rate: float | None
    is_enforced: bool
    duration_ms: int
    requests: int
    throttle_time_ms: int

    @classmethod
    def of(cls, event: _Event, period: _Period, now_ms: int) -> "_Line":
        """Return the line about what happened to a client until now."""
        totals = period.totals()
        counts = [(one.throttled_requests, one.throttle_time_ms) for one in totals]
        is_enforced = any(requests for requests, _ in counts)
        if not is_enforced:
            counts = [(one.observed_throttled_requests, one.observed_throttle_time_ms) for one in totals]
        over = period.worst
        duration_ms = (period.until_ms if event is _Event.ENDED else max(now_ms, period.until_ms)) - period.began_ms
        amount = max(one.amount for one in totals) / over.bucket.kind.per_unit
        return cls(
            event,
            tuple(period.hosts),
            None if event is _Event.ENDED else period.waits_for,
            over,
            over.rate(now_ms),
            amount * 1_000 / duration_ms if duration_ms >= _windows_ms(over.bucket) else None,
            is_enforced,
            duration_ms,
            sum(requests for requests, _ in counts),
            max(time_ms for _, time_ms in counts),
        )

    def fields(self) -> dict[str, object]:
        """Return the fields of the line's JSON form."""
        rule, bucket = self.over.rule, self.over.bucket
        fields: dict[str, object] = {
            "event": self.event.value,
            "kind": bucket.kind.label,
            "user": bucket.tags.user,
            "client_id": bucket.tags.client_id,
            "addresses": list(self.hosts),
            "waits_for": None if self.waits_for is None else self.waits_for.value,
            "rate": round(self.rate, 3),
            "limit": self.over.limit,
            "rule": {"user": None, "client-id": None, **rule_entity(rule), "source": rule.source},
            "rule_level": self.over.level.number,
            "enforced": self.is_enforced,
        }
        if self.event is not _Event.BEGAN:
            fields |= {
                "mean_rate": None if self.mean_rate is None else round(self.mean_rate, 3),
                "throttled_requests": self.requests,
                "throttle_time_ms": self.throttle_time_ms,
                "duration_ms": self.duration_ms,
            }
        return fields

    def message(self) -> str:
        """Return the line in the words of the command ``explain``."""
        bucket = self.over.bucket
        names = (("user", bucket.tags.user), ("client-id", bucket.tags.client_id))
        name = " ".join(f"{key}={name!r}" for key, name in names if name)
        key = bucket.kind.key
        rule = rule_words(self.over.rule)
        parts = [f"{_HEADINGS[self.event][not self.is_enforced]}: {name}{self._addresses()}"]
        if self.waits_for is not None:
            parts.append(f"waits for {self.waits_for.value}")
        if self.event is not _Event.BEGAN:
            time, duration = f"{self.throttle_time_ms / 1_000:,.1f} s", f"{self.duration_ms / 1_000:,.1f} s"
            parts.append(
                f"throttled for {time} of {duration}, {self.requests} requests"
                if self.is_enforced
                else f"{self.requests} requests in {duration} would have been throttled for {time}"
            )
            if self.mean_rate is not None:
                parts.append(f"mean {rate_words(key, self.mean_rate, limit=self.over.limit)}")
        parts.append(f"{key}: {self._reason()}")
        parts.append(f"rule {rule if rule.isprintable() else repr(rule)}, level {level_words(self.over.level)}")
        return "; ".join(parts)

    def _reason(self) -> str:
        """Return why the client is throttled."""
        bucket = self.over.bucket
        key, limit = bucket.kind.key, limit_words(bucket.kind.key, self.over.limit)
        rate = rate_words(key, self.rate, limit=self.over.limit)
        rate = f"{rate} in the last {_windows_ms(bucket) / 1_000:g} s"
        if bucket.shaping is not Shaping.PACED or self.event is _Event.ENDED:
            return f"{rate}, limit {limit}"
        # A token bucket looks at each moment, so this rate may be far below the limit and does not explain the wait.
        wait = f"{self.throttle_time_ms / 1_000:,.1f} s"
        waits = (
            "" if self.event is not _Event.BEGAN else f", and {'waits' if self.is_enforced else 'would wait'} {wait}"
        )
        return f"used more than was left of its limit {limit}{waits}; {rate}"

    def _addresses(self) -> str:
        if not self.hosts:
            return ""
        more = len(self.hosts) - 1
        at_least = "at least " if len(self.hosts) == MAX_HOSTS else ""
        return f" from {self.hosts[0]}" + (f" and {at_least}{more} more" if more else "")


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
