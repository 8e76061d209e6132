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


class KeptRate:
    """Keeps a rate known by its tags for as long as a bucket refers to this object.

    A compiled ``Rate`` cannot be the target of a weak reference, so this module is not compiled.
    """

    __slots__ = ("__weakref__", "rate")

    def __init__(self, rate: Rate) -> None:
        self.rate = rate


class KafkaRates:
    """The rates of one kind of quota, by the tags that Kafka would use.

    A rate exists only while a bucket refers to it.
    """

    def __init__(self, find_bucket: Callable[[Tags], Bucket | None], new_rate: Callable[[], Rate]) -> None:
        self._find_bucket = find_bucket
        self._new_rate = new_rate
        self._rates: WeakValueDictionary[Tags, KeptRate] = WeakValueDictionary()

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
                if (own := self._rates.get(bucket.tags)) is not None:
                    bucket.rate = own.rate
                    _keep(bucket, own)
                elif bucket.generation >= 0:
                    bucket.rate = self._new_rate()
            else:
                own = self._rates.get(bucket.tags)
                if own is None or own.rate is not bucket.rate:
                    self._rates[bucket.tags] = own = KeptRate(bucket.rate)
                _keep(bucket, own)
                bucket.rate = self._new_rate()
            bucket.has_kafka_tags = has_kafka_tags
        bucket.kafka_rate = bucket.kafka_tokens = None
        if not has_kafka_tags and tags is not None:
            kept = self._kept(tags)
            bucket.kafka_rate = kept.rate
            _keep(bucket, kept)
            limited = self._find_bucket(tags)
            bucket.kafka_tokens = None if limited is None else limited.token_bucket

    def _kept(self, tags: Tags) -> KeptRate:
        kept = self._rates.get(tags)
        if kept is None:
            bucket = self._find_bucket(tags)
            if bucket is not None and bucket.has_kafka_tags:
                kept = KeptRate(bucket.rate)
                _keep(bucket, kept)
            else:
                kept = KeptRate(self._new_rate())
            self._rates[tags] = kept
        return kept


def _keep(bucket: Bucket, kept: KeptRate) -> None:
    """Let the bucket refer to ``kept``, so that its rate is used again if a change of rules restores its tags."""
    if kept not in bucket.kept_rates:
        bucket.kept_rates = (*bucket.kept_rates, kept)
