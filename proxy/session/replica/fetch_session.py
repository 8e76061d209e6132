"""Charges the records that a follower fetches in a fetch session (KIP-227) with its leader.

A session lasts while no partition lags, that is, while each partition's fetch offset is not below the high watermark.
Fetches and responses are then forwarded unchanged, and only their bytes are counted. When a partition lags,
``follower_fetch`` ends the session.

Source: KIP-227, ``FetchSession`` in Apache Kafka.
"""

from collections.abc import Iterable

from kafka_quota_proxy.protocol.replica_fetch.request import ReplicaFetch
from kafka_quota_proxy.protocol.replica_fetch.response import ResponsePartition
from kafka_quota_proxy.proxy.replication.throttle import Charge, Limits
from kafka_quota_proxy.proxy.session.replica.partition_state import Key
from kafka_quota_proxy.proxy.session.replica.response_trimming import Trimming


class FetchSession:
    """Holds the last fetch offset of each partition in a follower's fetch session (KIP-227).

    It also holds the replication quotas to which the records of each partition are charged.
    """

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
        """Remember the partitions and offsets of a follower's fetch, and find the quotas to charge for their records.

        A full fetch replaces the partitions of the session, and an incremental fetch (KIP-227) adds to them.

        Args:
            fetch: The fetch.
            limits: The limits on replication that apply to the follower.
            is_id: Whether the fetch identifies topics by id.
        """
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
        """Count the records of the partitions in a response that is forwarded unchanged.

        The counts are added to ``trimming``, which later charges them to the quotas.
        """
        for one in partitions:
            key = (one.topic, one.partition)
            charges = self._charges.get(key)
            if charges and not one.error_code:
                trimming.count(one, self._offsets[key], charges)
