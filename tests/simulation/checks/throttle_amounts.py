"""A client is told to wait until its bucket is within the limit, no less and no longer.

The check knows when each request can have been charged at the earliest and at the latest. From that follow a lower and
an upper bound of Kafka's own formulas: for windows the bytes in them against the limit, and for a token bucket the
tokens that are short.
"""

from collections.abc import Iterable
from itertools import product
from math import inf
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from tests.simulation.checks import frames
from tests.simulation.checks.broker_names import may_have_two_buckets
from tests.simulation.checks.check import Check, Quotas
from tests.simulation.checks.entities import FETCH, KIND_OF, OF_REQUESTS, PRODUCE, Limit, Tags
from tests.simulation.checks.kafka_rate import KafkaRate
from tests.simulation.checks.possible_rules import PossibleRules
from tests.simulation.checks.settings import SETTLE_MS, Settings

if TYPE_CHECKING:
    from tests.simulation.ledger import Exchange
    from tests.simulation.world import World

_ROUNDING_MS: Final = 3.0
_ROUNDING_BYTES: Final = 8
# After this time a request whose client has gone is not charged any more, or its charge no longer counts.
_FORGOTTEN_MS: Final = 180_000.0
# For how long a client may be late that was told to fetch again, with latency.
_KEPT_MS: Final = 4_000.0
_LONGEST_FETCH_MS: Final = 60_000.0


class _Key(NamedTuple):
    node_id: int
    kind: str
    tags: Tags


class _Charge:
    """The bytes of one exchange, and between which times the proxy charges them.

    ``is_certain`` is False if it may be charged by the rules of before, to another bucket.
    """

    __slots__ = ("amount", "from_ms", "is_certain", "until_ms")

    def __init__(self, amount: int, from_ms: float, *, is_certain: bool) -> None:
        self.amount = amount
        self.from_ms = from_ms
        self.until_ms = inf
        self.is_certain = is_certain

    def is_before(self, own: "_Charge") -> bool:
        """Return whether this was surely charged before ``own``, or is that one."""
        return self is own or (self.is_certain and self.until_ms <= own.from_ms)


class _Bounds(NamedTuple):
    """How long a client must and may be told to wait."""

    least_ms: float
    most_ms: float


def _tokens(charges: Iterable[tuple[float, int]], rate: float, burst: float, at_ms: float) -> float:
    """Return the tokens of a bucket that was full at first, after ``charges``, each with its time and bytes."""
    tokens, last_ms = burst, 0.0
    for time_ms, amount in sorted(charges):
        tokens = min(burst, tokens + rate * (time_ms - last_ms) / 1_000) - amount
        last_ms = time_ms
    return min(burst, tokens + rate * (at_ms - last_ms) / 1_000)


def _of_tokens(own: _Charge, charges: list[_Charge], rate: float, burst: float, now_ms: float) -> _Bounds:
    """Return the bounds of a token bucket that an idle client fills up to ``burst``."""
    began_ms = own.from_ms
    certain = [(one.from_ms, one.amount - _ROUNDING_BYTES) for one in charges if one.is_before(own)]
    possible = [(min(one.until_ms, began_ms), one.amount) for one in charges if one.from_ms <= now_ms]
    most_tokens, least_tokens = _tokens(certain, rate, burst, now_ms), _tokens(possible, rate, burst, began_ms)
    return _Bounds(-most_tokens * 1_000 / rate, max(0.0, -least_tokens) * 1_000 / rate)


def _of_windows(own: _Charge, charges: list[_Charge], rate: float, settings: Settings, now_ms: float) -> _Bounds:
    """Return the bounds of sampled windows.

    A rate is measured over N - 1 samples at least, and over N at most. The first sample may have begun before.
    """
    began_ms, window_ms, number = own.from_ms, settings.window_ms, settings.window_num
    since_ms = now_ms - (number - 1) * window_ms
    certain = [one for one in charges if one.is_before(own) and one.from_ms >= since_ms]
    total = sum(one.amount - _ROUNDING_BYTES for one in certain)
    least_ms = total * 1_000 / rate - (number + 1) * window_ms
    since_ms = began_ms - (number + 1) * window_ms
    total = sum(one.amount for one in charges if one.from_ms <= now_ms and one.until_ms >= since_ms)
    return _Bounds(least_ms, max(0.0, total * 1_000 / rate - (number - 1) * window_ms))


