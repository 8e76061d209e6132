"""Manages the buckets of one kind of quota at one broker: finds them, changes their limits and removes old ones."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kafka_quota_proxy.config.model import MAX_BUCKETS, KafkaSettings, QuotaRule, Shaping
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.config.units import UNLIMITED
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.quota.bucket_bounds import MAX_INT32
from kafka_quota_proxy.proxy.quota.bucket_table import BucketTable
from kafka_quota_proxy.proxy.quota.entity import Level, Tags
from kafka_quota_proxy.proxy.quota.entity_usage import NO_USAGE, EntityUsage
from kafka_quota_proxy.proxy.quota.kafka_rates import KafkaRates
from kafka_quota_proxy.proxy.quota.rate import Rate
from kafka_quota_proxy.proxy.quota.reservations import Reservations
from kafka_quota_proxy.proxy.quota.rule_tables import RuleTable
from kafka_quota_proxy.proxy.quota.shared_buckets import SharedBuckets

# Bounds the buckets that left the table and that the usage log has not read. If clients invent names faster than the
# log is written, they take about 10 MB for each broker and kind of quota.
MAX_DEPARTED: Final = 10_000
# Kafka drops the sensors of a client that sent nothing for this long (InactiveSensorExpirationTimeSeconds).
EXPIRES_AFTER_MS: Final = 3_600_000
_EXPIRY_SLICE: Final = 1_000
# These bound the cache of look-ups, because a client may send any number of client-ids.
_MAX_RESOLVED: Final = 100_000
_MAX_EVICTED_RESOLVED: Final = 1_000


class DepartedBuckets:
    """Keeps buckets that were removed from the table until the usage log has read all of their usage.

    The number of kept buckets is bounded, but a bucket that may still be charged is always kept. ``other`` is the total
    usage of the buckets that were not kept, as far as the usage log has not read this usage.
    """

    def __init__(self, max_buckets: int = MAX_DEPARTED) -> None:
        self.buckets: deque[Bucket] = deque()
        self.other = NO_USAGE
        self._max_buckets = max_buckets

    def add(self, bucket: Bucket) -> None:
        """Keep a bucket that has just left the table. If too many are kept, only add its usage to ``other``."""
        unlogged = bucket.usage.totals.minus(bucket.usage.logged)
        if bucket.is_in_use or (unlogged != NO_USAGE and len(self.buckets) < self._max_buckets):
            self.buckets.append(bucket)
        else:
            self.other = self.other.plus(unlogged)
            # The usage log may be reading a list that still has this bucket.
            bucket.usage.logged = bucket.usage.totals


class ClientQuotaManager:
    """All buckets of one kind of quota at one broker (``ClientQuotaManager`` in Kafka).

    When rules change, the recorded usage is kept. So a client that has used more than its new limit allows is throttled
    at once. A bucket gets its new limit when it is looked up for the next time.

    Args:
        kind: The kind of quota.
        rules: The rules, or a table of rules. After a change of the table, call ``rules_changed``.
        kafka: Kafka's settings, such as the number and the length of the windows over which rates are measured.
        shaping: Whether limits apply to sampled windows or to a token bucket. A rule may override this.
        burst_ms: For how many ms an idle client saves up unused quota in a token bucket.
        max_throttle_time_ms: The longest throttle time that a response tells a client. None sets no bound.
        max_buckets: The most buckets that there may be, not counting buckets for exactly the user and client-id of a
            rule.
        is_logged: Whether the proxy writes a usage log, which reads ``departed``.

    Attributes:
        generation: A counter that increases with every change of rules or settings.
        departed: Buckets that were removed and that the usage log has not read yet. It is None without a usage log.
        departed_usage: The total usage of all buckets that were removed.
    """

    def __init__(
        self,
        kind: QuotaKind,
        rules: Iterable[QuotaRule] | RuleTable = (),
        *,
        kafka: KafkaSettings | None = None,
        shaping: Shaping = Shaping.SAMPLED,
        burst_ms: int = 1_000,
        max_throttle_time_ms: int | None = None,
        max_buckets: int = MAX_BUCKETS,
        is_logged: bool = False,
    ) -> None:
        kafka = kafka or KafkaSettings()
        self.kind = kind
        self.table: Final = rules if isinstance(rules, RuleTable) else RuleTable(kind, rules)
        self.generation = 0
        self.departed = DepartedBuckets() if is_logged else None
        self.departed_usage = NO_USAGE
        self._samples = kafka.quota_window_num
        self._window_ms = kafka.quota_window_size_seconds * 1_000
        self._shaping = shaping
        self._burst_ms = burst_ms
        self._max_throttle_time_ms = MAX_INT32 if max_throttle_time_ms is None else max_throttle_time_ms
        self._buckets = BucketTable[Bucket](
            max_buckets, owes_until_ms=self._owes_until_ms, is_named=self.table.names, on_removed=self._depart
        )
        self._shared = SharedBuckets(self._new_bucket)
        self._kafka_rates = KafkaRates(self._buckets.get, self._new_rate)
        self._debtors: set[Bucket] = set()  # all buckets whose clients owe something, and some that no longer do
        # Look-ups under the current rules, so that a client with many connections is resolved once.
        self._resolved: dict[tuple[str, str], Bucket] = {}
        self._evicted_resolved = 0

    def __iter__(self) -> Iterator[Bucket]:
        return iter([*self._buckets, *self._shared])  # each of the two iterates over a copy of itself

    def __len__(self) -> int:
        return len(self._buckets) + len(self._shared)

    @property
    def evicted(self) -> int:
        """How many buckets were evicted to make room for other buckets."""
        return self._buckets.evicted

    @property
    def overflows(self) -> int:
        """How many look-ups returned a bucket that several clients share, because there was no room for a new one."""
        return self._shared.lookups

    @property
    def sharing_ended(self) -> int:
        """How often there was room for new buckets again, after clients had to share buckets because there was none.

        When this number increases, all connections must look up their buckets again.
        """
        return self._shared.reopened

    # -- rules --

    def configure(
        self, *, shaping: Shaping, burst_ms: int, max_throttle_time_ms: int | None, max_buckets: int = MAX_BUCKETS
    ) -> None:
        """Apply new settings. For the meanings of the arguments, see ``ClientQuotaManager``.

        Each bucket applies the new settings when it is looked up for the next time.
        """
        self._buckets.max_buckets = max_buckets
        self._shaping = shaping
        self._burst_ms = burst_ms
        self._max_throttle_time_ms = MAX_INT32 if max_throttle_time_ms is None else max_throttle_time_ms
        self._start_generation()

    def rules_changed(self, named: Mapping[Tags, bool]) -> None:
        """Apply rules that have changed in ``table``. A bucket gets its new limit at its next look-up.

        ``named`` contains the tags of each bucket that gained a rule of its own, with the value True, or lost such a
        rule, with the value False.
        """
        self._buckets.count_named(named)
        self._start_generation()
        for bucket in list(self._debtors):
            # Without a limit all is paid at once, even if the limit comes back before the next request.
            if self.limit_of(bucket) is None:
                self._apply_rule(bucket, None, None, None, bucket.usage.last_record_ms)
                bucket.generation = 0  # its next look-up is still the first under these rules
                self._debtors.discard(bucket)

    def limit_of(self, bucket: Bucket) -> float | None:
        """Return the limit of ``bucket`` under the current rules, or None if it has no limit."""
        if bucket.generation == self.generation:
            return bucket.limit / self.kind.per_unit if bucket.is_limited else None
        user, client_id = bucket.tags
        return self.table.limit_of_tags(user=user, client_id=client_id)

    def max_value_in_window(self, limit: float) -> float:
        """Return the amount that ``limit`` allows in all windows but one (Kafka's ``getMaxValueInQuotaWindow``)."""
        return limit * (self._samples - 1) * self._window_ms / 1_000

    def _start_generation(self) -> None:
        self.generation += 1
        self._resolved.clear()

    # -- finding buckets --

    def bucket(self, *, user: str, client_id: str, now_ms: int, is_exempt: bool = False) -> Bucket:
        """Return the bucket to charge for this user and client-id, with its current limit.

        Clients with a limit share a bucket if they would share one in Kafka. Each client without a limit, or exempt
        from quotas (``is_exempt``), has a bucket of its own, so that its usage is known. While the table of buckets is
        full, new clients share buckets.
        """
        if is_exempt:
            return self._look_up(Tags(user, client_id), None, None, None, None, now_ms)
        bucket = self._resolved.get((user, client_id))
        if bucket is None or not bucket.is_listed:
            own = Tags(user, client_id)
            tags, rule, level, limit = self.table.resolve(user=user, client_id=client_id)
            # Kafka records nothing for a kind of quota that has no rule (quotasEnabled).
            kafka_tags = tags if len(self.table) else None
            bucket = self._look_up(own if limit is None else tags, kafka_tags, rule, level, limit, now_ms)
            if len(self._resolved) >= _MAX_RESOLVED or self.evicted >= self._evicted_resolved + _MAX_EVICTED_RESOLVED:
                self._resolved.clear()
                self._evicted_resolved = self.evicted
            self._resolved[own] = bucket
        return bucket

    def record_and_get_throttle_time_ms(self, amount: int, *, user: str, client_id: str, now_ms: int) -> int:
        """Look up the bucket of a client, charge ``amount`` to it, and return the throttle time in milliseconds."""
        bucket = self.bucket(user=user, client_id=client_id, now_ms=now_ms)
        return min(bucket.charge(amount, now_ms=now_ms), bucket.max_throttle_time_ms)

    def release(self, bucket: Bucket, *, now_ms: int) -> None:
        """Note that a connection no longer keeps ``bucket``. It must have been counted in ``bucket.holders`` before."""
        self._buckets.release(bucket, now_ms=now_ms)

    def _look_up(
        self,
        tags: Tags,
        kafka_tags: Tags | None,
        rule: QuotaRule | None,
        level: Level | None,
        limit: float | None,
        now_ms: int,
    ) -> Bucket:
        bucket = self._buckets.get(tags)
        if bucket is None:
            if self.table.names(tags) or self._has_place(now_ms):
                bucket = self._new_bucket(tags, now_ms)
                self._buckets.add(bucket)
            else:
                bucket = self._shared.bucket(tags, rule, level, now_ms=now_ms)
        if bucket.generation != self.generation:
            if bucket.is_listed:
                self._kafka_rates.assign(bucket, kafka_tags)
            self._apply_rule(bucket, rule, level, limit, now_ms)
        return bucket

    def _apply_rule(
        self, bucket: Bucket, rule: QuotaRule | None, level: Level | None, limit: float | None, now_ms: int
    ) -> None:
        bucket.generation = self.generation
        bucket.rule = rule
        bucket.level = level
        bucket.enforcement = rule.enforcement if rule else None
        limit_per_s = float(UNLIMITED) if limit is None else float(limit) * self.kind.per_unit
        own_shaping = rule.shaping if rule is not None and self.kind is not QuotaKind.MUTATION else None
        shaping = own_shaping or self._shaping
        # Without a limit, Kafka keeps the token bucket of changes of topics. The first change fills it.
        is_paced = shaping is Shaping.PACED and (limit is not None or self.kind is QuotaKind.MUTATION)
        has_spread = self.kind is QuotaKind.FETCH and limit is not None and not is_paced
        bucket.configure(
            limit=limit_per_s,
            room=self.max_value_in_window(limit_per_s),
            burst_ms=self._burst_ms if is_paced else None,
            spread_ms=(self._samples - 1) * self._window_ms // 2 if has_spread else None,
            longest_wait_ms=self._window_ms if self.kind is QuotaKind.REQUEST else MAX_INT32,
            max_throttle_time_ms=self._max_throttle_time_ms,
            now_ms=now_ms,
        )

    def _has_place(self, now_ms: int) -> bool:
        """Return whether a new client can get a bucket of its own. May evict another bucket to make room."""
        if not self._shared.may_open(now_ms=now_ms):
            return False
        if not self._buckets.make_room(now_ms=now_ms):
            self._shared.close(now_ms=now_ms)
            return False
        self._shared.open()
        return True

    def _new_bucket(self, tags: Tags, now_ms: int) -> Bucket:
        bucket = Bucket(
            self.kind,
            tags,
            self._new_rate(),
            EntityUsage(now_ms),
            Reservations(is_known=self.kind is QuotaKind.MUTATION),
        )
        bucket.debtors = self._debtors
        return bucket

    def _new_rate(self) -> Rate:
        return Rate(samples=self._samples, window_ms=self._window_ms)

    # -- the end of buckets --

    def expire(self, *, now_ms: int) -> int:
        """Remove the buckets that were not charged for an hour, and return their number."""
        return sum(self.expire_slices(now_ms=now_ms))

    def expire_slices(self, *, now_ms: int) -> Iterator[int]:
        """Remove the buckets that were not charged for an hour, in slices. Yield how many buckets each slice removed.

        The event loop can run other tasks between the slices. Expiring 200,000 buckets at once would take 0.2 s.
        """
        self._debtors -= {bucket for bucket in self._debtors if bucket.silent_until_ms <= now_ms}
        buckets = list(self._buckets)
        for start in range(0, len(buckets), _EXPIRY_SLICE):
            removed = 0
            for bucket in buckets[start : start + _EXPIRY_SLICE]:
                is_silent = now_ms - bucket.usage.last_record_ms > EXPIRES_AFTER_MS and bucket.silent_until_ms <= now_ms
                if is_silent and not bucket.reserved.amount and bucket.is_listed:
                    self._buckets.remove(bucket)
                    removed += 1
            if removed:
                self._resolved.clear()
            self._buckets.recheck_parked(now_ms=now_ms, most=_EXPIRY_SLICE)
            yield removed
        for bucket in self._shared.expire(EXPIRES_AFTER_MS, now_ms=now_ms):
            self._depart(bucket)
        if self._shared.is_closed:
            self._has_place(now_ms)

    def _depart(self, bucket: Bucket) -> None:
        self._debtors.discard(bucket)
        self.departed_usage = self.departed_usage.plus(bucket.usage.totals)
        if self.departed is not None:
            self.departed.add(bucket)

    def _owes_until_ms(self, bucket: Bucket, now_ms: int) -> float:
        return bucket.owes_until_ms(now_ms=now_ms, has_new_rules=bucket.generation != self.generation)
