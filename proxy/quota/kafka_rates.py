"""Measures rates under the tags that Kafka would use, for buckets that have other tags in this proxy.

Tags are the user and client-id under which usage is recorded. In this proxy, each client without a limit has a bucket
of its own. In Kafka, several such clients may share tags. If they get a limit later, Kafka applies it to the usage that
was recorded under these tags.
"""

from collections.abc import Callable
from weakref import WeakValueDictionary

from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.entity import Tags
from kafka_quota_proxy.proxy.quota.rate import Rate


class KafkaRates:
    """The rates of one kind of quota, by the tags that Kafka would use.

    A rate exists only while a bucket refers to it.
    """

    def __init__(self, find_bucket: Callable[[Tags], Bucket | None], new_rate: Callable[[], Rate]) -> None:
        self._find_bucket = find_bucket
        self._new_rate = new_rate
        self._rates: WeakValueDictionary[Tags, Rate] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._rates)

    def assign(self, bucket: Bucket, tags: Tags | None) -> None:
        """Measure the charges of ``bucket`` under ``tags``, which are the tags that Kafka would use.

        If ``tags`` is None, Kafka would not measure this usage. The bucket keeps its earlier rates, because Kafka keeps
        the samples of tags that are no longer charged.
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
        """Add the rates of ``other``, which were measured at the same broker."""
        for tags, rate in other._rates.items():  # noqa: SLF001 - same class
            bucket = self._find_bucket(tags)
            own = bucket.rate if bucket is not None and bucket.has_kafka_tags else self._rates.setdefault(tags, rate)
            if own is not rate:
                own.absorb(rate, now_ms=now_ms)

    def adopt(self, bucket: Bucket, *, now_ms: int) -> None:
        """Prepare a bucket that moves here from another manager.

        If its tags have a rate here, the two rates are merged.
        """
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
