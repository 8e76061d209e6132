"""Cuts the leader's response to a follower's fetch to what the quotas have room for, and charges what is forwarded."""

from dataclasses import dataclass, field
from math import inf
from typing import Final

from kafka_quota_proxy.protocol import record_batches
from kafka_quota_proxy.protocol.fetch import FIRST_MAX_BYTES, UNLIMITED_BYTES
from kafka_quota_proxy.protocol.replica_fetch.request import RequestPartition
from kafka_quota_proxy.protocol.replica_fetch.response import (
    ResponsePartition,
    charged_bytes,
    empty_partition,
    truncate_partition,
)
from kafka_quota_proxy.protocol.replica_fetch.topics import Entry
from kafka_quota_proxy.proxy.quota.replication import ReplicationQuota
from kafka_quota_proxy.proxy.replication.throttle import Charge
from kafka_quota_proxy.proxy.session.replica.partition_state import Key, PartitionState

# The least room to wait for if a partition got no batch: a smaller batch is not worth another fetch.
_LEAST_MORE_BYTES: Final = 1024
# How many bytes are requested of a partition with an unknown state. It may be in sync, and must then not wait.
FIRST_LOOK_BYTES: Final = 64 * 1024


@dataclass(slots=True, eq=False, repr=False)
class PassedFetch:
    """A follower's fetch that was forwarded, in full or in part, and has no response yet.

    Attributes:
        correlation_id: The correlation id of the fetch.
        api_version: The version of the Fetch API.
        partitions: The partitions that the follower fetches, including those that were left out.
        is_of_session: Whether the response is forwarded unchanged and only counted, because the fetch belongs to a
            ``FetchSession``.
        charges: The quotas that are charged for the records of each throttled partition.
        granted: How many bytes of each quota's room are set aside for the response.
        max_bytes: The ``max_bytes`` of the forwarded fetch.
    """

    correlation_id: int
    api_version: int
    partitions: dict[Key, RequestPartition]
    charges: dict[Key, tuple[Charge, ...]] = field(default_factory=dict)
    is_of_session: bool = False
    granted: dict[ReplicationQuota, int] = field(default_factory=dict)
    max_bytes: int = UNLIMITED_BYTES


