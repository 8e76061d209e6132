"""A follower's fetch session in which no partition lags: fetches and responses pass as they come, and are counted.

Source: KIP-227, ``FetchSession`` in Apache Kafka.
"""

from collections.abc import Iterable

from kafka_quota_proxy.protocol.replica_fetch.request import ReplicaFetch
from kafka_quota_proxy.protocol.replica_fetch.response import ResponsePartition
from kafka_quota_proxy.proxy.replication.throttle import Charge, Limits
from kafka_quota_proxy.proxy.session.replica.partition_state import Key
from kafka_quota_proxy.proxy.session.replica.response_trimming import Trimming


class FetchSession:
    """The offset and the quotas of each partition of the session.

    It has the partitions of its full fetch and no others: ``knows`` is called first. Partitions that the follower drops
    stay here.
    """

    __slots__ = ("_charges", "_limits", "_offsets")

    def __init__(self) -> None:
        self._offsets: dict[Key, int] = {}
        self._charges: dict[Key, tuple[Charge, ...]] = {}
        self._limits: Limits | None = None

    @property
    def is_throttled(self) -> bool:
        """Whether any of its partitions is throttled."""
        return bool(self._charges)

    def knows(self, fetch: ReplicaFetch) -> bool:
        """Return whether a fetch adds no partition: a new one may lag by everything it has."""
        return all((one.topic, one.partition) in self._offsets for one in fetch.partitions)

    def update(self, fetch: ReplicaFetch, limits: Limits, *, is_id: bool) -> None:
        """Note a fetch: a full one names all partitions, an incremental one those that differ."""
        if fetch.session_epoch <= 0:
            self._offsets.clear()
            self._charges.clear()
        fetched = {(one.topic, one.partition): one.fetch_offset for one in fetch.partitions}
        self._offsets.update(fetched)
        if limits is not self._limits:
            self._limits = limits
            self._charges.clear()
            fetched = self._offsets
        limits.find(fetched, self._charges, is_id=is_id)

    def count(self, partitions: Iterable[ResponsePartition], trimming: Trimming) -> None:
        """Count the records of a response."""
        for one in partitions:
            key = (one.topic, one.partition)
            charges = self._charges.get(key)
            if charges and not one.error_code:
                trimming.count(one, self._offsets[key], charges)
