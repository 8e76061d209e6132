"""One bucket: decides how long the clients of one entity wait."""

from dataclasses import dataclass
from math import ceil
from typing import Final

from kafka_quota_proxy.config.model import Enforcement, QuotaRule, Shaping
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.config.units import UNLIMITED
from kafka_quota_proxy.proxy.quota.bucket_bounds import MAX_INT32, BucketBounds, bucket_bounds
from kafka_quota_proxy.proxy.quota.entity import Level
from kafka_quota_proxy.proxy.quota.entity_usage import EntityUsage
from kafka_quota_proxy.proxy.quota.line import Line, Place
from kafka_quota_proxy.proxy.quota.shadow_bucket import ShadowBucket
from kafka_quota_proxy.proxy.quota.throttle import MAX_THROTTLE_TIME_MS, throttle_time_ms, wait_for_tokens_ms
from kafka_quota_proxy.proxy.quota.token_bucket import TokenBucket

_UNBOUNDED: Final = bucket_bounds(
    float(UNLIMITED), float(UNLIMITED), saved_ms=None, longest_wait_ms=MAX_INT32, max_throttle_time_ms=MAX_INT32
)


@dataclass(slots=True, eq=False, repr=False)
class Bucket(EntityUsage):
    """The limit on the usage of one entity.

    A bucket decides by sampled windows (``rate``), as Kafka does, or paced, by a token bucket. An amount over the limit
    stays recorded and is owed until time has paid for it; ``max_throttle_time_ms`` bounds only the wait that one
    response says.

    Attributes:
        enforcement: Of the rule; None: the listener's.
        in_flight: Amounts of requests that the broker has not answered; of fetches, the expected amounts.
        silent_until_ms: No request of any connection passes before this time.
        line: The requests that wait for that time; None while none ever waited.
        absorbed_by: The bucket that absorbed this one and takes its charges.
        holders, is_listed, is_parked: Belong to ``BucketTable``.
    """

    rule: QuotaRule | None = None
    level: Level | None = None
    enforcement: Enforcement | None = None
    generation: int = -1
    line: Line | None = None
    in_flight: int = 0
    silent_until_ms: int = 0
    holders: int = 0
    is_listed: bool = False
    is_parked: bool = False
    absorbed_by: "Bucket | None" = None
    _bounds: BucketBounds = _UNBOUNDED
    _sampled_room: float = float(UNLIMITED)
    _tokens: TokenBucket | None = None
    _pacer: TokenBucket | None = None
    _reserved_until_ms: float = 0.0
    _last_over: int = 0  # the amount of the last request over the limit

    def configure(
        self,
        *,
        room: float,
        burst_ms: int | None,
        pacer_ms: int | None,
        longest_wait_ms: int,
        max_throttle_time_ms: int,
        now_ms: int,
    ) -> None:
        """Change how the bucket decides. The usage stays, and what is owed stays as an amount.

        Args:
            room: What the limit allows in the shortest window.
            burst_ms: How much an idle client saves up, in milliseconds of the limit; None: sampled windows decide.
            pacer_ms: The same for a token bucket in front of sampled windows; None: the windows alone decide. Fetches
                have it, else they would get a window's worth at once every eleven seconds.
            longest_wait_ms: The longest wait that a charge returns, and the most that is ever owed.
            max_throttle_time_ms: The longest wait that a response says.
            now_ms: The time.
        """
        owed_ms = self.silent_until_ms - now_ms
        self._sampled_room = room
        self._bounds = bucket_bounds(
            self.limit,
            room if burst_ms is None else self.limit * burst_ms / 1_000,
            saved_ms=burst_ms or pacer_ms,
            longest_wait_ms=longest_wait_ms,
            max_throttle_time_ms=max_throttle_time_ms,
        )
        self._tokens = self._token_bucket(self._tokens, burst_ms, now_ms)
        self._pacer = self._token_bucket(self._pacer, pacer_ms, now_ms)
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
        """Return how long the bucket needs to come back to its limit."""
        limit = self.limit
        if self._tokens is not None:
            tokens = self._tokens.peek(byte_rate_limit=limit, now_ms=now_ms)
            wait_ms = wait_for_tokens_ms(tokens=tokens, byte_rate_limit=limit)
        else:
            total, window_ms = self.rate.peek_sum(now_ms=now_ms), self.rate.peek_window_ms(now_ms=now_ms)
            byte_rate = total * 1_000 / window_ms
            wait_ms = max(0, throttle_time_ms(byte_rate=byte_rate, byte_rate_limit=limit, window_ms=window_ms))
        return min(wait_ms, self._bounds.longest_wait_ms)

    def charge(self, amount: int, *, now_ms: int) -> int:
        """Record ``amount`` and return the wait in milliseconds that it causes; 0 within the limit.

        An amount over the limit is owed for all of this wait, even if a response says less.

        Source: ``ClientQuotaManager.recordAndGetThrottleTimeMs``.
        """
        if self.absorbed_by is not None:
            return self.absorbed_by.charge(amount, now_ms=now_ms)
        self.amount += amount
        self.requests += 1
        self.last_record_ms = now_ms
        rate = self.rate
        rate.record(amount, now_ms=now_ms)
        if self.kafka_rate is not None:
            self.kafka_rate.record(amount, now_ms=now_ms)
        limit = self.limit
        if self._tokens is not None:
            left = self._tokens.record(amount, byte_rate_limit=limit, now_ms=now_ms)
            wait_ms = wait_for_tokens_ms(tokens=left, byte_rate_limit=limit)
        else:
            if self._pacer is not None:
                self._pacer.record(amount, byte_rate_limit=limit, now_ms=now_ms)
            # Below this sum no rate is over the limit, and while nothing is to be purged measuring changes nothing.
            if rate.total <= self._sampled_room and now_ms < rate.exact_before_ms:
                return 0
            byte_rate = rate.measure(now_ms=now_ms)
            if byte_rate <= limit:
                return 0
            window_ms = rate.window_ms(now_ms=now_ms)
            wait_ms = throttle_time_ms(byte_rate=byte_rate, byte_rate_limit=limit, window_ms=window_ms)
        self._last_over = amount
        longest_wait_ms = self._bounds.longest_wait_ms
        return wait_ms if wait_ms < longest_wait_ms else longest_wait_ms

    def uncharge(self, amount: int, *, now_ms: int) -> None:
        """Take back an amount that was charged but not delivered (``ClientQuotaManager.unrecordQuotaSensor``)."""
        if self.absorbed_by is not None:
            self.absorbed_by.uncharge(amount, now_ms=now_ms)
            return
        self.amount -= amount
        self.last_record_ms = now_ms
        self.rate.record(-amount, now_ms=now_ms)
        if self.kafka_rate is not None:
            self.kafka_rate.record(-amount, now_ms=now_ms)
        if self._tokens is not None:
            self._tokens.record(-amount, byte_rate_limit=self.limit, now_ms=now_ms)

    def has_room(self, amount: int, *, now_ms: int) -> bool:
        """Whether ``amount``, on top of all that is in flight, could be charged without a wait. Changes nothing."""
        if self.absorbed_by is not None:
            return self.absorbed_by.has_room(amount, now_ms=now_ms)
        more = self.in_flight + amount
        if self._tokens is not None:
            return self._tokens.peek(byte_rate_limit=self.limit, now_ms=now_ms) >= more
        rate = self.rate
        # The window is never shorter than N - 1 samples: below this sum no rate is over the limit.
        if now_ms < rate.exact_before_ms and rate.total + more <= self._sampled_room:
            return True
        return rate.peek(now_ms=now_ms, more=more) <= self.limit

    def silence(self, wait_ms: int, *, now_ms: int) -> None:
        """Let no request of any connection pass for ``wait_ms``."""
        if self.absorbed_by is not None:
            self.absorbed_by.silence(wait_ms, now_ms=now_ms)
            return
        self.silent_until_ms = max(self.silent_until_ms, now_ms + wait_ms)

    def throttled(self, wait_ms: int, *, now_ms: int) -> None:
        """Count a request whose response tells the client to wait ``wait_ms``."""
        if self.absorbed_by is not None:
            self.absorbed_by.throttled(wait_ms, now_ms=now_ms)
            return
        self.throttling.count(wait_ms, now_ms=now_ms)

    def observe(self, wait_ms: int, *, took_ms: int, now_ms: int) -> None:
        """Count what enforcement would have done to the request charged last, which took ``took_ms``."""
        if self.absorbed_by is not None:
            self.absorbed_by.observe(wait_ms, took_ms=took_ms, now_ms=now_ms)
            return
        bounds, amount, shadow = self._bounds, self._last_over, self.throttling.shadow
        if self.kind is QuotaKind.FETCH:
            amount = min(amount, max(1, int(bounds.least_fetch)))  # enforcement would have capped the fetch
        if shadow is None or shadow.requests != self.requests - 1:
            # The request before this one had room, so under enforcement no client would be waiting now.
            waits_ms = [wait_ms]
            shadow = self.throttling.shadow = ShadowBucket(self.rate, self._tokens, wait_ms=wait_ms, now_ms=now_ms)
        else:
            waits_ms = shadow.charge(amount, limit=self.limit, took_ms=took_ms, now_ms=now_ms)
        shadow.requests = self.requests
        max_wait_ms = min(bounds.longest_wait_ms, bounds.max_throttle_time_ms)
        self.throttling.count_observed(waits_ms, max_wait_ms=max_wait_ms)

    @property
    def max_throttle_time_ms(self) -> int:
        """The longest wait that a response says."""
        return self._bounds.max_throttle_time_ms

    def reserve(self, amount: int, *, now_ms: int) -> None:
        """Reserve the amount that a passing request is expected to charge, until ``settle``.

        The reservation holds other requests back for as long as the same charge would. So a request that never ends
        does not block its bucket for longer.
        """
        from_ms = max(self._reserved_until_ms, now_ms) if self.in_flight else now_ms
        self._reserved_until_ms = from_ms + amount * 1_000 / self.limit
        self.in_flight += amount

    def settle(self, amount: int) -> None:
        """End the reservation of a request that was answered, or never will be."""
        self.in_flight -= amount
        if self.in_flight and self.is_limited:
            self._reserved_until_ms -= amount * 1_000 / self.limit

    def is_free(self, amount: int, *, now_ms: int) -> bool:
        """Whether a request that is expected to charge ``amount`` may pass. Changes nothing.

        It passes if nothing is owed and it fits in addition to all requests in flight. With nothing in flight it passes
        even if it does not fit: one request may always go over the limit, and is waited for afterwards.
        """
        if now_ms < self.silent_until_ms:
            return False
        if self._pacer is not None:
            tokens = self._pacer.peek(byte_rate_limit=self.limit, now_ms=now_ms)
            if tokens < 0 or (self.in_flight and tokens < self.in_flight + amount):
                return tokens >= 0 and now_ms >= self._reserved_until_ms
        return not self.in_flight or now_ms >= self._reserved_until_ms or self.has_room(amount, now_ms=now_ms)

    def free_at_ms(self, *, now_ms: int) -> int:
        """Return when a held request may pass, if nothing is charged until then. Changes nothing."""
        at_ms = float(self.silent_until_ms)
        if self._pacer is not None:
            tokens = self._pacer.peek(byte_rate_limit=self.limit, now_ms=now_ms)
            at_ms = max(at_ms, now_ms - tokens * 1_000 / self.limit)
        if self.in_flight:
            at_ms = max(at_ms, self._reserved_until_ms)
        return max(now_ms + 1, ceil(at_ms))

    def line_wait_ms(self, place: Place | None, *, now_ms: int) -> int:
        """Estimate how long a request has to wait in the line; without a ``place`` it arrives now."""
        free_ms = wait_ms = self.free_at_ms(now_ms=now_ms) - now_ms
        line = self.line
        if line is not None:
            line.sweep(now_ms=now_ms)
            ahead = line.ahead(place) * line.mean_amount
            wait_ms += ceil(ahead * 1_000 / self.limit)
            if self._tokens is None and ahead:
                # Much may leave the windows at once, and a client that is away at that time would miss its share.
                room_at_ms = self.rate.room_at_ms(self._sampled_room - ahead, now_ms=now_ms)
                wait_ms = max(free_ms, min(wait_ms, room_at_ms - now_ms))
        return min(wait_ms, MAX_THROTTLE_TIME_MS)

    def spread_wait_ms(self, *, now_ms: int) -> int:
        """Return how long pacing holds the next fetch back although the windows have room. Changes nothing."""
        if self._pacer is None:
            return 0
        tokens = self._pacer.peek(byte_rate_limit=self.limit, now_ms=now_ms)
        return min(wait_for_tokens_ms(tokens=tokens, byte_rate_limit=self.limit), self._bounds.longest_wait_ms)

    def fetch_bytes(self, most_bytes: int) -> int:
        """Return how many bytes the first fetch of a connection is expected to bring, if it asks for ``most_bytes``.

        A broker returns one batch at least, so the size of earlier batches counts too.
        """
        mean_bytes = self.line.mean_amount if self.line is not None else 0.0
        return max(most_bytes, int(mean_bytes or self.max_fetch_bytes))

    def fetch_room(self, *, now_ms: int) -> float:
        """Return how many bytes fetches may bring on top of all that is in flight; negative without room."""
        tokens = self._tokens
        if tokens is not None:
            return tokens.peek(byte_rate_limit=self.limit, now_ms=now_ms) - self.in_flight
        rate = self.rate
        total = rate.total if now_ms < rate.exact_before_ms else rate.peek_sum(now_ms=now_ms)
        room = self._sampled_room - total
        if self._pacer is not None:
            room = min(room, self._pacer.peek(byte_rate_limit=self.limit, now_ms=now_ms))
        return room - self.in_flight

    def fetch_cap(self, room: float) -> int:
        """Return how many bytes a fetch may ask for when there is that much room; 1 byte asks for one batch.

        A fetch may always ask for some milliseconds of the limit (``least_fetch``): batch after batch would cost a
        client more time than its quota. The connections share what the limit allows at once, because all of them may
        wait at the broker for data and get it at the same moment.
        """
        if self.line:
            return 1  # whole: the last of several batches may come cut, and a client throws it away
        bounds, holders = self._bounds, self.holders
        share = bounds.fetch_share if holders <= 1 else bounds.fetch_share / holders
        return max(1, int(min(max(room, bounds.least_fetch), share)))

    @property
    def max_fetch_bytes(self) -> int:
        """The most that a fetch may ask for: what the limit allows in a window, or paced in a burst."""
        return self._bounds.max_fetch

    @property
    def is_in_use(self) -> bool:
        """Whether a connection may charge the bucket without looking it up."""
        return self.holders > 0 or self.in_flight > 0

    @property
    def shaping(self) -> Shaping:
        """Which arithmetic decides."""
        return Shaping.SAMPLED if self._tokens is None else Shaping.PACED

    @property
    def pacing_tokens(self) -> TokenBucket | None:
        """The token bucket that holds requests back: the one that decides, or the one in front of the windows."""
        return self._pacer if self._tokens is None else self._tokens

    def tokens(self, *, now_ms: int) -> float | None:
        """Return how much may be recorded now, negative when owed; None for sampled windows."""
        tokens = self._tokens  # read once: a scrape runs in another thread
        return None if tokens is None else tokens.peek(byte_rate_limit=self.limit, now_ms=now_ms)

    def owes_until_ms(self, *, now_ms: int, has_new_rules: bool = False) -> float:
        """Return when none of the recorded usage counts any more, if the bucket is over its limit; else 0.

        Never before the end of a wait that a response has said. With ``has_new_rules`` the limit may have changed, so
        the bucket counts as over it. Changes nothing.
        """
        tokens = self._tokens
        if tokens is None:
            room = 0.0 if has_new_rules else self._sampled_room
            until_ms: float = self.rate.over_until_ms(room, now_ms=now_ms)
        elif has_new_rules or tokens.peek(byte_rate_limit=self.limit, now_ms=now_ms) < 0:
            until_ms = tokens.full_at_ms(byte_rate_limit=self.limit)
        else:
            until_ms = 0
        return max(until_ms, self.silent_until_ms)

    def absorb(self, other: "Bucket", *, now_ms: int) -> None:
        """Take over the usage of ``other``, which has the same name at the same broker.

        Requests in flight there are charged here when they are answered. The manager sets the limit again, which
        computes the wait for the sum.
        """
        for own, others in ((self._tokens, other._tokens), (self._pacer, other._pacer)):  # noqa: SLF001 - same class
            if own is not None and others is not None:
                own.absorb(others, byte_rate_limit=self.limit, now_ms=now_ms)
        self.absorb_usage(other, now_ms=now_ms)
        self.silent_until_ms = max(self.silent_until_ms, other.silent_until_ms)
        other.absorbed_by = self
