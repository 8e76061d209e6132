"""Applies the limit on one entity (a user, a client-id, or both), and computes how long its clients wait."""

from dataclasses import dataclass, field
from math import ceil, inf
from typing import Final

from kafka_quota_proxy.config.model import Enforcement, QuotaRule, Shaping
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.config.units import UNLIMITED
from kafka_quota_proxy.proxy.quota.awaited_fetches import CALM_MS, AwaitedFetches
from kafka_quota_proxy.proxy.quota.bucket_bounds import MAX_INT32, BucketBounds, bucket_bounds
from kafka_quota_proxy.proxy.quota.entity import Level, Tags
from kafka_quota_proxy.proxy.quota.entity_usage import EntityUsage
from kafka_quota_proxy.proxy.quota.line import Line, Place
from kafka_quota_proxy.proxy.quota.rate import Rate
from kafka_quota_proxy.proxy.quota.reservations import Reservations
from kafka_quota_proxy.proxy.quota.shadow_bucket import ShadowBucket
from kafka_quota_proxy.proxy.quota.throttle import MAX_THROTTLE_TIME_MS, throttle_time_ms, wait_for_tokens_ms
from kafka_quota_proxy.proxy.quota.token_bucket import TokenBucket

# If a bucket of these kinds is over its limit, requests wait in its line. For other kinds the client is muted.
HAS_LINE: Final = frozenset({QuotaKind.PRODUCE, QuotaKind.FETCH, QuotaKind.REQUEST_RATE})
_UNBOUNDED: Final = bucket_bounds(
    float(UNLIMITED), float(UNLIMITED), is_paced=False, longest_wait_ms=MAX_INT32, max_throttle_time_ms=MAX_INT32
)


