"""A follower's fetch session in which nothing lags: its fetches and answers pass as they come, and are looked at.

Source: KIP-227, ``FetchSession`` in Apache Kafka.
"""

from collections.abc import Iterable

from kafka_quota_proxy.protocol.replica_fetch import ReplicaFetch, ResponsePartition
from kafka_quota_proxy.proxy.replication.throttle import Charge, Limits
from kafka_quota_proxy.proxy.session.replica.response_trimming import Trimming
from kafka_quota_proxy.proxy.session.replica.seen import Key


class FetchSession:
    """Where each partition of the session is, and what it is charged to.

    It has those of its full fetch and no others, for ``knows`` is asked first; what a follower forgets of them stays.
    """

    __slots__ = ("_charges", "_limits", "_offsets")

    def __init__(self) -> None:
        self._offsets: dict[Key, int] = {}
        self._charges: dict[Key, tuple[Charge, ...]] = {}
        self._limits: Limits | None = None

    @property
    def is_throttled(self) -> bool:
        """Whether any of its partitions is."""
        return bool(self._charges)

    def knows(self, fetch: ReplicaFetch) -> bool:
        """Whether a fetch adds no partition: a new one may lag by all that it has."""
        return all((one.topic, one.partition) in self._offsets for one in fetch.partitions)

    def ask(self, fetch: ReplicaFetch, limits: Limits, *, is_id: bool) -> None:
        """Take up a fetch: a full one says it all, an incremental one what is different."""
        if fetch.session_epoch <= 0:
            self._offsets.clear()
            self._charges.clear()
        asked = {(one.topic, one.partition): one.fetch_offset for one in fetch.partitions}
        self._offsets.update(asked)
        if limits is not self._limits:
            self._limits = limits
            self._charges.clear()
            asked = self._offsets
        limits.find(asked, self._charges, is_id=is_id)

    def look_at(self, partitions: Iterable[ResponsePartition], trimming: Trimming) -> None:
        """Count what an answer brings."""
        for one in partitions:
            key = (one.topic, one.partition)
            charges = self._charges.get(key)
            if charges and not one.error_code:
                trimming.look_at(one, self._offsets[key], charges)
