"""Buckets that have left the table before the usage log has read all that they counted."""

from collections import deque
from typing import Final

from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.usage_totals import NO_USAGE

# About 10 MB for each broker and kind, while clients invent names faster than the usage log is written.
MAX_DEPARTED: Final = 10_000


class DepartedBuckets:
    """Keeps evicted and expired buckets until the usage log has read them.

    A connection may still hold such a bucket and charge it; then it is kept until it is released. Clients choose their
    names, so the number is bounded: ``other`` is the sum of the buckets above the bound.
    """

    def __init__(self, max_buckets: int = MAX_DEPARTED) -> None:
        self.buckets: deque[Bucket] = deque()
        self.other = NO_USAGE
        self._max_buckets = max_buckets

    def add(self, bucket: Bucket) -> None:
        """Keep a bucket that has just left the table."""
        unlogged = bucket.usage.minus(bucket.logged)
        if bucket.is_in_use or (unlogged != NO_USAGE and len(self.buckets) < self._max_buckets):
            self.buckets.append(bucket)
        else:
            self.other = self.other.plus(unlogged)
            bucket.logged = bucket.usage  # a reading that is under way may still have the bucket on its list

    def absorb(self, other: "DepartedBuckets") -> None:
        """Take over the buckets of ``other``."""
        self.buckets.extend(other.buckets)
        self.other = self.other.plus(other.other)
