"""Decides how long the clients of one entity (a user, a client-id, or both) wait."""

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

    A bucket decides by sampled windows (``rate``), as Kafka does, or by a token bucket if the quota is paced. An amount
    over the limit stays recorded, and the clients owe it until enough time has passed. ``max_throttle_time_ms`` bounds
    only the throttle time that one response tells a client.

    Attributes:
        enforcement: The enforcement that the rule sets. None means that the listener's setting applies.
        generation: The generation of the rules that the bucket follows. -1 means that it has followed none yet.
        in_flight: The sum of the amounts of requests that the broker has not answered. A fetch counts with the amount
            that it is expected to bring.
        silent_until_ms: No request of any connection passes before this time.
        line: The requests that wait to pass. It is None until the first request waits.
        absorbed_by: The bucket that absorbed this one and takes its charges.
        holders, is_listed, is_parked: See ``BucketTable``, which uses them.
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
        """Change how the bucket decides. The recorded usage stays, and clients still owe the same amount.

        Args:
            room: The amount that the limit allows in the shortest window over which a rate is measured.
            burst_ms: How much an idle client saves up in the token bucket that decides, in milliseconds of the limit.
                With None, sampled windows decide.
            pacer_ms: How much an idle client saves up in a token bucket that spreads requests in front of the sampled
                windows, in milliseconds of the limit. With None, there is no such token bucket. Fetches have it,
                because otherwise they would get a window's worth of bytes at once every eleven seconds.
            longest_wait_ms: The longest wait that ``charge`` returns.
            max_throttle_time_ms: The longest throttle time that a response tells a client.
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
        """Return how many milliseconds pass until the usage is within the limit again."""
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
        """Record ``amount``, and return the wait in milliseconds that it causes. Returns 0 within the limit.

        The bucket needs all of this wait to come back to its limit, even if the response tells the client less.

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
            # Below this sum no rate is over the limit. Before this time no slot is old enough to be purged, so a
            # measurement would change nothing.
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
        """Take back an amount that was charged but not delivered.

        Source: ``ClientQuotaManager.unrecordQuotaSensor``.
        """
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
        """Return whether ``amount`` and all amounts in flight could be charged without a wait. Changes nothing."""
        if self.absorbed_by is not None:
            return self.absorbed_by.has_room(amount, now_ms=now_ms)
        more = self.in_flight + amount
        if self._tokens is not None:
            return self._tokens.peek(byte_rate_limit=self.limit, now_ms=now_ms) >= more
        rate = self.rate
        # The window is never shorter than N - 1 samples, so below this sum no rate is over the limit.
        if now_ms < rate.exact_before_ms and rate.total + more <= self._sampled_room:
            return True
        return rate.peek(now_ms=now_ms, more=more) <= self.limit

    def silence(self, wait_ms: int, *, now_ms: int) -> None:
        """Hold back the requests of all connections for ``wait_ms`` from now on."""
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
        """Count the waits that enforcement would have caused, for a bucket that is only observed.

        Call this after a charge that returned ``wait_ms``. The broker took ``took_ms`` to answer the charged request.
        """
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
        """The longest throttle time that a response tells a client."""
        return self._bounds.max_throttle_time_ms

    def reserve(self, amount: int, *, now_ms: int) -> None:
        """Reserve the amount that a request is expected to charge when it is answered, until ``settle``.

        The reservation holds other requests back for as long as a charge of this amount would, and no longer. So a
        request that is never answered does not block its bucket for ever.
        """
        from_ms = max(self._reserved_until_ms, now_ms) if self.in_flight else now_ms
        self._reserved_until_ms = from_ms + amount * 1_000 / self.limit
        self.in_flight += amount

    def settle(self, amount: int) -> None:
        """End the reservation of a request that was answered, or that will never be answered."""
        self.in_flight -= amount
        if self.in_flight and self.is_limited:
            self._reserved_until_ms -= amount * 1_000 / self.limit

    def is_free(self, amount: int, *, now_ms: int) -> bool:
        """Return whether a request that is expected to charge ``amount`` may pass. Changes nothing.

        The request passes if no amount is owed and if it fits into the limit together with all requests in flight.
        With no request in flight it passes even if it does not fit, because one request may always go over the limit.
        Later requests then wait until that amount is paid.
        """
        if now_ms < self.silent_until_ms:
            return False
        if self._pacer is not None:
            tokens = self._pacer.peek(byte_rate_limit=self.limit, now_ms=now_ms)
            if tokens < 0 or (self.in_flight and tokens < self.in_flight + amount):
                return tokens >= 0 and now_ms >= self._reserved_until_ms
        return not self.in_flight or now_ms >= self._reserved_until_ms or self.has_room(amount, now_ms=now_ms)

    def free_at_ms(self, *, now_ms: int) -> int:
        """Return the time when a request that is held back may pass, if nothing is charged before. Changes nothing."""
        at_ms = float(self.silent_until_ms)
        if self._pacer is not None:
            tokens = self._pacer.peek(byte_rate_limit=self.limit, now_ms=now_ms)
            at_ms = max(at_ms, now_ms - tokens * 1_000 / self.limit)
        if self.in_flight:
            at_ms = max(at_ms, self._reserved_until_ms)
        return max(now_ms + 1, ceil(at_ms))

    def line_wait_ms(self, place: Place | None, *, now_ms: int) -> int:
        """Estimate how many milliseconds a request waits in the line. Without a ``place`` the request arrives now."""
        free_ms = wait_ms = self.free_at_ms(now_ms=now_ms) - now_ms
        line = self.line
        if line is not None:
            line.sweep(now_ms=now_ms)
            ahead = line.ahead(place) * line.mean_amount
            wait_ms += ceil(ahead * 1_000 / self.limit)
            if self._tokens is None and ahead:
                # All of a window's records stop counting at once. A client that is away at that time would miss its
                # share.
                room_at_ms = self.rate.room_at_ms(self._sampled_room - ahead, now_ms=now_ms)
                wait_ms = max(free_ms, min(wait_ms, room_at_ms - now_ms))
        return min(wait_ms, MAX_THROTTLE_TIME_MS)

    def spread_wait_ms(self, *, now_ms: int) -> int:
        """Return for how many ms the token bucket in front of the sampled windows holds back the next fetch.

        Returns 0 for a bucket without such a token bucket. Changes nothing.
        """
        if self._pacer is None:
            return 0
        tokens = self._pacer.peek(byte_rate_limit=self.limit, now_ms=now_ms)
        return min(wait_for_tokens_ms(tokens=tokens, byte_rate_limit=self.limit), self._bounds.longest_wait_ms)

    def fetch_bytes(self, most_bytes: int) -> int:
        """Return how many bytes the first fetch of a connection is expected to bring, if it asks for ``most_bytes``.

        A broker returns at least one batch, however few bytes a fetch asks for. So a fetch is expected to bring at
        least the mean of the last fetches.
        """
        mean_bytes = self.line.mean_amount if self.line is not None else 0.0
        return max(most_bytes, int(mean_bytes or self.max_fetch_bytes))

    def fetch_room(self, *, now_ms: int) -> float:
        """Return how many bytes fetches may bring in addition to those that are in flight.

        A negative number means that there is no room.
        """
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
        """Return how many bytes a fetch may ask for if the bucket has ``room`` bytes. 1 means a single batch.

        A fetch may always ask for some milliseconds of the limit (``least_fetch``), because a client that fetched one
        batch after another would get less than its quota. The connections of the bucket share the bytes that the limit
        allows at once, because all of them may wait at the broker for data and get it at the same moment.
        """
        if self.line:
            return 1  # A single batch comes whole. The last of several may be cut off, and a client throws that away.
        bounds, holders = self._bounds, self.holders
        share = bounds.fetch_share if holders <= 1 else bounds.fetch_share / holders
        return max(1, int(min(max(room, bounds.least_fetch), share)))

    @property
    def max_fetch_bytes(self) -> int:
        """The most bytes that a fetch may ever ask for (see ``BucketBounds.max_fetch``)."""
        return self._bounds.max_fetch

    @property
    def is_in_use(self) -> bool:
        """Whether a connection may still charge this bucket without a new look-up."""
        return self.holders > 0 or self.in_flight > 0

    @property
    def shaping(self) -> Shaping:
        """Whether sampled windows or a token bucket decide."""
        return Shaping.SAMPLED if self._tokens is None else Shaping.PACED

    @property
    def pacing_tokens(self) -> TokenBucket | None:
        """The token bucket that decides, or the token bucket in front of the sampled windows, or None."""
        return self._pacer if self._tokens is None else self._tokens

    def tokens(self, *, now_ms: int) -> float | None:
        """Return the tokens of a paced bucket, or None if sampled windows decide. Negative tokens are owed."""
        tokens = self._tokens  # Read only once, because a scrape of the metrics runs in another thread.
        return None if tokens is None else tokens.peek(byte_rate_limit=self.limit, now_ms=now_ms)

    def owes_until_ms(self, *, now_ms: int, has_new_rules: bool = False) -> float:
        """Return the time until which the bucket must be kept, because clients may owe an amount. Changes nothing.

        If the bucket is over its limit, this is the time when its recorded usage no longer counts. The time is never
        before ``silent_until_ms``. A past time means that no client owes anything. With ``has_new_rules`` the limit may
        have changed, so the bucket counts as over its limit.
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
        """Take over the usage of ``other``, a bucket with the same tags at the same broker.

        Requests that are in flight in ``other`` are charged to this bucket when they are answered. The manager sets the
        limit again afterwards, which computes the wait for the sum of both usages.
        """
        for own, others in ((self._tokens, other._tokens), (self._pacer, other._pacer)):  # noqa: SLF001 - same class
            if own is not None and others is not None:
                own.absorb(others, byte_rate_limit=self.limit, now_ms=now_ms)
        self.absorb_usage(other, now_ms=now_ms)
        self.silent_until_ms = max(self.silent_until_ms, other.silent_until_ms)
        other.absorbed_by = self
