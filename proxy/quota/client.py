"""Buckets and who keeps them: charging, changing limits, expiry (``ClientQuotaManager`` in Kafka)."""

from collections.abc import Iterable, Iterator
from typing import Final

from config.model import UNLIMITED, Enforcement, KafkaSettings, QuotaRule, Shaping
from proxy.quota.entity import Level, QuotaKind, RuleTable, Tags
from proxy.quota.pacing import TokenBucket
from proxy.quota.rate import Average, Rate
from proxy.quota.throttle import throttle_time_ms, wait_for_tokens_ms

# Kafka drops the sensors of a client that was silent this long (InactiveSensorExpirationTimeSeconds).
EXPIRES_AFTER_MS: Final = 3_600_000
_EXPIRY_SLICE: Final = 1_000
# A client may send any number of client-ids; this bounds what is remembered of them beside their buckets.
_MAX_RESOLVED: Final = 100_000
_MAX_INT32: Final = 2**31 - 1


class Bucket:
    """What one entity used, and what it may use. Plain integers, read by metrics as they are.

    ``limit`` is in bytes per second, ``float(UNLIMITED)`` without a quota. ``in_flight_bytes`` are requests that were
    passed on and are charged when their response comes.
    """

    __slots__ = (
        "_max_throttle_time_ms",
        "_sampled_room",
        "_tokens",
        "amount",
        "enforcement",
        "generation",
        "in_flight_bytes",
        "is_limited",
        "kind",
        "last_record_ms",
        "level",
        "limit",
        "max_fetch_bytes",
        "observed_throttle_time_ms",
        "rate",
        "requests",
        "rule",
        "tags",
        "throttle_time",
        "throttle_time_ms",
        "throttled_requests",
    )

    def __init__(self, kind: QuotaKind, tags: Tags, rate: Rate, now_ms: int) -> None:
        self.kind = kind
        self.tags = tags
        self.rate = rate
        self.throttle_time = Average()
        self.limit = float(UNLIMITED)
        self.is_limited = False
        self.rule: QuotaRule | None = None
        self.level: Level | None = None
        self.enforcement: Enforcement | None = None  # None: what the listener says
        self.max_fetch_bytes = _MAX_INT32
        self.generation = -1
        self.amount = 0
        self.requests = 0
        self.throttled_requests = 0
        self.throttle_time_ms = 0
        self.observed_throttle_time_ms = 0
        self.in_flight_bytes = 0
        self.last_record_ms = now_ms
        self._sampled_room = float(UNLIMITED)
        self._tokens: TokenBucket | None = None
        self._max_throttle_time_ms = _MAX_INT32

    def set_arithmetic(
        self, *, room: float, burst_ms: int | None, max_throttle_time_ms: int, max_fetch_bytes: int, now_ms: int
    ) -> None:
        """Put the bucket under other numbers; what was recorded stays. ``burst_ms`` is None for sampled windows."""
        self._sampled_room = room
        self._max_throttle_time_ms = max_throttle_time_ms
        self.max_fetch_bytes = max_fetch_bytes
        if burst_ms is None:
            self._tokens = None
        elif self._tokens is None:
            self._tokens = TokenBucket(burst_ms=burst_ms, byte_rate_limit=self.limit, now_ms=now_ms)
        else:
            self._tokens.burst_ms = burst_ms

    @property
    def shaping(self) -> Shaping:
        """Which arithmetic decides."""
        return Shaping.SAMPLED if self._tokens is None else Shaping.PACED

    def charge(self, amount: int, *, now_ms: int) -> int:
        """Record ``amount`` bytes and return how long their sender must now be silent, in milliseconds; 0: not at all.

        What is over the limit stays recorded. Source: ``ClientQuotaManager.recordAndGetThrottleTimeMs``.
        """
        self.amount += amount
        self.requests += 1
        self.last_record_ms = now_ms
        rate = self.rate
        rate.record(amount, now_ms=now_ms)
        limit = self.limit
        if self._tokens is not None:
            left = self._tokens.record(amount, byte_rate_limit=limit, now_ms=now_ms)
            wait_ms = wait_for_tokens_ms(tokens=left, byte_rate_limit=limit)
        else:
            # Under this sum no rate is over the limit, and while nothing is to be purged measuring changes nothing.
            if rate.total <= self._sampled_room and now_ms < rate.exact_before_ms:
                return 0
            byte_rate = rate.measure(now_ms=now_ms)
            if byte_rate <= limit:
                return 0
            window_ms = rate.window_ms(now_ms=now_ms)
            wait_ms = throttle_time_ms(byte_rate=byte_rate, byte_rate_limit=limit, window_ms=window_ms)
        return min(wait_ms, self._max_throttle_time_ms)

    def uncharge(self, amount: int, *, now_ms: int) -> None:
        """Take back what was charged and then not delivered (``ClientQuotaManager.unrecordQuotaSensor``)."""
        self.amount -= amount
        self.last_record_ms = now_ms
        self.rate.record(-amount, now_ms=now_ms)
        if self._tokens is not None:
            self._tokens.record(-amount, byte_rate_limit=self.limit, now_ms=now_ms)

    def has_room(self, amount: int, *, now_ms: int) -> bool:
        """Whether ``amount`` more, on top of all that is in flight, could be charged without a wait. A pure read."""
        more = self.in_flight_bytes + amount
        if self._tokens is not None:
            return self._tokens.peek(byte_rate_limit=self.limit, now_ms=now_ms) >= more
        rate = self.rate
        # The window is never shorter than N - 1 samples: under this sum no rate can be over the limit.
        if now_ms < rate.exact_before_ms and rate.total + more <= self._sampled_room:
            return True
        return rate.peek(now_ms=now_ms, more=more) <= self.limit

    def throttled(self, wait_ms: int, *, now_ms: int, is_enforced: bool) -> None:
        """Count one throttled request."""
        if is_enforced:
            self.throttled_requests += 1
            self.throttle_time_ms += wait_ms
            self.throttle_time.record(wait_ms, now_ms=now_ms)
        else:
            self.observed_throttle_time_ms += wait_ms

    def utilisation(self, *, now_ms: int) -> float | None:
        """Return the rate over the limit; None without a limit."""
        return self.rate.peek(now_ms=now_ms) / self.limit if self.is_limited else None


