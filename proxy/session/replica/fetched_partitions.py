"""Sorts the partitions that a follower fetches by whether they may wait for room in a quota.

In a session with the proxy (KIP-227), the follower's fetches name only the partitions that have changed, and the
proxy's responses contain only those that the leader was asked for. So a fetch takes no longer if thousands of
partitions wait. The leader does not know of this session: it gets full fetches, without the partitions that wait.

Source: ``FetchSession``, ``FetchSessionHandler`` in Apache Kafka.
"""

from typing import Final

from kafka_quota_proxy.protocol.replica_fetch.request import ReplicaFetch, RequestPartition
from kafka_quota_proxy.proxy.replication.throttle import Charge, Limits
from kafka_quota_proxy.proxy.session.replica.partition_state import Key, PartitionState

_LAST_EPOCH: Final = 2**31 - 1
# How long the state of a partition is kept that is not fetched. A follower of Kafka does not fetch throttled partitions
# for up to ten seconds if its own throttle is exceeded.
_REMEMBERED_MS: Final = 30_000


class FetchedPartitions:
    """Holds the partitions of one full fetch, or of all fetches of a session, each as it was fetched last.

    Args:
        session_id: The id of a session that may begin with this fetch, or 0 if the follower wants no session.

    Attributes:
        partitions: All partitions. Those that changed last are at the end, as at a leader.
        charges: The quotas that are charged for the records of each throttled partition.
        passing: The partitions that are in sync or not throttled.
        unknown: The throttled partitions with an unknown state.
        lagging: The states of throttled partitions that lag, by the quotas that are charged.
        next_epoch: The epoch of the next fetch in the session, or 0 if there is no session.
    """

    __slots__ = (
        "_forgotten",
        "_limits",
        "_session_id",
        "_unsorted",
        "charges",
        "lagging",
        "next_epoch",
        "partitions",
        "passing",
        "unknown",
    )

    def __init__(self, session_id: int = 0) -> None:
        self._session_id = session_id
        self.partitions: dict[Key, RequestPartition] = {}
        self.charges: dict[Key, tuple[Charge, ...]] = {}
        self.passing: dict[Key, None] = {}
        self.unknown: dict[Key, None] = {}
        self.lagging: dict[tuple[Charge, ...], dict[Key, PartitionState]] = {}
        self.next_epoch = 0
        self._limits: Limits | None = None
        self._unsorted: dict[Key, None] = {}
        self._forgotten: dict[Key, int] = {}  # when each partition left the session, the earliest first

    def update(self, fetch: ReplicaFetch, *, now_ms: int) -> None:
        """Add, change and remove the partitions that a fetch names. To do so twice changes nothing more."""
        for key in fetch.forgotten:
            if self.partitions.pop(key, None) is not None:
                self._unsorted[key] = None
                self._forgotten[key] = now_ms
        for one in fetch.partitions:
            # If a fetch contains a partition twice, the last entry counts, as at a leader.
            key = (one.topic, one.partition)
            self.partitions.pop(key, None)
            self._forgotten.pop(key, None)
            self.partitions[key] = one
            self._unsorted[key] = None

    def is_continued_by(self, fetch: ReplicaFetch) -> bool:
        """Return whether an incremental fetch is the next one of this session."""
        return (fetch.session_id, fetch.session_epoch) == (self._session_id, self.next_epoch)

    def end_fetch(self, *, has_lagging: bool) -> int:
        """Return the id of the session for the response to a fetch, or 0 if there is no session.

        A session begins with the first fetch if anything lags.
        """
        if self.next_epoch:
            self.next_epoch = self.next_epoch % _LAST_EPOCH + 1
        elif has_lagging and self._session_id:
            self.next_epoch = 1
            self._unsorted = dict.fromkeys(self.partitions)
        return self._session_id if self.next_epoch else 0

    def answered(self, key: Key) -> None:
        """Note that the state of a partition has changed, because a response contained the partition."""
        self._unsorted[key] = None

    def sort(self, states: dict[Key, PartitionState], limits: Limits, *, is_id: bool, now_ms: int) -> None:
        """Sort all partitions that have changed, and remove the states of those that are not throttled or fetched.

        The states of partitions that have left the session are kept for a while.
        """
        if limits is not self._limits:
            self._limits = limits
            self._unsorted = dict.fromkeys(self.partitions)
            for sorted_ones in (self.charges, self.passing, self.unknown, self.lagging):
                sorted_ones.clear()
            limits.find(self.partitions, self.charges, is_id=is_id)
            for key in states.keys() - self.charges.keys():
                del states[key]
        else:
            limits.find([key for key in self._unsorted if key in self.partitions], self.charges, is_id=is_id)
        for key in self._unsorted:
            self._sort_one(key, states)
        self._unsorted.clear()
        while self._forgotten and now_ms - self._forgotten[key := next(iter(self._forgotten))] > _REMEMBERED_MS:
            del self._forgotten[key]
            states.pop(key, None)

    def _sort_one(self, key: Key, states: dict[Key, PartitionState]) -> None:
        charges = self.charges.get(key, ())
        self.passing.pop(key, None)
        self.unknown.pop(key, None)
        group = self.lagging.get(charges)
        if group is not None and group.pop(key, None) is not None and not group:
            del self.lagging[charges]
        one, state = self.partitions.get(key), states.get(key)
        if one is None:
            self.charges.pop(key, None)
        elif not charges:
            self.passing[key] = None
        elif state is None or state.leader_epoch != one.leader_epoch:
            self.unknown[key] = None
        else:
            state.fetch_offset = one.fetch_offset
            if one.fetch_offset < state.high_watermark:
                self.lagging.setdefault(charges, {})[key] = state
            else:
                self.passing[key] = None