@dataclass(slots=True, eq=False, repr=False)
class Bucket:
    """The usage of one entity (a user, a client-id, or both) for one kind of quota, and the limit on this usage.

    The limit applies to sampled windows (``rate``), as in Kafka, or to a token bucket if the quota is paced. Usage over
    the limit is also recorded. Clients then owe the excess until enough time has passed.

    Attributes:
        usage: What was charged.
        reserved: What will probably be charged for requests in flight.
        rate: The rate of all charges.
        limit: The limit per second, in the unit in which usage is charged, or ``float(UNLIMITED)``.
        has_kafka_tags: Whether Kafka would use the same tags, so that ``rate`` is the rate in Kafka.
        kafka_rate: The rate under the tags that Kafka would use, if they differ. Several buckets may share it.
        kafka_tokens: The token bucket under the same tags, or None if it would be full.
        kept_rates: What keeps the rates under the tags of earlier rules. They are used again if those rules return.
        enforcement: The enforcement that the rule sets. None means that the listener's setting applies.
        generation: The generation of the rules that set the limit, or -1 if the limit has not been set yet.
        silent_until_ms: No request is forwarded before this time.
        line: The line of waiting requests. It is None until the first request waits.
        window_amount: What the limit allows in the shortest window over which a rate is measured.
        batch_bytes: The size of the last batch that a consumer fetched, or 0 if none is known.
        doubts_until_ms: Until this time, requests reserve only what has arrived of them.
        debtors: The buckets of the same manager whose clients owe something. This one enters itself.
        observed_requests: The number of requests when one was last over a limit that was only observed, or -2.
        holders, is_listed, is_parked: Used by ``BucketTable``.
    """

    kind: QuotaKind
    tags: Tags
    rate: Rate
    usage: EntityUsage
    reserved: Reservations
    has_kafka_tags: bool = False
    kafka_rate: Rate | None = None
    kafka_tokens: TokenBucket | None = None
    kept_rates: tuple[object, ...] = ()
    limit: float = float(UNLIMITED)
    is_limited: bool = False
    rule: QuotaRule | None = None
    level: Level | None = None
    enforcement: Enforcement | None = None
    generation: int = -1
    line: Line | None = None
    silent_until_ms: float = 0.0
    debtors: "set[Bucket] | None" = None
    doubts_until_ms: int = 0
    observed_requests: int = -2
    holders: int = 0
    batch_bytes: int = 0
    is_listed: bool = False
    is_parked: bool = False
    awaited: AwaitedFetches = field(default_factory=AwaitedFetches)
    _bounds: BucketBounds = _UNBOUNDED
    window_amount: float = float(UNLIMITED)
    _tokens: TokenBucket | None = None
    _spread: TokenBucket | None = None
    _last_over: int = 0  # the amount of the last request over the limit

    def configure(
        self,
        *,
        limit: float,
        room: float,
        burst_ms: int | None,
        spread_ms: int | None,
        longest_wait_ms: int,
        max_throttle_time_ms: int,
        now_ms: int,
    ) -> None:
        """Change the limit and how it applies. The recorded usage is kept, and clients still owe the same amount.

        They pay it at the new limit. If there is no limit any more, they owe nothing.

        Args:
            limit: The limit per second, or ``float(UNLIMITED)``.
            room: The amount that the limit allows in the shortest window over which a rate is measured.
            burst_ms: For how many ms an idle client saves up unused quota in the token bucket that applies the limit,
                or None if the limit applies to sampled windows.
            spread_ms: The same for a second token bucket, which spreads the fetches of consumers who share a limit that
                is used up, or None if there is none.
            longest_wait_ms: The longest wait that ``charge`` returns.
            max_throttle_time_ms: The longest throttle time that a response announces.
            now_ms: The time.
        """
        debt = self.debt(now_ms=now_ms)
        self.usage.set_limit(limit)
        self.limit = self.reserved.limit = limit
        self.is_limited = limit < UNLIMITED
        self.window_amount = room
        self._bounds = bucket_bounds(
            limit,
            room if burst_ms is None else limit * burst_ms / 1_000,
            is_paced=burst_ms is not None,
            longest_wait_ms=longest_wait_ms,
            max_throttle_time_ms=max_throttle_time_ms,
        )
        tokens = self._tokens
        if burst_ms is None:
            self._tokens = None
        elif tokens is not None:
            tokens.burst_ms = burst_ms
        elif self.is_limited:
            tokens = self._tokens = TokenBucket(burst_ms=burst_ms, byte_rate_limit=limit, now_ms=now_ms)
            if debt > 0:
                tokens.record(round(debt + limit * burst_ms / 1_000), byte_rate_limit=limit, now_ms=now_ms)
        if spread_ms is None:
            self._spread = None
        elif self._spread is None:
            self._spread = TokenBucket(burst_ms=spread_ms, byte_rate_limit=limit, now_ms=now_ms)
        else:
            self._spread.burst_ms = spread_ms
        if self._tokens is not None and self.observed_requests != self.usage.requests:
            debt = max(debt, -self._tokens.peek(byte_rate_limit=limit, now_ms=now_ms))
        if debt > 0 or self.silent_until_ms > now_ms:
            self.silent_until_ms = now_ms + debt * 1_000 / limit if self.is_limited else 0.0
            if self.usage.throttling.history is not None:
                self.usage.throttling.history.held_until_ms = ceil(self.silent_until_ms)

    def debt(self, *, now_ms: int) -> float:
        """Return the amount that clients owe, which was charged above the limit and is not paid by time yet."""
        return max(0.0, self.silent_until_ms - now_ms) * self.limit / 1_000 if self.is_limited else 0.0

    def debt_ms(self, *, now_ms: int) -> int:
        """Return for how many ms clients must wait until a paced bucket has free tokens. Changes nothing."""
        return wait_for_tokens_ms(tokens=self.free_tokens(now_ms=now_ms), byte_rate_limit=self.limit)

    def free_tokens(self, *, now_ms: int) -> float:
        """Return the tokens of a paced bucket, less those that are reserved for requests in flight. Changes nothing.

        Reservations that are over do not count. The result is infinite if the bucket has no limit.
        """
        if self._tokens is None or not self.is_limited:
            return inf
        reserved = self.reserved.amount if now_ms < self.reserved.held_until_ms else 0
        return self._tokens.peek(byte_rate_limit=self.limit, now_ms=now_ms) - reserved

    def charge(self, amount: int, *, now_ms: int) -> int:
        """Add ``amount`` to the recorded usage of the bucket, in bytes or in the unit of another kind of quota.

        Return for how many ms clients must wait, or 0 if the usage is within the limit.

        Source: ``ClientQuotaManager.recordAndGetThrottleTimeMs``.
        """
        self.usage.amount += amount
        self.usage.requests += 1
        self.usage.last_record_ms = now_ms
        if self.kafka_rate is not None:
            self.kafka_rate.record(amount, now_ms=now_ms)
            if self.kafka_tokens is not None:
                self.kafka_tokens.record(amount, byte_rate_limit=self.limit, now_ms=now_ms)
        if now_ms < self.silent_until_ms and self.kind in HAS_LINE:
            # A second debt adds to the first. Windows may have forgotten the first, but time has not paid it.
            self.silent_until_ms += amount * 1_000 / self.limit
        return self._record(amount, now_ms)

    def _record(self, amount: int, now_ms: int) -> int:
        rate, limit = self.rate, self.limit
        rate.record(amount, now_ms=now_ms)
        if self._tokens is not None and (self.is_limited or self.has_kafka_tags):
            left = self._tokens.record(amount, byte_rate_limit=limit, now_ms=now_ms)
            wait_ms = wait_for_tokens_ms(tokens=left, byte_rate_limit=limit)
        else:
            if self._spread is not None:
                self._spread.record(amount, byte_rate_limit=limit, now_ms=now_ms)
            # Below this sum no rate is over the limit. Before this time a measurement would purge no slot.
            if rate.total <= self.window_amount and now_ms < rate.exact_before_ms:
                return 0
            byte_rate = rate.measure(now_ms=now_ms)
            if byte_rate <= limit:
                return 0
            window_ms = rate.window_ms(now_ms=now_ms)
            wait_ms = throttle_time_ms(byte_rate=byte_rate, byte_rate_limit=limit, window_ms=window_ms)
        self._last_over = amount
        return min(wait_ms, self._bounds.longest_wait_ms)

    def has_room(self, amount: int, *, now_ms: int) -> bool:
        """Return whether ``amount`` can be charged now without exceeding the limit. Changes nothing.

        The expected charges of all requests that the broker has not answered yet count as used.
        """
        more = self.reserved.amount + amount
        if self._tokens is not None:
            return self._tokens.peek(byte_rate_limit=self.limit, now_ms=now_ms) >= more
        rate = self.rate
        # The window is never shorter than N - 1 samples, so below this sum no rate is over the limit.
        if now_ms < rate.exact_before_ms and rate.total + more <= self.window_amount:
            return True
        return rate.peek(now_ms=now_ms, more=more) <= self.limit

    def silence(self, wait_ms: int, *, now_ms: int) -> int:
        """Forward no request that is charged to this bucket, from any connection, for ``wait_ms`` from now on.

        Call this after a charge. Returns ``wait_ms``, or what only that charge owes if the limit was observed before.
        All records of a window stop counting at the same time. So that consumers who share a limit do not use it up at
        once again, they wait until the second token bucket has tokens, too.
        """
        if wait_ms > 0 and self.begin_enforcement(now_ms=now_ms):
            wait_ms = self._record(self._last_over, now_ms)
        silent_ms = wait_ms
        if wait_ms > 0 and self.holders > 1 and self._spread is not None:
            tokens = self._spread.peek(byte_rate_limit=self.limit, now_ms=now_ms)
            silent_ms = max(wait_ms, wait_for_tokens_ms(tokens=tokens, byte_rate_limit=self.limit))
        self.silent_until_ms = max(self.silent_until_ms, now_ms + silent_ms)
        if wait_ms > 0 and self.debtors is not None:
            self.debtors.add(self)
        return wait_ms

    def begin_enforcement(self, *, now_ms: int) -> bool:
        """If the limit was only observed until now, forget what went over it, which nobody owes. Return whether so."""
        if self.usage.requests - self.observed_requests > 1:
            return False
        self.observed_requests = -2
        self.rate.restore(())
        for tokens in (self._tokens, self._spread):
            if tokens is not None:
                tokens.refill(byte_rate_limit=self.limit, now_ms=now_ms)
        return True

    def throttled(self, wait_ms: int, *, now_ms: int) -> int:
        """Count a request whose response tells the client to wait ``wait_ms``.

        Return by how many ms the throttle time of the bucket grows. Time in which clients already wait counts once.
        """
        return self.usage.throttling.count(wait_ms, held_until_ms=ceil(self.silent_until_ms), now_ms=now_ms)

    def observe(self, wait_ms: int, *, took_ms: int, now_ms: int) -> None:
        """Count the waits that enforcement would have caused, for a bucket whose limit is observed but not enforced.

        Call this after a charge that returned ``wait_ms``. The broker took ``took_ms`` to answer the charged request.
        """
        bounds, amount, shadow = self._bounds, self._last_over, self.usage.throttling.shadow
        if self.kind is QuotaKind.FETCH:
            amount = min(amount, max(1, int(bounds.least_fetch)))  # enforcement would have capped the fetch
        if shadow is None or self.observed_requests != self.usage.requests - 1:
            # The request before this one had room, so under enforcement no client would be waiting now.
            waits_ms = [wait_ms]
            shadow = self.usage.throttling.shadow = ShadowBucket(
                self.rate, self._tokens, wait_ms=wait_ms, now_ms=now_ms
            )
        else:
            waits_ms = shadow.charge(amount, limit=self.limit, took_ms=took_ms, now_ms=now_ms)
        self.observed_requests = self.usage.requests
        self.usage.throttling.count_observed(
            waits_ms, max_wait_ms=min(bounds.longest_wait_ms, bounds.max_throttle_time_ms)
        )

    @property
    def max_throttle_time_ms(self) -> int:
        """The longest throttle time that a response tells a client."""
        return self._bounds.max_throttle_time_ms

    def is_free(self, amount: int, *, now_ms: int) -> bool:
        """Return whether a request with the expected charge ``amount`` may be forwarded now. Changes nothing.

        The clients must owe nothing, and the limit must allow this request in addition to all unanswered requests. If
        there are none, even a request larger than the limit allows is forwarded. ``AwaitedFetches`` says how long
        fetches hold each other back, since nobody knows what they will bring.
        """
        if self.kind is QuotaKind.FETCH:
            return self.is_free_for_fetch(amount, room=self.fetch_room(now_ms=now_ms), now_ms=now_ms)
        if now_ms < self.silent_until_ms:
            return False
        return not self.reserved.amount or now_ms >= self.reserved.held_until_ms or self.has_room(amount, now_ms=now_ms)

    def is_free_for_fetch(self, amount: int, *, room: float, now_ms: int) -> bool:
        """Return what ``is_free`` returns, for a fetch. ``room`` is that of ``fetch_room``."""
        if now_ms < self.silent_until_ms:
            return False
        return not self.reserved.amount or self.awaited.may_pass(
            amount, in_flight=self.reserved.amount, room=room, now_ms=now_ms
        )

    def free_at_ms(self, *, now_ms: int) -> int:
        """Return the earliest time at which a request that waits for this bucket may be forwarded. Changes nothing."""
        at_ms = float(self.silent_until_ms)
        if self.kind is QuotaKind.FETCH:
            at_ms = max(at_ms, self.awaited.held_until_ms(in_flight=self.reserved.amount))
        elif self.reserved.amount:
            at_ms = max(at_ms, self.reserved.held_until_ms)
        return max(now_ms + 1, ceil(at_ms))

    def pass_fetch(self, amount: int, *, room: float, answer_ms: int, now_ms: int) -> None:
        """Note that a fetch is forwarded that will probably be charged ``amount`` bytes, of which there are ``room``.

        ``answer_ms`` is how long a broker with data takes to answer. ``settle`` ends the expectation.
        """
        self.awaited.passes(
            amount, in_flight=self.reserved.amount, room=room, owed_until_ms=self.silent_until_ms,
            answer_ms=answer_ms, now_ms=now_ms,
        )  # fmt: skip
        self.reserved.amount += amount

    def is_calm(self, *, now_ms: int) -> bool:
        """Return whether clients have owed nothing for a second."""
        return now_ms - self.silent_until_ms >= CALM_MS

    def line_wait_ms(self, place: Place | None, *, now_ms: int) -> int:
        """Estimate for how many more ms the request in ``place``, or a new one (None), will wait in the line."""
        free_ms = wait_ms = max(1, ceil(self.silent_until_ms) - now_ms)
        line = self.line
        if line is not None:
            line.sweep(now_ms=now_ms)
            ahead = line.ahead(place) * line.mean_amount
            wait_ms += ceil(ahead * 1_000 / self.limit)
            if self._tokens is None and ahead:
                # All records of a window stop counting at the same time. A client should be back by then.
                room_at_ms = self.rate.room_at_ms(self.window_amount - ahead, now_ms=now_ms)
                wait_ms = max(free_ms, min(wait_ms, room_at_ms - now_ms))
        return min(wait_ms, MAX_THROTTLE_TIME_MS)

    def fetch_room(self, *, now_ms: int) -> float:
        """Return how many more bytes the limit allows, apart from those of fetches at the broker. May be negative."""
        tokens = self._tokens
        if tokens is not None:
            return tokens.peek(byte_rate_limit=self.limit, now_ms=now_ms)
        rate = self.rate
        total = rate.total if now_ms < rate.exact_before_ms else rate.peek_sum(now_ms=now_ms)
        room = self.window_amount - total
        if self.holders > 1 and self._spread is not None:
            room = min(room, self._spread.peek(byte_rate_limit=self.limit, now_ms=now_ms))
        return room

    def fetch_cap(self, room: float) -> int:
        """Return how many bytes a fetch may ask for if the limit allows ``room`` more bytes."""
        return self._bounds.fetch_cap(room, self.holders)

    def utilisation(self, *, now_ms: int) -> float | None:
        """Return the current rate of charges divided by the limit, or None if there is no limit."""
        return self.rate.peek(now_ms=now_ms) / self.limit if self.is_limited else None

    @property
    def max_fetch_bytes(self) -> int:
        """The most bytes that one fetch may ask for."""
        return self._bounds.max_fetch

    @property
    def is_in_use(self) -> bool:
        """Whether a connection keeps the bucket, or a request that will be charged to it is not answered yet."""
        return self.holders > 0 or self.reserved.amount > 0

    @property
    def shaping(self) -> Shaping:
        """Whether the limit applies to sampled windows, as in Kafka, or to a token bucket."""
        return Shaping.SAMPLED if self._tokens is None else Shaping.PACED

    @property
    def token_bucket(self) -> TokenBucket | None:
        """The token bucket that applies the limit, or None if it applies to sampled windows."""
        return self._tokens

    def tokens(self, *, now_ms: int) -> float | None:
        """Return the tokens of a paced bucket, or None if it is not paced. A negative number is what clients owe."""
        tokens = self._tokens  # Read only once, because a scrape of the metrics runs in another thread.
        return None if tokens is None or not self.is_limited else tokens.peek(byte_rate_limit=self.limit, now_ms=now_ms)

    def owes_until_ms(self, *, now_ms: int, has_new_rules: bool = False) -> float:
        """Return the time until which clients may owe an amount, or a past time if they owe nothing. Changes nothing.

        ``has_new_rules`` means that rules have changed since the limit was set, so the limit may become lower. The
        result is then the time at which the last of the recorded usage stops counting.
        """
        tokens = self._tokens
        if tokens is None:
            room = 0.0 if has_new_rules else self.window_amount
            until_ms = float(self.rate.over_until_ms(room, now_ms=now_ms))
        elif has_new_rules or tokens.peek(byte_rate_limit=self.limit, now_ms=now_ms) < 0:
            until_ms = tokens.full_at_ms(byte_rate_limit=self.limit)
        else:
            until_ms = 0.0
        return max(until_ms, self.silent_until_ms)
