"""Finds the active buckets of all brokers, and the connections whose requests are charged to them.

This code runs in a thread while the event loop serves clients. It reads without locks, copies a container with a single
call before it iterates over it, and pauses after every few objects.
"""

from collections.abc import Collection, Iterator, Mapping
from time import sleep
from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import QuotaRule
from kafka_quota_proxy.config.quota_kinds import BUCKET_KINDS, QuotaKind
from kafka_quota_proxy.proxy.admin.metrics.exposition import Rest, paced
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.client_quota_manager import ClientQuotaManager
from kafka_quota_proxy.proxy.quota.entity import Level
from kafka_quota_proxy.proxy.quota.throttle_history import MINUTE_MS
from kafka_quota_proxy.proxy.server.clients.connection import ClientConnection
from kafka_quota_proxy.proxy.server.server import Server

# Objects between two pauses. The thread computes for 1 ms then. The event loop waits for the interpreter no longer than
# the switch interval of 0.5 ms, so more pauses would make an answer slower, and no client faster.
_BUCKETS: Final = 200
_CONNECTIONS: Final = 800
# A pause takes 0.06 ms, because the system wakes a thread no sooner. This is long enough for the event loop's thread to
# take the interpreter. The metrics, which nobody waits for, pause for longer.
_PAUSE_S: Final = 0.000_001

Connections = Mapping[Bucket, list[ClientConnection]]


def pause() -> None:
    """Pause this thread for a moment, so that the event loop's thread can run."""
    sleep(_PAUSE_S)


class ActiveBucket(NamedTuple):
    """A bucket that has an open connection, or was charged or throttled within the last minute."""

    bucket: Bucket
    broker: int | None  # the node id, or None while unknown
    rule: QuotaRule | None
    level: Level | None
    limit: float | None
    rate: float  # in the unit of the limit
    is_throttled: bool
    throttle_ms: int  # the throttle time of the last minute

    @property
    def utilisation(self) -> float | None:
        """The rate divided by the limit, or None without a limit."""
        return self.rate / self.limit if self.limit else None


def active_buckets(
    server: Server, *, now_ms: int, kind: QuotaKind | None = None, rest: Rest = pause
) -> Iterator[ActiveBucket]:
    """Yield the active buckets of all brokers, of one kind of quota or of every kind."""
    for broker in list(server.brokers.metered()):
        for of_kind in BUCKET_KINDS if kind is None else (kind,):
            manager = broker.quotas.manager(of_kind)
            for bucket in paced(manager, rest, every=_BUCKETS):
                if bucket.usage.requests and (bucket.holders or now_ms - _last_ms(bucket) < MINUTE_MS):
                    yield _active(bucket, manager, broker.node_id, now_ms)


def connections_of(server: Server, buckets: Collection[Bucket], *, rest: Rest = pause) -> Connections:
    """Return the connections whose requests are charged to each of ``buckets``, as far as there are any."""
    found: dict[Bucket, list[ClientConnection]] = {}
    for listener in list(server.listeners):
        for connection in paced(list(listener.connections), rest, every=_CONNECTIONS):
            for bucket in connection.state.account.buckets:
                if bucket in buckets:
                    found.setdefault(bucket, []).append(connection)
    return found


def _last_ms(bucket: Bucket) -> int:
    history = bucket.usage.throttling.history
    return bucket.usage.last_record_ms if history is None else max(bucket.usage.last_record_ms, history.until_ms)


def _active(bucket: Bucket, manager: ClientQuotaManager, broker: int | None, now_ms: int) -> ActiveBucket:
    kind, history = bucket.kind, bucket.usage.throttling.history
    rule, level, limit = bucket.rule, bucket.level, bucket.limit / kind.per_unit if bucket.is_limited else None
    if bucket.generation != manager.generation:  # rules have changed since the last request
        _, rule, level, limit = manager.table.resolve_tags(bucket.tags)
    return ActiveBucket(
        bucket,
        broker,
        rule,
        level,
        limit,
        bucket.rate.peek(now_ms=now_ms) / kind.per_unit,
        history is not None and history.is_throttled(now_ms=now_ms),
        0 if history is None else history.last_minute_ms(now_ms=now_ms),
    )
