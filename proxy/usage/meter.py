"""Turns the counters of quotas into records that say how much of each quota was used in an interval.

A bucket counts the usage of one user, one client-id, or both together, for one kind of quota. Its usage in an interval
is the difference between its counters now and at the last reading (``logged``). A bucket that was removed stays in
``DepartedBuckets`` until it is read.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import Enforcement, EntityName
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.quota.address_limits import UNLIMITED_RATE
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.client_quota_manager import ClientQuotaManager, DepartedBuckets
from kafka_quota_proxy.proxy.quota.connections import ListenerQuota
from kafka_quota_proxy.proxy.quota.entity_usage import NO_USAGE, UsageTotals
from kafka_quota_proxy.proxy.quota.replication import ReplicationQuota
from kafka_quota_proxy.proxy.usage.record import OTHER, Batch, Timeline, UsageCounts, UsageKey

CONNECTION: Final = QuotaKind.CONNECTION_CREATION_RATE.label
LEADER_REPLICATION: Final = "leader_replication"
FOLLOWER_REPLICATION: Final = "follower_replication"

# The number of buckets that are read in one step. A step takes half a millisecond if all of the buckets were used, and
# a twentieth of a millisecond if none was.
_SLICE: Final = 150
# The number of records in a batch. The interpreter frees all of them at once, which for 50,000 would take 15 ms.
_BATCH: Final = 1_000


class MeteredBroker(NamedTuple):
    """The quotas of one broker whose usage is written to the usage log."""

    node_id: int | None  # None while unknown; several entries may have one id
    quotas: BrokerQuotas
    enforces: bool  # whether a listener in front of the broker enforces quotas; a rule may override this
    cluster: str | None = None  # the id of its cluster, or None while unknown


class MeteredReplicas(NamedTuple):
    """One limit on replication traffic whose usage is written to the usage log."""

    kind: str
    node_id: int | None
    quota: ReplicationQuota


class Meter:
    """Reads the usage counters of all quotas at the end of each interval, and turns them into usage log records."""

    def __init__(self, proxy: str, timeline: Timeline) -> None:
        self.timeline = timeline
        self._proxy = proxy
        self._records: dict[UsageKey, UsageCounts] = {}  # the records of the unfinished interval

    def read(
        self, brokers: Iterable[MeteredBroker], replicas: Iterable[MeteredReplicas], *, wall_ms: int, now_ms: int
    ) -> Iterator[Batch | None]:
        """End the interval, and yield its usage log records in batches.

        The counters are read in short steps. After each step, this yields None instead of a batch, so that the caller
        can let the event loop serve clients. If the caller abandons the iterator, the remaining records become part of
        the next interval.
        """
        brokers = list(brokers)
        clusters = {broker.cluster for broker in brokers}
        for one in replicas:
            # A limit on replication does not know its cluster, which is the same for all brokers of nearly any proxy.
            self._add_replicas(one, next(iter(clusters)) if len(clusters) == 1 else None)
        yield None
        for broker in brokers:
            for listener in broker.quotas.arrivals.listeners:
                self._add_listener(broker, listener)
            for manager in broker.quotas.managers:
                yield from self._read_manager(broker, manager)
        start_ms, interval_ms = self.timeline.roll(wall_ms=wall_ms, now_ms=now_ms)
        records = self._records
        while records:
            some = tuple(records.popitem() for _ in range(min(len(records), _BATCH)))
            yield Batch(self._proxy, start_ms, interval_ms, some)

    def _read_manager(self, broker: MeteredBroker, manager: ClientQuotaManager) -> Iterator[None]:
        # Removed buckets come first. If a new bucket has the same name, its rule is the one that applies.
        if manager.departed is not None:
            yield from self._read_departed(broker, manager.kind, manager.departed)
        buckets = list(manager)
        for start in range(0, len(buckets), _SLICE):
            for bucket in buckets[start : start + _SLICE]:
                self._add_bucket(broker, bucket)
            yield

    def _read_departed(self, broker: MeteredBroker, kind: QuotaKind, departed: DepartedBuckets) -> Iterator[None]:
        # Buckets are taken one by one, so that none is lost if the reading is not finished.
        for count in range(len(departed.buckets)):
            bucket = departed.buckets.popleft()
            self._add_bucket(broker, bucket)
            if bucket.is_in_use:
                departed.buckets.append(bucket)
            else:
                departed.other = departed.other.plus(
                    bucket.usage.totals.minus(bucket.usage.logged)
                )  # less than one logged unit
            if count % _SLICE == _SLICE - 1:
                yield
        left, per = departed.other, kind.spec.recorded_per_logged
        departed.other = UsageTotals(amount=left.amount % per)
        moved = left.minus(departed.other)
        if moved != NO_USAGE:
            used = UsageCounts(moved.amount // per, moved.requests, *_waits(moved), broker.enforces)
            self._add(UsageKey(broker.node_id, kind.label, OTHER, OTHER, cluster=broker.cluster), used)
        yield

    def _add_bucket(self, broker: MeteredBroker, bucket: Bucket) -> None:
        # For speed this makes no further ``UsageTotals`` objects, since it runs for every bucket.
        amount_before, requests_before, throttled_before, wait_before, observed_wait_before, observed_before = (
            bucket.usage.logged
        )
        requests = bucket.usage.requests - requests_before
        amount = bucket.usage.amount - amount_before
        throttling = bucket.usage.throttling
        throttled = throttling.requests - throttled_before
        observed = throttling.observed_requests - observed_before
        if not (requests or amount or throttled or observed):  # wait times change only together with the last two
            return
        wait_ms = throttling.time_ms - wait_before + throttling.observed_time_ms - observed_wait_before
        kind, rule, per = bucket.kind, bucket.rule, bucket.kind.spec.recorded_per_logged
        amount //= per
        if not (requests or amount or throttled or observed):
            return  # the use is less than one logged unit
        bucket.usage.logged = UsageTotals(
            amount_before + amount * per,
            bucket.usage.requests,
            throttling.requests,
            throttling.time_ms,
            throttling.observed_time_ms,
            throttling.observed_requests,
        )
        enforces = broker.enforces if bucket.enforcement is None else bucket.enforcement is not Enforcement.OBSERVE
        self._add(
            UsageKey(broker.node_id, kind.label, bucket.tags.user, bucket.tags.client_id, None, broker.cluster),
            UsageCounts(
                amount,
                requests,
                throttled + observed,
                wait_ms,
                throttled > 0 or (enforces and not observed),
                bucket.limit / kind.per_unit if bucket.is_limited else None,
                _entity(rule.user) if rule else None,
                _entity(rule.client_id) if rule else None,
                bucket.holders if kind.spec.logs_connections else None,
            ),
        )

    def _add_listener(self, broker: MeteredBroker, listener: ListenerQuota) -> None:
        used = listener.usage
        moved = used.minus(listener.logged)
        listener.logged = used
        if moved != NO_USAGE:
            limit = float(listener.limit) if listener.limit < UNLIMITED_RATE else None
            record = UsageCounts(moved.amount, moved.requests, *_waits(moved), not listener.observes, limit)
            self._add(UsageKey(broker.node_id, CONNECTION, "", "", listener.name, broker.cluster), record)

    def _add_replicas(self, replicas: MeteredReplicas, cluster: str | None) -> None:
        quota = replicas.quota
        used = quota.usage
        moved = used.minus(quota.logged)
        quota.logged = used
        if moved != NO_USAGE:
            record = UsageCounts(moved.amount, moved.requests, *_waits(moved), is_enforced=True, limit=quota.limit)
            self._add(UsageKey(replicas.node_id, replicas.kind, "", "", cluster=cluster), record)

    def _add(self, identity: UsageKey, used: UsageCounts) -> None:
        """Add a record to the interval. If there is a record with the same key, the two are added up."""
        before = self._records.get(identity)
        self._records[identity] = used if before is None else before.plus(used)


def _waits(moved: UsageTotals) -> tuple[int, int]:
    """Return how many requests were throttled, and for how many ms, according to ``moved``, the usage in an interval.

    This includes requests that enforcement would have throttled while limits were only observed.
    """
    return (
        moved.throttled_requests + moved.observed_throttled_requests,
        moved.throttle_time_ms + moved.observed_throttle_time_ms,
    )


def _entity(name: EntityName) -> str | None:
    return None if name is None else str(name)