def _exactly(own: _Charge, charges: list[_Charge], rate: float, settings: Settings) -> _Bounds | None:
    """Return the bounds of sampled windows where all charges are certain: those of Kafka's own arithmetic.

    None: it depends on when exactly the proxy has charged each of them.
    """
    if not all(one.is_before(own) for one in charges):
        return None
    found = []
    in_order = sorted(charges, key=lambda one: one.until_ms)
    last = len(in_order) - 1
    # Where windows begin and end depends on whether the first, the last and those between them are early or late.
    for first_late, others_late, last_late in product((False, True), repeat=3):
        kafka = KafkaRate(settings.window_num, int(settings.window_ms))
        at_ms = 0
        for number, one in enumerate(in_order):
            is_late = first_late if number == 0 else last_late if number == last else others_late
            at_ms = max(at_ms, int(one.until_ms if is_late else one.from_ms))
            kafka.record(one.amount, at_ms)
        found.append(kafka.throttle_ms(rate, at_ms))
    least_ms, most_ms = min(found), max(found)
    longest_ms = max(one.until_ms - one.from_ms for one in charges)
    if most_ms - least_ms > 2 * longest_ms + _ROUNDING_MS:
        return None
    rounding_ms = longest_ms + _ROUNDING_BYTES * len(charges) * 1_000 / rate
    return _Bounds(least_ms - rounding_ms, most_ms + rounding_ms)


