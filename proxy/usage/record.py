"""Data classes for the records of the usage log, and their encoding as JSON.

A record tells how much one bucket was used in one interval. A bucket counts the usage of one user, one client-id, or
both together, for one kind of quota. ``docs/reference/usage-log.md`` documents the format.
"""

from collections.abc import Iterator
from json import JSONEncoder
from typing import Final, NamedTuple

OTHER: Final = "<other>"

_encode: Final = JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class UsageKey(NamedTuple):
    """Identifies the bucket that a record describes, by its broker, kind of quota, user and client-id.

    A node id is that of one broker in a cluster, and another cluster has the same ids.
    """

    broker: int | None  # the node id, or None while it is unknown
    kind: str
    user: str
    client_id: str
    listener: str | None = None  # only in records about new connections
    cluster: str | None = None  # the id of the broker's cluster, or None while it is unknown


class UsageCounts(NamedTuple):
    """Holds how much a bucket was used in one interval, and the quota rule that applied to the bucket.

    ``amount`` is the total charge. Its unit depends on the kind of quota: bytes (produce, fetch, replication), per cent
    of a thread times milliseconds (request), requests, partitions or connections. It is negative if more was refunded
    than charged.
    """

    amount: int
    requests: int
    throttled_requests: int
    throttle_time_ms: int
    is_enforced: bool
    limit: float | None = None  # per second; None without a quota
    rule_user: str | None = None
    rule_client_id: str | None = None
    connections: int | None = None  # how many connections share the bucket; None if unknown

    def plus(self, later: "UsageCounts") -> "UsageCounts":
        """Return the sum of these counts and those of a later interval, with the limit and the rule of ``later``."""
        counts = [one.connections for one in (self, later) if one.connections is not None]
        return later._replace(
            connections=sum(counts) if counts else None,
            amount=self.amount + later.amount,
            requests=self.requests + later.requests,
            throttled_requests=self.throttled_requests + later.throttled_requests,
            throttle_time_ms=self.throttle_time_ms + later.throttle_time_ms,
            is_enforced=later.is_enforced or (self.is_enforced and self.throttled_requests > 0),
        )


class Batch(NamedTuple):
    """Holds records of one interval. The records of an interval may be divided among several batches."""

    proxy: str
    start_ms: int  # Unix time
    interval_ms: int  # the measured length of the interval
    records: tuple[tuple[UsageKey, UsageCounts], ...]

    def lines(self) -> Iterator[bytes]:
        """Yield each usage record in this batch as one line of JSON in ASCII, without the line end."""
        head = _encode({"start_ms": self.start_ms, "interval_ms": self.interval_ms, "proxy": self.proxy})[:-1] + ","
        for identity, usage in self.records:
            yield (head + _encode(_fields(identity, usage))[1:]).encode("ascii")

    def keys(self) -> Iterator[bytes]:
        """Yield the key, as JSON, with which each record is sent to a Kafka topic. The order is that of ``lines``."""
        for identity, _ in self.records:
            yield _encode({"proxy": self.proxy, **_names(identity)}).encode("ascii")


def _names(identity: UsageKey) -> dict[str, object]:
    names = identity._asdict()
    for name in ("listener", "cluster"):
        if names[name] is None:
            del names[name]
    return names


def _fields(identity: UsageKey, usage: UsageCounts) -> dict[str, object]:
    return {
        **_names(identity),
        "rule_user": usage.rule_user,
        "rule_client_id": usage.rule_client_id,
        "limit": usage.limit,
        "amount": usage.amount,
        "requests": usage.requests,
        "throttled_requests": usage.throttled_requests,
        "throttle_time_ms": usage.throttle_time_ms,
        "enforced": usage.is_enforced,
        "connections": usage.connections,
    }


# The two clocks may differ by this much, because they are read one after the other and rounded, and NTP slews one.
_JITTER_MS: Final = 20


class Span(NamedTuple):
    """Holds the start and the length of one interval of the usage log."""

    start_ms: int  # Unix time
    interval_ms: int  # at least 1


class Timeline:
    """Divides time into the consecutive intervals of the usage log.

    In all methods, ``wall_ms`` is the current Unix time, and ``now_ms`` the current time of a monotonic clock.
    """

    def __init__(self, *, wall_ms: int, now_ms: int) -> None:
        self._end_ms = wall_ms  # the end of the last interval
        self._least_ms = 0  # the earliest start of the next interval
        self._now_ms = now_ms

    def start_after(self, start_ms: int) -> None:
        """Make all further intervals start after ``start_ms``, the start of the last interval in the log."""
        self._least_ms = max(self._least_ms, start_ms + 1)

    def roll(self, *, wall_ms: int, now_ms: int) -> Span:
        """End the current interval, begin the next, and return the interval that has ended."""
        interval_ms = max(now_ms - self._now_ms, 1)
        by_wall_ms = wall_ms - self._end_ms
        if abs(by_wall_ms - interval_ms) <= _JITTER_MS and by_wall_ms > 0:
            start_ms, interval_ms = self._end_ms, by_wall_ms
        else:
            start_ms = wall_ms - interval_ms
        start_ms = max(start_ms, self._least_ms)
        self._end_ms = start_ms + interval_ms
        self._least_ms = start_ms + max(interval_ms // 2, 1)
        self._now_ms = now_ms
        return Span(start_ms, interval_ms)
