"""Charges the records that a follower fetches in a fetch session with its leader, while no partition lags.

During such a session, fetches and responses are forwarded unchanged, and only their bytes are counted. When a partition
lags, ``follower_fetch`` ends the session.

Source: KIP-227, ``FetchSession`` in Apache Kafka.
"""

from collections.abc import Iterable

from kafka_quota_proxy.protocol.replica_fetch.request import ReplicaFetch
from kafka_quota_proxy.protocol.replica_fetch.response import ResponsePartition
from kafka_quota_proxy.proxy.replication.throttle import Charge, Limits
from kafka_quota_proxy.proxy.session.replica.partition_state import Key
from kafka_quota_proxy.proxy.session.replica.response_trimming import Trimming


class FetchSession:
    """Holds the last fetch offset of each partition in the session, and the quotas that its records are charged to."""

    __slots__ = ("_charges", "_limits", "_offsets")

    def __init__(self) -> None:
        self._offsets: dict[Key, int] = {}
        self._charges: dict[Key, tuple[Charge, ...]] = {}
        self._limits: Limits | None = None

    @property
    def is_throttled(self) -> bool:
        """Whether any replication quota is charged for the records of any partition in the session."""
        return bool(self._charges)

    def knows(self, fetch: ReplicaFetch) -> bool:
        """Return whether the session contains all partitions of a fetch."""
        return all((one.topic, one.partition) in self._offsets for one in fetch.partitions)

    def update(self, fetch: ReplicaFetch, limits: Limits, *, is_id: bool) -> None:
        """Note the partitions of a full or incremental fetch. ``is_id`` says whether it identifies topics by id."""
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
        """Count the records of the partitions in a response. ``trimming`` keeps the counts until it charges them."""
        for one in partitions:
            key = (one.topic, one.partition)
            charges = self._charges.get(key)
            if charges and not one.error_code:
                trimming.count(one, self._offsets[key], charges)
