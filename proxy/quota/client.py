"""Buckets and who keeps them: charging, changing limits, expiry (``ClientQuotaManager`` in Kafka)."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from math import ceil
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from kafka_quota_proxy.config.model import (
    MAX_BUCKETS,
    UNLIMITED,
    Enforcement,
    EntityName,
    KafkaSettings,
    QuotaRule,
    Shaping,
)
from kafka_quota_proxy.proxy.quota.bucket_table import Places
from kafka_quota_proxy.proxy.quota.entity import Level, QuotaKind, RuleTable, Tags
from kafka_quota_proxy.proxy.quota.line import Line, Place
from kafka_quota_proxy.proxy.quota.observed import Shadow
from kafka_quota_proxy.proxy.quota.rate import Average, Rate
from kafka_quota_proxy.proxy.quota.throttle import MAX_THROTTLE_TIME_MS, throttle_time_ms, wait_for_tokens_ms
from kafka_quota_proxy.proxy.quota.token_bucket import TokenBucket

# Kafka drops the sensors of a client that was silent this long (InactiveSensorExpirationTimeSeconds).
EXPIRES_AFTER_MS: Final = 3_600_000
_EXPIRY_SLICE: Final = 1_000
# A client may send any number of client-ids; these bound what is remembered of them beside their buckets.
_MAX_RESOLVED: Final = 100_000
_MAX_EVICTED_RESOLVED: Final = 1_000
# Who shares for want of a place does so for this long at least: all of them resolve anew when it ends.
_SHARES_AT_LEAST_MS: Final = 1_000
SHARED: Final = "<shared>"
# Some 10 MB at each broker for each kind, while names are made up faster than the usage log is written.
MAX_DEPARTED: Final = 10_000
_MAX_INT32: Final = 2**31 - 1
# What a fetch may always ask for, in milliseconds of its limit.
_LEAST_FETCH_MS: Final = 50


class Usage(NamedTuple):
    """What was counted."""

    amount: int = 0
    requests: int = 0
    throttled_requests: int = 0
    throttle_time_ms: int = 0
    observed_throttle_time_ms: int = 0
    observed_throttled_requests: int = 0

    def plus(self, other: "Usage") -> "Usage":
        """Return the sum."""
        # Not in a loop: each bucket that makes room is added to those before it.
        return Usage(
            self.amount + other.amount,
            self.requests + other.requests,
            self.throttled_requests + other.throttled_requests,
            self.throttle_time_ms + other.throttle_time_ms,
            self.observed_throttle_time_ms + other.observed_throttle_time_ms,
            self.observed_throttled_requests + other.observed_throttled_requests,
        )

    def minus(self, other: "Usage") -> "Usage":
        """Return the difference."""
        return Usage(
            self.amount - other.amount,
            self.requests - other.requests,
            self.throttled_requests - other.throttled_requests,
            self.throttle_time_ms - other.throttle_time_ms,
            self.observed_throttle_time_ms - other.observed_throttle_time_ms,
            self.observed_throttled_requests - other.observed_throttled_requests,
        )


NOTHING: Final = Usage()


class Bucket:
    """What one entity used, and what it may use. Plain integers, read by metrics as they are.

    ``limit`` is what may be recorded in a second (``QuotaKind.per_unit``), ``float(UNLIMITED)`` without a quota.
    ``in_flight`` is what was passed on and is charged when its response comes; of a fetch, what it is expected to
    bring. ``silent_until_ms`` is when everything is paid that was charged: until then no connection's request passes.
    What is owed is never forgiven; ``max_throttle_time_ms`` bounds only what one response says. ``line`` has the
    requests that wait for that; None where none ever did. ``rate`` is what Kafka measures under these tags where
    ``is_kafkas``, else this bucket's alone; ``also`` is what Kafka measures instead, shared by all buckets to which
    Kafka gives the same tags. ``heir`` is the bucket that has absorbed this one: what is still charged here is charged
    there. ``holders``, ``is_listed`` and ``is_waiting`` are for ``Places``, ``logged`` for ``proxy.usage``: what of the
    counters it has taken.
    """

    __slots__ = (
        "_charged",
        "_fetch_share",
        "_least_fetch",
        "_longest_wait_ms",
        "_reserved_until_ms",
        "_room",
        "_sampled_room",
        "_shadow",
        "_spread",
        "_throttled_until_ms",
        "_tokens",
        "_used",
        "also",
        "amount",
        "enforcement",
        "generation",
        "heir",
        "holders",
        "in_flight",
        "is_kafkas",
        "is_limited",
        "is_listed",
        "is_waiting",
        "kept",
        "kind",
        "last_record_ms",
        "level",
        "limit",
        "line",
        "logged",
        "max_throttle_time_ms",
        "observed_throttle_time_ms",
        "observed_throttled_requests",
        "rate",
        "requests",
        "rule",
        "silent_until_ms",
        "tags",
        "throttle_time",
        "throttle_time_ms",
        "throttled_requests",
    )

    def __init__(self, kind: QuotaKind, tags: Tags, rate: Rate, now_ms: int) -> None:
        self.kind = kind
        self.tags = tags
        self.rate = rate
        self.is_kafkas = False
        self.also: Rate | None = None
        self.kept: tuple[Rate, ...] = ()  # what Kafka measured here under other kinds of rules; three at the most
        self.throttle_time = Average()
        self.limit = float(UNLIMITED)
        self.is_limited = False
        # Seconds of limits before this one, the amount when this one came, and this one. They are replaced together:
        # a scrape reads from its own thread.
        self._used = (0.0, 0, self.limit)
        self.rule: QuotaRule | None = None
        self.level: Level | None = None
        self.enforcement: Enforcement | None = None  # None: what the listener says
        self.line: Line | None = None
        self.max_throttle_time_ms = _MAX_INT32
        self.generation = -1
        self.amount = 0
        self.requests = 0
        self.throttled_requests = 0
        self.throttle_time_ms = 0
        self.observed_throttle_time_ms = 0
        self.observed_throttled_requests = 0
        self.logged = NOTHING
        self.in_flight = 0
        self.last_record_ms = now_ms
        self.silent_until_ms = 0
        self.holders = 0
        self.is_listed = False
        self.is_waiting = False
        self.heir: Bucket | None = None
        self._sampled_room = float(UNLIMITED)
        self._room = self._fetch_share = self._least_fetch = float(UNLIMITED)
        self._tokens: TokenBucket | None = None
        self._spread: TokenBucket | None = None
        self._shadow: Shadow | None = None
        self._throttled_until_ms = 0  # when the last wait ends that a response has told
        self._charged = 0  # by the last request that was over the limit
        self._reserved_until_ms = 0.0
        self._longest_wait_ms = _MAX_INT32

    def set_arithmetic(
        self,
        *,
        room: float,
        burst_ms: int | None,
        spread_ms: int | None,
        longest_wait_ms: int,
        max_throttle_time_ms: int,
        now_ms: int,
    ) -> None:
        """Put the bucket under other numbers; what was recorded stays, and so does what is owed, as bytes.

        Args:
            room: What the limit allows in the shortest window.
            burst_ms: How much an idle client may have saved up, in milliseconds of the limit; None: sampled windows.
            spread_ms: Likewise, for the line in front of a bucket with sampled windows; None: they alone decide.
                Fetches have it: a window's worth at once every eleven seconds would make six windows of some minutes.
            longest_wait_ms: What a charge may say at the most, and owe.
            max_throttle_time_ms: What a response may say at the most.
            now_ms: The time.
        """
        owed_ms = self.silent_until_ms - now_ms
        self._sampled_room = room
        self._longest_wait_ms = longest_wait_ms
        self.max_throttle_time_ms = max_throttle_time_ms
        self._tokens = self._token_bucket(self._tokens, burst_ms, now_ms)
        self._spread = self._token_bucket(self._spread, spread_ms, now_ms)
        self._room = room if burst_ms is None else self.limit * burst_ms / 1_000
        saved_ms = burst_ms or spread_ms
        self._fetch_share = min(room if saved_ms is None else self.limit * saved_ms / 1_000, _MAX_INT32)
        self._least_fetch = min(self.limit * _LEAST_FETCH_MS / 1_000, _MAX_INT32)
        if owed_ms > 0:
            self.silent_until_ms = now_ms + self._wait_ms(now_ms) if self.is_limited else 0

    def _token_bucket(self, before: TokenBucket | None, burst_ms: int | None, now_ms: int) -> TokenBucket | None:
        if burst_ms is None:
            return None
        if before is not None:
            before.burst_ms = burst_ms
            return before
        tokens = TokenBucket(burst_ms=burst_ms, byte_rate_limit=self.limit, now_ms=now_ms)
        owed = self.rate.peek_sum(now_ms=now_ms) - self._sampled_room if self.silent_until_ms > now_ms else 0
        if owed > 0:
            tokens.record(round(owed + self.limit * burst_ms / 1_000), byte_rate_limit=self.limit, now_ms=now_ms)
        return tokens

    def _wait_ms(self, now_ms: int) -> int:
        """Return how long the bucket must be left alone as it is now. A pure read."""
        limit = self.limit
        if self._tokens is not None:
            tokens = self._tokens.peek(byte_rate_limit=limit, now_ms=now_ms)
            return min(wait_for_tokens_ms(tokens=tokens, byte_rate_limit=limit), self._longest_wait_ms)
        total, window_ms = self.rate.peek_sum(now_ms=now_ms), self.rate.peek_window_ms(now_ms=now_ms)
        wait_ms = throttle_time_ms(byte_rate=total * 1_000 / window_ms, byte_rate_limit=limit, window_ms=window_ms)
        return min(max(0, wait_ms), self._longest_wait_ms)

    def set_limit(self, limit: float) -> None:
        """Put the bucket under another limit; what was used of the one before stays counted."""
        if limit != self.limit:
            self._used = (self.used_s, self.amount, limit)
        self.limit = limit
        self.is_limited = limit < UNLIMITED

    @property
    def used_s(self) -> float:
        """What was charged, in seconds of the limit that was in force: grows by 1 in a second that uses all of it."""
        before_s, amount_before, limit = self._used
        return before_s + (self.amount - amount_before) / limit if limit < UNLIMITED else before_s

    def absorb(self, other: "Bucket", *, now_ms: int) -> None:
        """Go on as both: ``other`` has turned out to be the same name's at the same broker. Nothing is counted twice.

        What is in flight there is charged here when its response comes. How long the sum is to be waited for is found
        when the bucket is put under its limit anew.
        """
        for own, others in ((self._tokens, other._tokens), (self._spread, other._spread)):  # noqa: SLF001 - as this one
            if own is not None and others is not None:
                own.absorb(others, byte_rate_limit=self.limit, now_ms=now_ms)
        self.rate.absorb(other.rate, now_ms=now_ms)
        for rate in other.kept:
            self.keep(rate)
        self.count(self.usage.plus(other.usage), used_s=self.used_s + other.used_s)
        self.logged = self.logged.plus(other.logged)
        other.count(NOTHING, used_s=0)
        other.logged = NOTHING
        self.last_record_ms = max(self.last_record_ms, other.last_record_ms)
        self.silent_until_ms = max(self.silent_until_ms, other.silent_until_ms)
        other.heir = self

    def count(self, usage: Usage, *, used_s: float) -> None:
        """Have counted this, and nothing else."""
        self._used = (used_s, usage.amount, self.limit)
        (
            self.amount,
            self.requests,
            self.throttled_requests,
            self.throttle_time_ms,
            self.observed_throttle_time_ms,
            self.observed_throttled_requests,
        ) = usage

    @property
    def usage(self) -> Usage:
        """What was counted since the bucket was made."""
        return Usage(
            self.amount,
            self.requests,
            self.throttled_requests,
            self.throttle_time_ms,
            self.observed_throttle_time_ms,
            self.observed_throttled_requests,
        )

    @property
    def is_in_use(self) -> bool:
        """Whether somebody may charge it without looking it up."""
        return self.holders > 0 or self.in_flight > 0

    @property
    def shaping(self) -> Shaping:
        """Which arithmetic decides."""
        return Shaping.SAMPLED if self._tokens is None else Shaping.PACED

    @property
    def burst_ms(self) -> int | None:
        """How much an idle client may have saved up, in milliseconds of the limit; None for sampled windows."""
        return None if self._tokens is None else self._tokens.burst_ms

    @property
    def max_fetch_bytes(self) -> int:
        """What a fetch may ask for at the most: what the limit allows in a window, paced in a burst."""
        return max(1, int(min(self._room, _MAX_INT32)))

    @property
    def gate(self) -> TokenBucket | None:
        """The tokens without which no request passes: those that decide, or those in front of sampled windows."""
        return self._spread if self._tokens is None else self._tokens

    def charge(self, amount: int, *, now_ms: int) -> int:
        """Record ``amount`` and return how long their sender must now be silent, in milliseconds; 0: not at all.

        What is over the limit stays recorded, and is owed for as long as this says, however little of it a response
        may say. Source: ``ClientQuotaManager.recordAndGetThrottleTimeMs``.
        """
        if self.heir is not None:
            return self.heir.charge(amount, now_ms=now_ms)
        self.amount += amount
        self.requests += 1
        self.last_record_ms = now_ms
        rate = self.rate
        rate.record(amount, now_ms=now_ms)
        if self.also is not None:
            self.also.record(amount, now_ms=now_ms)
        limit = self.limit
        if self._tokens is not None:
            left = self._tokens.record(amount, byte_rate_limit=limit, now_ms=now_ms)
            wait_ms = wait_for_tokens_ms(tokens=left, byte_rate_limit=limit)
        else:
            if self._spread is not None:
                self._spread.record(amount, byte_rate_limit=limit, now_ms=now_ms)
            # Under this sum no rate is over the limit, and while nothing is to be purged measuring changes nothing.
            if rate.total <= self._sampled_room and now_ms < rate.exact_before_ms:
                return 0
            byte_rate = rate.measure(now_ms=now_ms)
            if byte_rate <= limit:
                return 0
            window_ms = rate.window_ms(now_ms=now_ms)
            wait_ms = throttle_time_ms(byte_rate=byte_rate, byte_rate_limit=limit, window_ms=window_ms)
        self._charged = amount
        return min(wait_ms, self._longest_wait_ms)

    def reserve(self, amount: int, *, now_ms: int) -> None:
        """Take it that a request passes that is expected to charge ``amount``; each is to be ``settle``d.

        While it is unanswered no other passes for which there is no room, for as long as it would have to be waited for
        had it been charged. So a request that never ends holds up its bucket's other requests no longer than it may.
        """
        from_ms = max(self._reserved_until_ms, now_ms) if self.in_flight else now_ms
        self._reserved_until_ms = from_ms + amount * 1_000 / self.limit
        self.in_flight += amount

    def settle(self, amount: int) -> None:
        """Take it that such a request is answered, or never will be."""
        self.in_flight -= amount
        if self.in_flight and self.is_limited:
            self._reserved_until_ms -= amount * 1_000 / self.limit

    def is_free(self, amount: int, *, now_ms: int) -> bool:
        """Whether a request may pass that is expected to charge ``amount``. A pure read.

        It may while nothing is owed, and there is room for it beside all that is in flight; or nothing is in flight,
        for one request may always go over the limit, and is waited for afterwards.
        """
        if now_ms < self.silent_until_ms:
            return False
        if self._spread is not None:
            tokens = self._spread.peek(byte_rate_limit=self.limit, now_ms=now_ms)
            if tokens < 0 or (self.in_flight and tokens < self.in_flight + amount):
                return tokens >= 0 and now_ms >= self._reserved_until_ms
        return not self.in_flight or now_ms >= self._reserved_until_ms or self.has_room(amount, now_ms=now_ms)

    def spread_wait_ms(self, *, now_ms: int) -> int:
        """Return how long the line holds the next fetch back though its windows have room. A pure read."""
        if self._spread is None:
            return 0
        tokens = self._spread.peek(byte_rate_limit=self.limit, now_ms=now_ms)
        return min(wait_for_tokens_ms(tokens=tokens, byte_rate_limit=self.limit), self._longest_wait_ms)

    def free_at_ms(self, *, now_ms: int) -> int:
        """Return when a request may pass that may not now, if nothing is charged until then. A pure read."""
        at_ms = float(self.silent_until_ms)
        if self._spread is not None:
            tokens = self._spread.peek(byte_rate_limit=self.limit, now_ms=now_ms)
            at_ms = max(at_ms, now_ms - tokens * 1_000 / self.limit)
        if self.in_flight:
            at_ms = max(at_ms, self._reserved_until_ms)
        return max(now_ms + 1, ceil(at_ms))

    def line_wait_ms(self, place: Place | None, *, now_ms: int) -> int:
        """Return how long it will take for a request's turn to come, as far as can be told now.

        Args:
            place: Of the request; None: of one that comes now.
            now_ms: The time.
        """
        free_ms = wait_ms = self.free_at_ms(now_ms=now_ms) - now_ms
        line = self.line
        if line is not None:
            line.sweep(now_ms=now_ms)
            ahead = line.ahead(place) * line.mean_amount
            wait_ms += ceil(ahead * 1_000 / self.limit)
            if self._tokens is None and ahead:
                # Much may leave the windows at once, and a client that is away then would miss its share.
                room_at_ms = self.rate.room_at_ms(self._sampled_room - ahead, now_ms=now_ms)
                wait_ms = max(free_ms, min(wait_ms, room_at_ms - now_ms))
        return min(wait_ms, MAX_THROTTLE_TIME_MS)

    def fetch_bytes(self, most_bytes: int) -> int:
        """Return what the first fetch of a connection is expected to bring, of which nothing is known yet.

        Args:
            most_bytes: What it asks for; a broker gives one batch at least, of the size that others had.
        """
        known_bytes = self.line.mean_amount if self.line is not None else 0.0
        return max(most_bytes, int(known_bytes or self.max_fetch_bytes))

    def fetch_room(self, *, now_ms: int) -> float:
        """Return how many bytes fetches may bring now beside what is in flight; below 0 where there is no room."""
        tokens = self._tokens
        if tokens is not None:
            return tokens.peek(byte_rate_limit=self.limit, now_ms=now_ms) - self.in_flight
        rate = self.rate
        total = rate.total if now_ms < rate.exact_before_ms else rate.peek_sum(now_ms=now_ms)
        room = self._sampled_room - total
        if self._spread is not None:
            room = min(room, self._spread.peek(byte_rate_limit=self.limit, now_ms=now_ms))
        return room - self.in_flight

    def fetch_cap(self, room: float) -> int:
        """Return how many bytes a fetch may ask for where there is that much room; at least 1, which is one batch.

        It is no less than ``_LEAST_FETCH_MS`` of the limit: one batch after the other would cost a client more time
        than the quota does. Of what the limit allows at once, each connection that holds the bucket may ask for its
        share: all of them may wait at the broker for data, and get it at the same moment. While others wait in line
        it is one batch.
        """
        if self.line:
            return 1  # whole: of more than one the last may come cut, and is thrown away
        holders = self.holders
        share = self._fetch_share if holders <= 1 else self._fetch_share / holders
        return max(1, int(min(max(room, self._least_fetch), share)))

    def uncharge(self, amount: int, *, now_ms: int) -> None:
        """Take back what was charged and then not delivered (``ClientQuotaManager.unrecordQuotaSensor``)."""
        if self.heir is not None:
            self.heir.uncharge(amount, now_ms=now_ms)
            return
        self.amount -= amount
        self.last_record_ms = now_ms
        self.rate.record(-amount, now_ms=now_ms)
        if self.also is not None:
            self.also.record(-amount, now_ms=now_ms)
        if self._tokens is not None:
            self._tokens.record(-amount, byte_rate_limit=self.limit, now_ms=now_ms)

    def keep(self, rate: Rate) -> None:
        """Hold on to a rate that may decide again when the rules change once more."""
        if rate not in self.kept:
            self.kept = (*self.kept, rate)

    def has_room(self, amount: int, *, now_ms: int) -> bool:
        """Whether ``amount`` more, on top of all that is in flight, could be charged without a wait. A pure read."""
        if self.heir is not None:
            return self.heir.has_room(amount, now_ms=now_ms)
        more = self.in_flight + amount
        if self._tokens is not None:
            return self._tokens.peek(byte_rate_limit=self.limit, now_ms=now_ms) >= more
        rate = self.rate
        # The window is never shorter than N - 1 samples: under this sum no rate can be over the limit.
        if now_ms < rate.exact_before_ms and rate.total + more <= self._sampled_room:
            return True
        return rate.peek(now_ms=now_ms, more=more) <= self.limit

    def owes_until_ms(self, *, now_ms: int, has_new_rules: bool = False) -> float:
        """Return when nothing that was charged counts any more, if the bucket is over its limit; else 0. A pure read.

        Nor does a wait that was given end before it is over.

        Args:
            now_ms: the time.
            has_new_rules: the limit may be another now, so that whatever was charged is taken to be over it.
        """
        return max(self._counts_until_ms(now_ms, has_new_rules), self.silent_until_ms)

    def _counts_until_ms(self, now_ms: int, has_new_rules: bool) -> float:
        if self._tokens is not None:
            if has_new_rules or self._tokens.peek(byte_rate_limit=self.limit, now_ms=now_ms) < 0:
                return self._tokens.full_at_ms(byte_rate_limit=self.limit)
            return 0
        return self.rate.over_until_ms(0.0 if has_new_rules else self._sampled_room, now_ms=now_ms)

    def throttled(self, wait_ms: int, *, now_ms: int) -> None:
        """Count one throttled request, of which a response says that its client is to wait ``wait_ms``.

        Time that passes is counted once, however many connections wait in it.
        """
        if self.heir is not None:
            self.heir.throttled(wait_ms, now_ms=now_ms)
            return
        self.throttled_requests += 1
        self.throttle_time.record(wait_ms, now_ms=now_ms)
        until_ms = now_ms + wait_ms
        if until_ms > self._throttled_until_ms:
            self.throttle_time_ms += until_ms - max(now_ms, self._throttled_until_ms)
            self._throttled_until_ms = until_ms

    def observe(self, wait_ms: int, *, took_ms: int, now_ms: int) -> None:
        """Count what enforcement would have done to the request that has just been charged.

        Args:
            wait_ms: What the charge said; above 0.
            took_ms: How long the broker took to answer it.
            now_ms: The time.
        """
        if self.heir is not None:
            self.heir.observe(wait_ms, took_ms=took_ms, now_ms=now_ms)
            return
        shadow, limit, amount = self._shadow, self.limit, self._charged
        if self.kind is QuotaKind.FETCH:
            amount = min(amount, max(1, int(self._least_fetch)))  # it would have been capped
        if shadow is None or shadow.requests != self.requests - 1:
            # Since the last one there was a request for which there was room: by then nobody would have waited.
            waits_ms = [wait_ms]
            shadow = self._shadow = Shadow(self.rate, self._tokens, wait_ms=wait_ms, now_ms=now_ms)
        else:
            waits_ms = shadow.charge(amount, limit=limit, took_ms=took_ms, now_ms=now_ms)
        shadow.requests = self.requests
        self.observed_throttled_requests += len(waits_ms)
        for one_ms in waits_ms:
            self.observed_throttle_time_ms += min(one_ms, self._longest_wait_ms, self.max_throttle_time_ms)

    def silence(self, wait_ms: int, *, now_ms: int) -> None:
        """Let no request pass for ``wait_ms``, whichever connection it comes on."""
        if self.heir is not None:
            self.heir.silence(wait_ms, now_ms=now_ms)
            return
        self.silent_until_ms = max(self.silent_until_ms, now_ms + wait_ms)

    def tokens(self, *, now_ms: int) -> float | None:
        """Return what may be recorded now, below 0 what is owed; None where the rate over windows decides."""
        tokens = self._tokens  # once: a scrape reads from its own thread
        return None if tokens is None else tokens.peek(byte_rate_limit=self.limit, now_ms=now_ms)

    def utilisation(self, *, now_ms: int) -> float | None:
        """Return the rate over the limit; None without a limit."""
        return self.rate.peek(now_ms=now_ms) / self.limit if self.is_limited else None


class Departed:
    """Buckets that are in the table no more, kept until the usage log has taken what they had counted.

    One that a connection still holds may yet be charged, and is kept until it is let go. There is a bound, for clients
    choose their names: of the buckets above it ``other`` has the sum.
    """

    def __init__(self, most: int = MAX_DEPARTED) -> None:
        self.buckets: deque[Bucket] = deque()
        self.other = NOTHING
        self._most = most

    def add(self, bucket: Bucket) -> None:
        """Take a bucket that has just gone."""
        left = bucket.usage.minus(bucket.logged)
        if bucket.is_in_use or (left != NOTHING and len(self.buckets) < self._most):
            self.buckets.append(bucket)
        else:
            self.other = self.other.plus(left)
            bucket.logged = bucket.usage  # a reading that has begun may have it on its list

    def absorb(self, other: "Departed") -> None:
        """Take what ``other`` has."""
        self.buckets.extend(other.buckets)
        self.other = self.other.plus(other.other)


class ClientQuotaManager:
    """All buckets of one kind at one broker.

    ``rules`` may be a table that others go by, too: whoever changes it has each of them ``follow_rules``.

    Rules change under the buckets: samples stay, so a lower limit throttles at once on past usage and a higher one
    releases at the next request. A bucket takes its new limit when it is next asked for (``BrokerQuotas.generation``
    says when that is due).
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
        self._samples = kafka.quota_window_num
        self._window_ms = kafka.quota_window_size_seconds * 1_000
        self._shaping = shaping
        self._burst_ms = burst_ms
        self._max_throttle_time_ms = _MAX_INT32 if max_throttle_time_ms is None else max_throttle_time_ms
        self._places = Places[Bucket](
            max_buckets, owes_until_ms=self._owes_until_ms, is_named=self._is_named, on_gone=self._add_to_gone
        )
        self.departed = Departed() if is_logged else None
        self.gone = NOTHING  # of all buckets that there are no more
        # What Kafka measures under tags that no bucket of ours has. The buckets that record into a rate keep it.
        self._rates: WeakValueDictionary[Tags, Rate] = WeakValueDictionary()
        # For want of a place: by the entity of the rule that all of them are under, None without a limit.
        self._shared: dict[tuple[EntityName, EntityName] | None, Bucket] = {}
        self._shares_until_ms: int | None = None  # None: everybody has a place
        self._evicted_resolved = 0
        self.overflows = 0  # look-ups that found no place
        self.sharing_ended = 0  # how often; whoever shares is to ask again
        # Who was resolved under the rules in force, so that a client of many connections is not resolved for each.
        self._resolved: dict[tuple[str, str], Bucket] = {}

    def __iter__(self) -> Iterator[Bucket]:
        # Copies, as in ``Places``.
        return iter([*self._places, *list(self._shared.values())])

    def __len__(self) -> int:
        return len(self._places) + len(self._shared)

    @property
    def evicted(self) -> int:
        """How many buckets made room for others."""
        return self._places.evicted

    def follow(
        self, *, shaping: Shaping, burst_ms: int, max_throttle_time_ms: int | None, max_buckets: int = MAX_BUCKETS
    ) -> None:
        """Put the rules that there are under other numbers. Costs nothing per rule nor per bucket."""
        self._places.most = max_buckets
        self._shaping = shaping
        self._burst_ms = burst_ms
        self._max_throttle_time_ms = _MAX_INT32 if max_throttle_time_ms is None else max_throttle_time_ms
        self.generation += 1
        self._resolved.clear()

    def follow_rules(self, named: Mapping[Tags, bool] | None) -> None:
        """Take it that the table has changed. Costs nothing per bucket.

        Args:
            named: The buckets that a rule names now and did not, with True, and those that it names no longer, with
                False; None: any may be.
        """
        if named is None:
            self._places.recount(self.table.named())
        else:
            for tags, is_named in named.items():
                self._places.name(tags, is_named=is_named)
        self.generation += 1
        self._resolved.clear()

    def bucket(self, *, user: str, client_id: str, now_ms: int, is_exempt: bool = False) -> Bucket:
        """Return the bucket to charge, under the limit now in force.

        Without a limit that is the bucket of exactly this user and client-id, so that unlimited traffic can be told
        apart; where a rule wins, the one that Kafka's tags name. What Kafka would measure of an unlimited client under
        other tags is measured there too, and counts when a limit comes.
        """
        if is_exempt:
            return self._refreshed(Tags(user, client_id), None, None, None, None, now_ms)
        bucket = self._resolved.get((user, client_id))
        if bucket is None or not bucket.is_listed:
            own = Tags(user, client_id)
            tags, rule, level, limit = self.table.resolve(user=user, client_id=client_id)
            # While a kind of quota has no rule, Kafka records nothing (quotasEnabled).
            measured = tags if len(self.table) else None
            bucket = self._refreshed(own if limit is None else tags, measured, rule, level, limit, now_ms)
            if len(self._resolved) >= _MAX_RESOLVED or self.evicted >= self._evicted_resolved + _MAX_EVICTED_RESOLVED:
                self._resolved.clear()
                self._evicted_resolved = self.evicted
            self._resolved[own] = bucket
        return bucket

    def absorb(self, other: "ClientQuotaManager", *, now_ms: int) -> None:
        """Go on as both: ``other`` has turned out to be the same broker's. It is not to be asked any more.

        A name that has a bucket here and there has one of both; any other bucket comes over as it is.
        """
        self.generation += 1
        self._resolved.clear()
        for tags, rate in other._rates.items():  # noqa: SLF001 - another one of the same class
            bucket = self._places.get(tags)
            known = bucket.rate if bucket is not None and bucket.is_kafkas else self._rates.setdefault(tags, rate)
            if known is not rate:
                known.absorb(rate, now_ms=now_ms)
        for bucket in other._places:  # noqa: SLF001 - another one of the same class
            own = self._places.get(bucket.tags)
            if own is None and (self._is_named(bucket.tags) or self._has_room(now_ms)):
                self._take_in(bucket, now_ms)
                continue
            if own is None:
                own = self._shared_bucket(bucket.tags, bucket.rule, bucket.level, now_ms)
            bucket.is_listed = False
            own.absorb(bucket, now_ms=now_ms)
        for entity, bucket in other._shared.items():  # noqa: SLF001 - another one of the same class
            bucket.generation = 0
            own = self._shared.setdefault(entity, bucket)
            if own is not bucket:
                own.absorb(bucket, now_ms=now_ms)
        self.gone = self.gone.plus(other.gone)
        self.overflows += other.overflows
        self._places.evicted += other.evicted
        if self.departed is not None and other.departed is not None:
            self.departed.absorb(other.departed)

    def release(self, bucket: Bucket, *, now_ms: int) -> None:
        """Take it that one holder less may charge ``bucket``; who holds it has added itself to ``holders``."""
        self._places.release(bucket, now_ms=now_ms)

    def record_and_get_throttle_time_ms(self, amount: int, *, user: str, client_id: str, now_ms: int) -> int:
        """Resolve, charge and decide in one call (``ClientQuotaManager.recordAndGetThrottleTimeMs``)."""
        bucket = self.bucket(user=user, client_id=client_id, now_ms=now_ms)
        return min(bucket.charge(amount, now_ms=now_ms), bucket.max_throttle_time_ms)

    def limit_of(self, bucket: Bucket) -> float | None:
        """Return the limit now in force for ``bucket``, also when it was not used since the rules changed."""
        if bucket.generation == self.generation:
            return bucket.limit / self.kind.per_unit if bucket.is_limited else None
        user, client_id = bucket.tags
        return self.table.limit_of_tags(user=user, client_id=client_id)

    def expire(self, *, now_ms: int) -> int:
        """Forget buckets that were silent for an hour; return how many."""
        return sum(self.expire_slices(now_ms=now_ms))

    def expire_slices(self, *, now_ms: int) -> Iterator[int]:
        """Do the same a slice at a time, and yield how many each forgot: 200,000 in one go would take 0.2 s."""
        buckets = list(self._places)
        for start in range(0, len(buckets), _EXPIRY_SLICE):
            gone = 0
            for bucket in buckets[start : start + _EXPIRY_SLICE]:
                is_silent = now_ms - bucket.last_record_ms > EXPIRES_AFTER_MS and not bucket.in_flight
                is_silent = is_silent and bucket.silent_until_ms <= now_ms
                if is_silent and bucket.is_listed:
                    self._places.remove(bucket)
                    gone += 1
            if gone:
                self._resolved.clear()
            self._places.wake(now_ms=now_ms, most=_EXPIRY_SLICE)
            yield gone
        for entity, bucket in list(self._shared.items()):
            if now_ms - bucket.last_record_ms > EXPIRES_AFTER_MS and not bucket.holders:
                del self._shared[entity]
                self._add_to_gone(bucket)
        if self._shares_until_ms is not None:
            self._has_room(now_ms)

    def max_value_in_window(self, limit: float) -> float:
        """Return what the quota allows in its shortest window: N - 1 samples (``getMaxValueInQuotaWindow``)."""
        return limit * (self._samples - 1) * self._window_ms / 1_000

    def _refreshed(
        self,
        tags: Tags,
        measured: Tags | None,
        rule: QuotaRule | None,
        level: Level | None,
        limit: float | None,
        now_ms: int,
    ) -> Bucket:
        bucket = self._places.get(tags)
        if bucket is None:
            if self._is_named(tags) or self._has_room(now_ms):
                bucket = self._new(tags, now_ms)
                self._places.add(bucket)
            else:
                bucket = self._shared_bucket(tags, rule, level, now_ms)
        if bucket.generation != self.generation:
            if bucket.is_listed:
                self._measure_as_kafka(bucket, measured)
            self._put_under(bucket, rule, level, limit, now_ms)
        return bucket

    def _measure_as_kafka(self, bucket: Bucket, measured: Tags | None) -> None:
        """Have what is charged to ``bucket`` recorded under the tags that Kafka gives it; None: Kafka records nothing.

        Kafka keeps the samples of tags that nothing is charged to any more. So does the bucket, while there is one.
        """
        is_kafkas = measured == bucket.tags
        if is_kafkas != bucket.is_kafkas:
            if is_kafkas:
                known = self._rates.get(bucket.tags)
                is_new = bucket.generation < 0
                bucket.rate = known or (bucket.rate if is_new else self._new_rate())
            else:
                self._rates[bucket.tags] = bucket.rate
                bucket.keep(bucket.rate)
                bucket.rate = self._new_rate()
            bucket.is_kafkas = is_kafkas
        bucket.also = None if is_kafkas or measured is None else self._rate_of(measured)
        if bucket.also is not None:
            bucket.keep(bucket.also)

    def _rate_of(self, tags: Tags) -> Rate:
        """Return what Kafka measures under ``tags``, which are not those of the bucket that asks."""
        rate = self._rates.get(tags)
        if rate is None:
            bucket = self._places.get(tags)
            rate = bucket.rate if bucket is not None and bucket.is_kafkas else self._new_rate()
            self._rates[tags] = rate
        return rate

    def _take_in(self, bucket: Bucket, now_ms: int) -> None:
        """Give a bucket of another manager a place; it goes by the rules of this table when it is next asked for."""
        known = self._rates.get(bucket.tags) if bucket.is_kafkas else None
        if known is not None:
            known.absorb(bucket.rate, now_ms=now_ms)
            bucket.rate = known
        bucket.generation = 0  # that of no table that has changed
        bucket.is_waiting = False
        bucket.line = None  # who waits in it looks again, and finds the one here
        self._places.add(bucket)

    def _new_rate(self) -> Rate:
        return Rate(samples=self._samples, window_ms=self._window_ms)

    def _new(self, tags: Tags, now_ms: int) -> Bucket:
        return Bucket(self.kind, tags, self._new_rate(), now_ms)

    def _has_room(self, now_ms: int) -> bool:
        """Whether a newcomer gets a bucket of its own; if there is no place for it, let the oldest one make room.

        Once there is none, all newcomers share, until there is room and everybody who shares asks again: else a name
        could have its own bucket on one connection and the shared one on another.
        """
        if self._shares_until_ms is not None and now_ms < self._shares_until_ms:
            return False
        if not self._places.make_room(now_ms=now_ms):
            self._shares_until_ms = now_ms + _SHARES_AT_LEAST_MS
            return False
        if self._shares_until_ms is not None:
            self._shares_until_ms = None
            self.sharing_ended += 1
        return True

    def _shared_bucket(self, tags: Tags, rule: QuotaRule | None, level: Level | None, now_ms: int) -> Bucket:
        """Return the bucket of all that are under this rule and have no place."""
        self.overflows += 1
        entity = (rule.user, rule.client_id) if rule else None
        bucket = self._shared.get(entity)
        if bucket is None:
            shared_tags = Tags(SHARED, SHARED)
            if level is not None:
                # What the rule names stays: {user: alice, client-id: <default>} is shared as alice, <shared>.
                shared_tags = Tags(
                    *level.tags(tags.user if level.user else SHARED, tags.client_id if level.client_id else SHARED)
                )
            bucket = self._shared[entity] = self._new(shared_tags, now_ms)
        return bucket

    def _add_to_gone(self, bucket: Bucket) -> None:
        self.gone = self.gone.plus(bucket.usage)
        if self.departed is not None:
            self.departed.add(bucket)

    def _is_named(self, tags: Tags) -> bool:
        return self.table.names(tags)

    def _owes_until_ms(self, bucket: Bucket, now_ms: int) -> float:
        return bucket.owes_until_ms(now_ms=now_ms, has_new_rules=bucket.generation != self.generation)

    def _put_under(
        self, bucket: Bucket, rule: QuotaRule | None, level: Level | None, limit: float | None, now_ms: int
    ) -> None:
        bucket.generation = self.generation
        bucket.rule = rule
        bucket.level = level
        bucket.enforcement = rule.enforcement if rule else None
        bucket.set_limit(float(UNLIMITED) if limit is None else float(limit) * self.kind.per_unit)
        window_room = self.max_value_in_window(bucket.limit)
        own_shaping = rule.shaping if rule is not None and self.kind is not QuotaKind.MUTATION else None
        shaping = own_shaping or self._shaping
        is_paced = shaping is Shaping.PACED and bucket.is_limited
        is_spread = self.kind is QuotaKind.FETCH and bucket.is_limited and not is_paced
        bucket.set_arithmetic(
            room=window_room,
            burst_ms=self._burst_ms if is_paced else None,
            spread_ms=(self._samples - 1) * self._window_ms // 2 if is_spread else None,
            longest_wait_ms=self._window_ms if self.kind is QuotaKind.REQUEST else _MAX_INT32,
            max_throttle_time_ms=self._max_throttle_time_ms,
            now_ms=now_ms,
        )
