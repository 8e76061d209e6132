"""Keeps the buckets that clients share while the table of buckets is full.

New clients then share one bucket for each rule, and one more bucket if they have no limit. When the table is found
full, it is closed to new clients for a second, even if a bucket is removed from it. Otherwise, some connections of a
client could charge a shared bucket, and others a bucket of the client's own. When the table opens again, all
connections look up their buckets again.
"""

from collections.abc import Callable, Iterator
from typing import Final

from kafka_quota_proxy.config.model import QuotaRule
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.entity import Entity, Level, Tags

SHARED: Final = "<shared>"
# How long the table stays closed. When it opens, each connection with a shared bucket must look up its bucket.
_CLOSED_MS: Final = 1_000


class SharedBuckets:
    """The buckets that clients share while the bucket table of one kind of quota is full and closed to new clients.

    Attributes:
        lookups: How many look-ups returned a shared bucket.
        reopened: How often the table was opened again.
    """

    def __init__(self, new_bucket: Callable[[Tags, int], Bucket]) -> None:
        self.lookups = 0
        self.reopened = 0
        self._new_bucket = new_bucket
        self._by_rule: dict[Entity | None, Bucket] = {}  # the key of clients without a limit is None
        self._closed_until_ms: int | None = None  # None while the table is open

    def __len__(self) -> int:
        return len(self._by_rule)

    def __iter__(self) -> Iterator[Bucket]:
        return iter(list(self._by_rule.values()))  # copied in one step, because metrics are read in another thread

    @property
    def is_closed(self) -> bool:
        """Whether new clients must share buckets, because the table of buckets was found full."""
        return self._closed_until_ms is not None

    def may_open(self, *, now_ms: int) -> bool:
        """Return whether the table is open, or was closed for long enough to be opened again."""
        return self._closed_until_ms is None or now_ms >= self._closed_until_ms

    def close(self, *, now_ms: int) -> None:
        """Make new clients share buckets for a second, because the table of buckets is full."""
        self._closed_until_ms = now_ms + _CLOSED_MS

    def open(self) -> None:
        """Let new clients get buckets of their own again, because the table of buckets is no longer full."""
        if self._closed_until_ms is not None:
            self._closed_until_ms = None
            self.reopened += 1

    def bucket(self, tags: Tags, rule: QuotaRule | None, level: Level | None, *, now_ms: int) -> Bucket:
        """Return the bucket that clients share under ``rule``, or without a limit if ``rule`` is None.

        ``tags`` are those of one of these clients, and ``level`` is the level of ``rule``.
        """
        self.lookups += 1
        entity = (rule.user, rule.client_id) if rule else None
        bucket = self._by_rule.get(entity)
        if bucket is None:
            shared_tags = Tags(SHARED, SHARED)
            if level is not None:
                # For example, the rule {user: alice, client-id: <default>} has the bucket (alice, <shared>).
                user = tags.user if level.user else SHARED
                client_id = tags.client_id if level.client_id else SHARED
                shared_tags = Tags(*level.tags(user, client_id))
            bucket = self._by_rule[entity] = self._new_bucket(shared_tags, now_ms)
        return bucket

    def expire(self, silent_ms: int, *, now_ms: int) -> list[Bucket]:
        """Remove and return the buckets that have no holders and were not charged for longer than ``silent_ms``."""
        expired = [
            (entity, bucket)
            for entity, bucket in self._by_rule.items()
            if now_ms - bucket.usage.last_record_ms > silent_ms and not bucket.holders
        ]
        for entity, _ in expired:
            del self._by_rule[entity]
        return [bucket for _, bucket in expired]
