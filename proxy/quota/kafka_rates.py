"""Rates under the tags that Kafka would use, where a bucket has other tags.

An unlimited client has a bucket of its own here, which keeps the traffic of clients apart. Kafka names buckets after
the kinds of rules that exist, whether they limit the client or not, and counts the usage under these tags when a limit
comes.
"""

from collections.abc import Callable
from weakref import WeakValueDictionary

from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.entity import Tags
from kafka_quota_proxy.proxy.quota.rate import Rate


class KafkaRates:
    """The rates of one kind of quota by Kafka's tags. Buckets keep them alive."""

    def __init__(self, find_bucket: Callable[[Tags], Bucket | None], new_rate: Callable[[], Rate]) -> None:
        self._find_bucket = find_bucket
        self._new_rate = new_rate
        self._rates: WeakValueDictionary[Tags, Rate] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._rates)

    def assign(self, bucket: Bucket, tags: Tags | None) -> None:
        """Record what is charged to ``bucket`` under the ``tags`` that Kafka gives it; None: Kafka records nothing.

        Kafka keeps the samples of tags that are charged no more. So does the bucket, while it exists.
        """
        has_kafka_tags = tags == bucket.tags
        if has_kafka_tags != bucket.has_kafka_tags:
            if has_kafka_tags:
                is_new = bucket.generation < 0
                bucket.rate = self._rates.get(bucket.tags) or (bucket.rate if is_new else self._new_rate())
            else:
                self._rates[bucket.tags] = bucket.rate
                bucket.keep_rate(bucket.rate)
                bucket.rate = self._new_rate()
            bucket.has_kafka_tags = has_kafka_tags
        bucket.kafka_rate = None if has_kafka_tags or tags is None else self._rate(tags)
        if bucket.kafka_rate is not None:
            bucket.keep_rate(bucket.kafka_rate)

    def absorb(self, other: "KafkaRates", *, now_ms: int) -> None:
        """Add the rates of ``other``, which are of the same broker."""
        for tags, rate in other._rates.items():  # noqa: SLF001 - same class
            bucket = self._find_bucket(tags)
            own = bucket.rate if bucket is not None and bucket.has_kafka_tags else self._rates.setdefault(tags, rate)
            if own is not rate:
                own.absorb(rate, now_ms=now_ms)

    def adopt(self, bucket: Bucket, *, now_ms: int) -> None:
        """Merge the rate of a bucket that comes from another broker's table with the rate of its tags here."""
        own = self._rates.get(bucket.tags) if bucket.has_kafka_tags else None
        if own is not None:
            own.absorb(bucket.rate, now_ms=now_ms)
            bucket.rate = own

    def _rate(self, tags: Tags) -> Rate:
        rate = self._rates.get(tags)
        if rate is None:
            bucket = self._find_bucket(tags)
            rate = bucket.rate if bucket is not None and bucket.has_kafka_tags else self._new_rate()
            self._rates[tags] = rate
        return rate