class ClientQuotaManager:
    """All buckets of one kind at one broker.

    Rules change under the buckets: samples stay, so a lower limit throttles at once on past usage and a higher one
    releases at the next request. A bucket takes its new limit when it is next asked for (``BrokerQuotas.generation``
    says when that is due).
    """

    def __init__(
        self,
        kind: QuotaKind,
        rules: Iterable[QuotaRule] = (),
        *,
        kafka: KafkaSettings | None = None,
        shaping: Shaping = Shaping.SAMPLED,
        burst_ms: int = 1_000,
        max_throttle_time_ms: int | None = None,
    ) -> None:
        kafka = kafka or KafkaSettings()
        self.kind = kind
        self.table = RuleTable(kind, rules)
        self.generation = 0
        self._samples = kafka.quota_window_num
        self._window_ms = kafka.quota_window_size_seconds * 1_000
        self._shaping = shaping
        self._burst_ms = burst_ms
        self._max_throttle_time_ms = _MAX_INT32 if max_throttle_time_ms is None else max_throttle_time_ms
        self._buckets: dict[tuple[str, str], Bucket] = {}
        # Who was resolved under the rules in force, so that a client of many connections is not resolved for each.
        self._resolved: dict[tuple[str, str], Bucket] = {}

    def __iter__(self) -> Iterator[Bucket]:
        # A copy, made in one step of the interpreter: the metrics thread may ask while the loop adds buckets.
        return iter(list(self._buckets.values()))

    def __len__(self) -> int:
        return len(self._buckets)

    def update(
        self,
        rules: Iterable[QuotaRule],
        *,
        shaping: Shaping,
        burst_ms: int,
        max_throttle_time_ms: int | None,
    ) -> None:
        """Put ``rules`` in the place of those in force. Costs nothing per bucket."""
        self.table = RuleTable(self.kind, rules)
        self._shaping = shaping
        self._burst_ms = burst_ms
        self._max_throttle_time_ms = _MAX_INT32 if max_throttle_time_ms is None else max_throttle_time_ms
        self.generation += 1
        self._resolved.clear()

    def bucket(self, *, user: str, client_id: str, now_ms: int, is_exempt: bool = False) -> Bucket:
        """Return the bucket to charge, under the limit now in force.

        Without a limit that is the bucket of exactly this user and client-id, so that unlimited traffic can be told
        apart; where a rule wins, the one that Kafka's tags name.
        """
        if is_exempt:
            return self._refreshed(Tags(user, client_id), None, None, None, now_ms)
        bucket = self._resolved.get((user, client_id))
        if bucket is None:
            own = Tags(user, client_id)
            tags, rule, level, limit = self.table.resolve(user=user, client_id=client_id)
            bucket = self._refreshed(own if limit is None else tags, rule, level, limit, now_ms)
            if len(self._resolved) >= _MAX_RESOLVED:
                self._resolved.clear()
            self._resolved[own] = bucket
        return bucket

    def record_and_get_throttle_time_ms(self, amount: int, *, user: str, client_id: str, now_ms: int) -> int:
        """Resolve, charge and decide in one call (``ClientQuotaManager.recordAndGetThrottleTimeMs``)."""
        return self.bucket(user=user, client_id=client_id, now_ms=now_ms).charge(amount, now_ms=now_ms)

    def limit_of(self, bucket: Bucket) -> float | None:
        """Return the limit now in force for ``bucket``, also when it was not used since the rules changed."""
        if bucket.generation == self.generation:
            return bucket.limit if bucket.is_limited else None
        user, client_id = bucket.tags
        return self.table.limit_of_tags(user=user, client_id=client_id)

    def expire(self, *, now_ms: int) -> int:
        """Forget buckets that were silent for an hour; return how many."""
        return sum(self.expire_slices(now_ms=now_ms))

    def expire_slices(self, *, now_ms: int) -> Iterator[int]:
        """Do the same a slice at a time, and yield how many each forgot: 200,000 in one go would take 0.2 s."""
        names = list(self._buckets)
        for start in range(0, len(names), _EXPIRY_SLICE):
            gone = 0
            for tags in names[start : start + _EXPIRY_SLICE]:
                bucket = self._buckets.get(tags)
                if bucket and now_ms - bucket.last_record_ms > EXPIRES_AFTER_MS and not bucket.in_flight_bytes:
                    del self._buckets[tags]
                    gone += 1
            if gone:
                self._resolved.clear()
            yield gone

    def max_value_in_window(self, limit: float) -> float:
        """Return what the quota allows in its shortest window: N - 1 samples (``getMaxValueInQuotaWindow``)."""
        return limit * (self._samples - 1) * self._window_ms / 1_000

    def _refreshed(
        self, tags: Tags, rule: QuotaRule | None, level: Level | None, limit: float | None, now_ms: int
    ) -> Bucket:
        bucket = self._buckets.get(tags)
        if bucket is None:
            rate = Rate(samples=self._samples, window_ms=self._window_ms)
            bucket = self._buckets[tags] = Bucket(self.kind, tags, rate, now_ms)
        if bucket.generation != self.generation:
            self._put_under(bucket, rule, level, limit, now_ms)
        return bucket

    def _put_under(
        self, bucket: Bucket, rule: QuotaRule | None, level: Level | None, limit: float | None, now_ms: int
    ) -> None:
        bucket.generation = self.generation
        bucket.rule = rule
        bucket.level = level
        bucket.enforcement = rule.enforcement if rule else None
        bucket.limit = float(UNLIMITED) if limit is None else limit
        bucket.is_limited = bucket.limit < UNLIMITED
        window_room = self.max_value_in_window(bucket.limit)
        shaping = (rule.shaping if rule else None) or self._shaping
        is_paced = shaping is Shaping.PACED and bucket.is_limited
        room = bucket.limit * self._burst_ms / 1_000 if is_paced else window_room
        bucket.set_arithmetic(
            room=window_room,
            burst_ms=self._burst_ms if is_paced else None,
            max_throttle_time_ms=self._max_throttle_time_ms,
            max_fetch_bytes=max(1, int(min(room, _MAX_INT32))),
            now_ms=now_ms,
        )