class Trimming:
    """Builds the partition entries of one trimmed Fetch response for a follower, and counts the bytes to charge.

    ``has_lagging`` becomes True if any throttled partition of the fetch lags. ``spare_bytes`` is how many bytes of
    records the leader could have added to the response.
    """

    def __init__(
        self, fetch: PassedFetch, states: dict[Key, PartitionState], data: bytes, *, turn: int, now_ms: int
    ) -> None:
        self.has_lagging = False
        self.spare_bytes = UNLIMITED_BYTES
        self._fetch = fetch
        self._states = states
        self._data = data
        self._turn = turn
        self._view = memoryview(data)
        self._now_ms = now_ms
        self._brought: dict[ReplicationQuota, int] = {}  # the bytes of records of lagging partitions
        self._leaders: dict[ReplicationQuota, list[Entry]] = {}  # entries to charge whole, as a leader charges
        self._followers: dict[ReplicationQuota, int] = {}  # bytes of records to charge, as a follower charges

    def entry(self, key: Key, request: RequestPartition, one: ResponsePartition) -> Entry:
        """Return a partition's entry for the follower. If the partition lags, its records are cut."""
        charges = self._fetch.charges.get(key, ())
        if one.error_code or not charges:
            self._states.pop(key, None)
            return self.whole(one)
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = PartitionState(one, request.leader_epoch, self._now_ms)
            state.requested_bytes = min(request.max_bytes, FIRST_LOOK_BYTES)
            state.fetch_offset = request.fetch_offset
        else:
            state.see(one, request.leader_epoch, self._now_ms)
        is_lagging = request.fetch_offset < one.high_watermark
        self.has_lagging |= is_lagging
        if one.records == one.records_end:
            if is_lagging and state.requested_bytes <= self.spare_bytes:
                # Perhaps no batch fitted. A leader exceeds max_bytes only for the first partition.
                state.least_bytes = min(max(2 * state.requested_bytes, _LEAST_MORE_BYTES), UNLIMITED_BYTES)
            elif is_lagging and not state.least_bytes:
                del self._states[key]  # The response had no room for the first look, so there is another.
            return self.whole(one)
        state.measure(*record_batches.size_and_next_offset(self._data, one.records, one.records_end))
        end = self._end(one, charges) if is_lagging else one.records_end
        entry = Entry(one.topic, truncate_partition(self._data, one, end, self._fetch.api_version))
        size_bytes = end - one.records
        if size_bytes:
            self._count(entry, size_bytes, charges, is_lagging=is_lagging)
        if is_lagging:
            state.least_bytes = record_batches.first_batch_size(self._data, one.records, one.records_end)
            if size_bytes:
                state.turn = self._turn
        return entry

    def left_out(self, key: Key) -> Entry:
        """Return an entry without records for a partition that was left out of the forwarded fetch."""
        self.has_lagging = True
        return empty_entry(key, self._states[key], self._fetch.api_version)

    def count(self, one: ResponsePartition, fetch_offset: int, charges: tuple[Charge, ...]) -> None:
        """Count the records of a partition whose entry is forwarded unchanged."""
        is_lagging = fetch_offset < one.high_watermark
        self.has_lagging |= is_lagging
        if one.records < one.records_end:
            self._count(self.whole(one), one.records_end - one.records, charges, is_lagging=is_lagging)

    def whole(self, one: ResponsePartition) -> Entry:
        """Return the entry of a partition as the leader sent it."""
        return Entry(one.topic, (self._view[one.begin : one.end],))

    def charge(self) -> None:
        """Charge the quotas for the records that are forwarded, and free the room that was set aside for the fetch."""
        for quota, entries in self._leaders.items():
            quota.record(charged_bytes(entries, self._fetch.api_version), now_ms=self._now_ms)
        for quota, size_bytes in self._followers.items():
            quota.record(size_bytes, now_ms=self._now_ms)
        settle(self._fetch.granted, self._brought, now_ms=self._now_ms)

    def _end(self, one: ResponsePartition, charges: tuple[Charge, ...]) -> int:
        """Return the offset in the response at which to cut the records of a lagging partition.

        If possible, the records are cut after a whole batch.
        """
        room = min(self._room(charge.quota) for charge in charges)
        if room <= 0:
            return one.records
        if self._fetch.api_version < FIRST_MAX_BYTES:
            return one.records_end  # in these versions, a batch that is cut makes the follower ask for more bytes
        end = one.records_end if room >= one.records_end - one.records else one.records + int(room)
        # A partition with any records gets at least one batch, as from the leader.
        first_end = one.records + record_batches.first_batch_size(self._data, one.records, one.records_end)
        whole = record_batches.end_of_whole_batches(self._data, one.records, max(end, min(first_end, one.records_end)))
        # No leader of Kafka cuts the first batch. If it is cut all the same, all records are forwarded. After an empty
        # entry, the follower would fetch again at once.
        return whole if whole > one.records else one.records_end

    def _room(self, quota: ReplicationQuota) -> float:
        """Return how many more bytes of this response ``quota`` has room for.

        Infinite while the response has not used up the bytes that were set aside for the fetch in this quota.
        """
        brought = self._brought.get(quota, 0)
        if brought < self._fetch.granted.get(quota, 0):
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


def settle(granted: dict[ReplicationQuota, int], brought: dict[ReplicationQuota, int], *, now_ms: int) -> None:
    """End the reservations for a response, and charge each quota for the records of lagging partitions.

    ``granted`` contains the bytes that were reserved in each quota, and ``brought`` those of the records.
    """
    for quota in granted.keys() | brought.keys():
        quota.settle(granted.get(quota, 0), brought.get(quota, 0), now_ms=now_ms)


def empty_entry(key: Key, state: PartitionState, api_version: int) -> Entry:
    """Return an entry without records. It repeats the offsets that the follower received last for this partition."""
    topic, partition = key
    return Entry(
        topic,
        (
            empty_partition(
                partition,
                high_watermark=state.high_watermark,
                last_stable_offset=state.last_stable_offset,
                log_start_offset=state.log_start_offset,
                api_version=api_version,
            ),
        ),
    )
