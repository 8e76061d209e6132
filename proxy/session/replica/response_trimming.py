"""The leader's answer to a follower's fetch: what of it may flow, and what that costs."""

from math import inf
from typing import Final

from kafka_quota_proxy.protocol import record_batches, replica_fetch
from kafka_quota_proxy.protocol.fetch import FIRST_MAX_BYTES, UNLIMITED_BYTES
from kafka_quota_proxy.protocol.replica_fetch import Entry, RequestPartition, ResponsePartition
from kafka_quota_proxy.proxy.quota.replication import ReplicationQuota
from kafka_quota_proxy.proxy.replication.throttle import Charge
from kafka_quota_proxy.proxy.session.replica.seen import Key, Seen

# A batch of less than that is not worth another fetch.
_LEAST_MORE_BYTES: Final = 1024
# What is asked for of a partition of which nothing is known yet: it may be in sync, and then must not wait.
FIRST_LOOK_BYTES: Final = 64 * 1024


class Asked:
    """A fetch that was passed on, until its answer is there."""

    __slots__ = ("api_version", "charges", "correlation_id", "granted", "is_of_session", "partitions")

    def __init__(
        self,
        correlation_id: int,
        api_version: int,
        partitions: dict[Key, RequestPartition],
        *,
        is_of_session: bool = False,
    ) -> None:
        self.correlation_id = correlation_id
        self.api_version = api_version
        self.partitions = partitions  # as they were asked for, left out or not
        self.charges: dict[Key, tuple[Charge, ...]] = {}  # of those that are throttled
        self.granted: dict[ReplicationQuota, int] = {}
        self.is_of_session = is_of_session  # which knows the partitions; its answer is looked at only


class Trimming:
    """One answer on its way through: what of it may flow, and what that costs."""

    def __init__(self, asked: Asked, seen: dict[Key, Seen], data: bytes, *, turn: int, now_ms: int) -> None:
        self.has_lagging = False
        self._asked = asked
        self._seen = seen
        self._data = data
        self._turn = turn
        self._view = memoryview(data)
        self._now_ms = now_ms
        self._brought: dict[ReplicationQuota, int] = {}  # of what lagged, records
        self._leaders: dict[ReplicationQuota, list[Entry]] = {}  # to be charged as the leader does it
        self._followers: dict[ReplicationQuota, int] = {}  # records, likewise as the follower does it

    def entry(self, key: Key, request: RequestPartition, one: ResponsePartition) -> Entry:
        """Return the entry of a partition as the follower gets it."""
        charges = self._asked.charges.get(key, ())
        if one.error_code or not charges:
            self._seen.pop(key, None)
            return self.whole(one)
        seen = self._seen.get(key)
        if seen is None:
            seen = self._seen[key] = Seen(one, request.leader_epoch, self._now_ms)
            seen.asked_bytes = FIRST_LOOK_BYTES
            seen.arrive_at(request.fetch_offset)
        else:
            seen.see(one, request.leader_epoch, self._now_ms)
        is_lagging = request.fetch_offset < one.high_watermark
        self.has_lagging |= is_lagging
        if one.records == one.records_end:
            if is_lagging:  # not a batch fitted in, perhaps: the leader lets only the first go over its share
                seen.least_bytes = min(max(2 * seen.asked_bytes, _LEAST_MORE_BYTES), UNLIMITED_BYTES)
            return self.whole(one)
        end = self._end(one, charges) if is_lagging else one.records_end
        entry = Entry(one.topic, replica_fetch.truncate_partition(self._data, one, end, self._asked.api_version))
        size_bytes = end - one.records
        if size_bytes:
            seen.brought_bytes = size_bytes
            self._count(entry, size_bytes, charges, is_lagging=is_lagging)
        if is_lagging and size_bytes:
            seen.least_bytes = record_batches.first_batch_size(self._data, one.records, one.records_end)
            seen.turn = self._turn
        return entry

    def left_out(self, key: Key) -> Entry:
        """Return the entry of a partition that was not asked for."""
        self.has_lagging = True
        return empty_entry(key, self._seen[key], self._asked.api_version)

    def look_at(self, one: ResponsePartition, fetch_offset: int, charges: tuple[Charge, ...]) -> None:
        """Count an entry that passes as it came."""
        is_lagging = fetch_offset < one.high_watermark
        self.has_lagging |= is_lagging
        if one.records < one.records_end:
            self._count(self.whole(one), one.records_end - one.records, charges, is_lagging=is_lagging)

    def whole(self, one: ResponsePartition) -> Entry:
        """Return an entry as it came."""
        return Entry(one.topic, (self._view[one.begin : one.end],))

    def charge(self) -> None:
        """Charge what flows."""
        for quota, entries in self._leaders.items():
            quota.record(replica_fetch.charged_bytes(entries, self._asked.api_version), now_ms=self._now_ms)
        for quota, size_bytes in self._followers.items():
            quota.record(size_bytes, now_ms=self._now_ms)
        settle(self._asked.granted, self._brought)

    def _end(self, one: ResponsePartition, charges: tuple[Charge, ...]) -> int:
        """Return where the records end that may flow of what lags: behind a whole batch, if there is one."""
        room = min(self._room(charge.quota) for charge in charges)
        if room <= 0:
            return one.records
        if self._asked.api_version < FIRST_MAX_BYTES:
            return one.records_end  # a batch that is cut short tells the follower to ask for more
        end = one.records_end if room >= one.records_end - one.records else one.records + int(room)
        # Whoever is let through at all gets a batch, as from the leader.
        first_end = one.records + record_batches.first_batch_size(self._data, one.records, one.records_end)
        whole = record_batches.end_of_whole_batches(self._data, one.records, max(end, min(first_end, one.records_end)))
        # Where not even the first is whole, as from no leader of Kafka's: blanked it would be asked for again at once.
        return whole if whole > one.records else one.records_end

    def _room(self, quota: ReplicationQuota) -> float:
        """Return how much may still come. A fetch that was granted something is not counted byte by byte again."""
        brought = self._brought.get(quota, 0)
        if brought < self._asked.granted.get(quota, 0):
            return inf
        return quota.room(now_ms=self._now_ms) - brought

    def _count(self, entry: Entry, size_bytes: int, charges: tuple[Charge, ...], *, is_lagging: bool) -> None:
        for charge in charges:
            quota = charge.quota
            if is_lagging:
                self._brought[quota] = self._brought.get(quota, 0) + size_bytes
            if is_lagging or charge.counts_all:
                if charge.is_leaders:
                    self._leaders.setdefault(quota, []).append(entry)
                else:
                    self._followers[quota] = self._followers.get(quota, 0) + size_bytes


def settle(granted: dict[ReplicationQuota, int], brought: dict[ReplicationQuota, int]) -> None:
    """Give back what was set aside for an answer, and pay for what came."""
    for quota in granted.keys() | brought.keys():
        quota.settle(granted.get(quota, 0), brought.get(quota, 0))


def empty_entry(key: Key, seen: Seen, api_version: int) -> Entry:
    """Return the entry of a partition without records, which says what its follower was told last."""
    topic, partition = key
    return Entry(
        topic,
        (
            replica_fetch.empty_partition(
                partition,
                high_watermark=seen.high_watermark,
                last_stable_offset=seen.last_stable_offset,
                log_start_offset=seen.log_start_offset,
                api_version=api_version,
            ),
        ),
    )