class ThrottleAmounts(Check):
    """Keeps for each bucket what was charged to it."""

    name: ClassVar[str] = "throttle amounts"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._settings: Settings = world.settings
        self._rules: dict[str, PossibleRules] = {}
        self._has_rules = self._is_sure = False
        # Whether all charges since the first are known. Where windows begin depends on all of them.
        self._is_exact = True
        self._settled_ms = self._most_known_ms = 0.0
        self._charges: dict[_Key, list[_Charge]] = {}
        self._own: dict[int, tuple[_Key, _Charge, Exchange]] = {}
        self._to_tell: dict[int, tuple[_Key, _Bounds]] = {}
        self._tags_seen: dict[tuple[int, str], set[Tags]] = {}
        # The requests that were not forwarded, by kind and tags of their bucket, and until when each may wait.
        self._waiting: dict[tuple[str, Tags], dict[int, float]] = {}
        # When the last of them was forwarded. Until then it may have waited.
        self._waited_ms: dict[tuple[str, Tags], float] = {}
        self._fetches: dict[int, Exchange] = {}  # at their brokers
        # Until when a client that was told to fetch again keeps its place in the line.
        self._away_until_ms: dict[tuple[str, Tags], float] = {}

    # -- what changes all --

    def rules_changed(self, *possible: Quotas) -> None:
        """Note the rules. For a while nobody knows what buckets owe by the earlier rules."""
        now_ms = self.world.clock.now_ms
        self._settings = self.world.settings
        self._rules = {kind: PossibleRules(possible, kind, self._settings) for kind in (PRODUCE, FETCH)}
        self._is_sure = len(possible) == 1  # of several limits the check takes the largest, with the shortest wait
        if self._has_rules:
            self._settled_ms = now_ms + SETTLE_MS
            self._most_known_ms = now_ms + _FORGOTTEN_MS
            self._is_exact = False
            self._forget()
        self._has_rules = True

    def proxy_started(self, number: int) -> None:
        """A new process has charged nothing, and reads the rules as they are now."""
        self._has_rules = False
        self._is_exact = True
        self._settled_ms = self._most_known_ms = 0.0
        self._forget()

    def _forget(self) -> None:
        for kept in (self._charges, self._own, self._to_tell, self._tags_seen, self._fetches):
            kept.clear()
        self._waiting.clear()
        self._waited_ms.clear()

    # -- what passes --

    def sent(self, exchange: "Exchange") -> None:
        """It may wait for its bucket, also when its client has gone."""
        waiting = self._waiting_with(exchange)
        if waiting is not None:
            waiting[exchange.correlation_id] = inf

    def connection_closed(self, client: str, connection: int, *, by_client: bool) -> None:
        """What it has sent may wait for a while."""
        exchanges, until_ms = self.world.ledger.exchanges, self.world.clock.now_ms + _FORGOTTEN_MS
        for waiting in self._waiting.values():
            for correlation_id in waiting:
                if exchanges[correlation_id].connection == connection:
                    waiting[correlation_id] = min(until_ms, waiting[correlation_id])
        for correlation_id in [one for one in self._fetches if exchanges[one].connection == connection]:
            # If its broker never answers, it is charged for what was set aside for it. If the response was cut, it is
            # charged for that, at a time that the check has not seen.
            self._keep_place(self._fetches.pop(correlation_id), _FORGOTTEN_MS)
            self._is_exact = False

    def _waiting_with(self, exchange: "Exchange") -> dict[int, float] | None:
        if exchange.api_key not in KIND_OF or not self._rules:
            return None
        return self._waiting.setdefault(self._line_of(exchange), {})

    def _line_of(self, exchange: "Exchange") -> tuple[str, Tags]:
        kind, entity = KIND_OF[exchange.api_key], exchange.entity
        return kind, self._rules[kind].bucket(entity.user, entity.client_id)[0]

    def _keep_place(self, exchange: "Exchange", for_ms: float) -> None:
        """Note that a client is told to fetch again, and for how long its place may be kept."""
        key = self._line_of(exchange)
        self._away_until_ms[key] = max(self.world.clock.now_ms + for_ms, self._away_until_ms.get(key, 0.0))

    def forwarding(self, exchange: "Exchange") -> None:
        """A Produce may be charged from now on."""
        waiting = self._waiting_with(exchange)
        if waiting is not None:
            if waiting.pop(exchange.correlation_id, None) is not None:
                self._waited_ms[self._line_of(exchange)] = self.world.clock.now_ms
            if exchange.api_key == frames.SHARE_FETCH:
                self._keep_place(exchange, _LONGEST_FETCH_MS)  # the response may be emptied
            elif exchange.api_key == frames.FETCH:
                self._fetches[exchange.correlation_id] = exchange
        if exchange.api_key == frames.PRODUCE:
            self._charge(exchange, len(exchange.request) - 4)

    def forwarded(self, exchange: "Exchange") -> None:
        """A Produce without an answer is charged by now."""
        if not exchange.expects_response and exchange.correlation_id in self._own:
            self._own.pop(exchange.correlation_id)[1].until_ms = self.world.clock.now_ms

    def answered(self, exchange: "Exchange") -> None:
        """What was fetched may be charged from now on. What was produced is not charged before now."""
        if exchange.api_key in KIND_OF and exchange.api_key != frames.PRODUCE and exchange.response_of_broker:
            self._fetches.pop(exchange.correlation_id, None)
            self._charge(exchange, len(exchange.response_of_broker) - 4)
        elif exchange.correlation_id in self._own:
            self._own[exchange.correlation_id][1].from_ms = self.world.clock.now_ms

    def _charge(self, exchange: "Exchange", amount: int) -> None:
        kind = KIND_OF[exchange.api_key]
        if exchange.is_inter_broker or exchange.forwarded_to is None or not self._rules:
            return
        if may_have_two_buckets(self.world):
            self._is_exact, self._most_known_ms = False, inf
            return
        tags, limit = self._rules[kind].bucket(exchange.entity.user, exchange.entity.client_id)
        if limit is None:
            return
        key = _Key(exchange.forwarded_to, kind, tags)
        self._tags_seen.setdefault((key.node_id, kind), set()).add(tags)
        now_ms = self.world.clock.now_ms
        charge = _Charge(amount, now_ms, is_certain=exchange.forwarded_first_ms >= self._settled_ms)
        self._charges.setdefault(key, []).append(charge)
        self._own[exchange.correlation_id] = key, charge, exchange

    def passed(self, exchange: "Exchange", frame_bytes: int) -> None:
        """It is charged by now, and its response says for how long its client waits."""
        found = self._own.pop(exchange.correlation_id, None)
        if found is None:
            return
        key, own, _ = found
        now_ms = self.world.clock.now_ms
        own.until_ms = now_ms
        self._note_abandoned(key, now_ms)
        known = self._charges[key]
        charges = self._charges[key] = [
            one for one in known if min(one.until_ms, one.from_ms + _FORGOTTEN_MS) > now_ms - _FORGOTTEN_MS
        ]
        if len(charges) < len(known):  # a debt may last for longer
            self._is_exact, self._most_known_ms = False, inf
        limit = self._rules[key.kind].limit(key.tags)
        if limit is None or self.ledger.is_stopping or not own.is_certain or exchange.answered_ms < 0:
            return
        if len(self._tags_seen[key.node_id, key.kind]) < self._settings.max_buckets:
            self._to_tell[exchange.correlation_id] = key, self._bounds(key, own, charges, limit)

    def _note_abandoned(self, key: _Key, now_ms: float) -> None:
        """Note which fetches of clients that have gone are charged by now: those whose response the proxy has begun."""
        for other, charge, exchange in self._own.values():
            if other == key and exchange.api_key == frames.FETCH and exchange.has_reached_proxy:
                charge.until_ms = min(charge.until_ms, now_ms)

    def _bounds(self, key: _Key, own: _Charge, charges: list[_Charge], limit: Limit) -> _Bounds:
        """Return for how long a request that was charged as ``own`` must and may make its client wait."""
        settings, now_ms, rate = self._settings, self.world.clock.now_ms, limit.rate
        if limit.shaping == "paced":
            bounds = _of_tokens(own, charges, rate, rate * settings.burst_ms / 1_000, now_ms)
        else:
            bounds = _of_windows(own, charges, rate, settings, now_ms)
            if self._is_exact:
                bounds = _exactly(own, charges, rate, settings) or bounds
        # The throttle time includes the turns of those that wait already, or have been told to come back.
        line = key.kind, key.tags
        if not self._is_sure or now_ms < self._away_until_ms.get(line, 0.0):
            return bounds._replace(most_ms=inf)
        waits = any(now_ms < until_ms for until_ms in self._waiting.get(line, {}).values())
        waits |= self._waited_ms.get(line, 0.0) > own.from_ms  # it waited when this one was charged
        return bounds._replace(most_ms=inf) if waits else bounds

    def received(self, exchange: "Exchange") -> None:
        """Compare what the client was told."""
        waiting = self._waiting_with(exchange)
        if waiting is not None:
            waiting.pop(exchange.correlation_id, None)  # the proxy itself may have answered
            if exchange.response_of_broker is None or exchange.api_key == frames.SHARE_FETCH:
                self._keep_place(exchange, exchange.throttle_ms + _KEPT_MS)
        found = self._to_tell.pop(exchange.correlation_id, None)
        if found is None or exchange.response_of_broker is None:
            return
        key, bounds = found
        limit = self._rules[key.kind].limit(key.tags)
        told_ms, most_ms = exchange.throttle_ms, self._settings.max_throttle_ms
        least_ms = bounds.least_ms if most_ms is None else min(bounds.least_ms, most_ms)
        if limit is None or self.world.clock.now_ms < self._settled_ms:
            return
        about = f"{exchange} is told to wait for {told_ms} ms, and its bucket {key.tags} of {key.kind}"
        if told_ms < least_ms - _ROUNDING_MS and limit.enforcement == "respond":
            self.world.fail(self.name, f"{about} owes {bounds.least_ms:.0f} ms or more")
        of_broker_ms = frames.throttle_ms(exchange.response_of_broker, exchange.api_key, exchange.api_version)
        # A member of a share group is told when its turn comes, and the fair call queue tells clients to wait, too.
        if exchange.api_key == frames.SHARE_FETCH or self._settings.has_queue:
            return
        if told_ms <= max(of_broker_ms, bounds.most_ms + _ROUNDING_MS) or exchange.sent_ms < self._most_known_ms:
            return
        if not self.ledger.book.limits(exchange, OF_REQUESTS):
            self.world.fail(self.name, f"{about} owes {bounds.most_ms:.0f} ms at most")
