"""Consumers below their quota notice nothing of it, however many connections they have.

A bucket is *quiet* while the bytes of its responses within the longest window are less than half of what the limit
allows at once: in the shortest window, or in the burst of a paced bucket. Half, so that no rounding and no boundary of
a window matters. The responses count from the moment in which the broker writes them, which is before the proxy can
charge them. So a quiet bucket owes nothing, and it has room for as much again. Then

* no response has a throttle time, unless the broker has set it,
* no fetch is answered by the proxy instead of the broker,
* no fetch waits longer in the proxy than a broker with data takes to answer. What a fetch at the broker will bring is
  not known, so it may hold back others for this long, and each of them that is answered may do so once more.
"""

from math import inf
from typing import TYPE_CHECKING, ClassVar, Final

from tests.simulation.checks import frames
from tests.simulation.checks.check import Check, Quotas
from tests.simulation.checks.disturbance import MANY_BUCKETS, SMALL_MEMORY, Disturbances
from tests.simulation.checks.entities import FETCH, KINDS, PRODUCE, Limit, Tags
from tests.simulation.checks.possible_rules import PossibleRules
from tests.simulation.checks.settings import SETTLE_MS
from tests.simulation.clients.profiles import HARM

if TYPE_CHECKING:
    from tests.simulation.ledger import Entity, Exchange
    from tests.simulation.world import World

_FETCHES: Final = (frames.FETCH, frames.SHARE_FETCH)
_OTHERS: Final = tuple(kind for kind in KINDS if kind not in (PRODUCE, FETCH))
_QUIET_SHARE: Final = 0.5
# A bucket that has owed something passes fetches freely again after this time.
_CALM_MS: Final = 1_000.0
# Nobody knows for how long the debt of before lasts once the rules have changed.
_CHANGED_MS: Final = 180_000.0
# How long a broker with data takes to answer, before it is known, and at most.
_FIRST_ANSWER_MS: Final = 20.0
_LONGEST_ANSWER_MS: Final = 5_000.0
_AT_ONCE_MS: Final = 1.0  # a broker that waits for no data answers within this time
# Times of the proxy are whole ms, of which a wait has two, and a timer fires up to a ms late.
_ROUNDING_MS: Final = 4.0
_PEACE_MS: Final = 2_000.0  # after a fault that is over


class _Usage:
    """The bytes of one entity's responses at one broker, each with the time of its response."""

    __slots__ = ("charges",)

    def __init__(self) -> None:
        self.charges: list[tuple[float, int]] = []

    def note(self, amount: int, now_ms: float, window_ms: float) -> None:
        """Note a response, and forget those of before the window."""
        if self.charges and self.charges[0][0] < now_ms - 2 * window_ms:
            self.charges = [one for one in self.charges if one[0] >= now_ms - window_ms]
        self.charges.append((now_ms, amount))

    def since(self, from_ms: float) -> int:
        """Return the bytes since ``from_ms``."""
        return sum(amount for at_ms, amount in self.charges if at_ms >= from_ms)


class QuietClients(Check):
    """Keeps what each entity has fetched from each broker, and until when each bucket may owe something."""

    name: ClassVar[str] = "quiet clients"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._disturbances = Disturbances(world)
        self._rules = PossibleRules(((),), FETCH, world.settings)
        self._has_rules = self._is_known = False
        self._changed_ms = self._settled_ms = 0.0
        self._unlimited_ms = -inf  # when something was last fetched that nothing limits, or that is observed only
        self._used: dict[int, dict[tuple[str, str], _Usage]] = {}  # by broker and entity
        self._loud_until_ms: dict[tuple[int, Tags], float] = {}
        self._answer_ms: dict[int, float] = {}  # how long each broker has taken at most
        self._answered: dict[tuple[int, Tags], int] = {}  # how many responses each bucket has had
        self._answered_before: dict[int, int] = {}  # and had when an exchange began to wait

    # -- what changes all --

    def rules_changed(self, *possible: Quotas) -> None:
        """Note the rules. Buckets that owed something then may owe it for long."""
        now_ms = self.world.clock.now_ms
        self._disturbances.over_ms()
        self._rules = PossibleRules(possible, FETCH, self.world.settings)
        self._is_known = len(possible) == 1
        if self._has_rules:
            # What was fetched without a limit may be much more than a new one allows.
            is_loud = now_ms - self._unlimited_ms < 2 * self._window_ms
            is_loud |= any(now_ms < until_ms for until_ms in self._loud_until_ms.values())
            self._changed_ms = now_ms
            self._settled_ms = max(self._settled_ms, now_ms + (_CHANGED_MS if is_loud else SETTLE_MS))
        self._has_rules = True

    def proxy_started(self, number: int) -> None:
        """A new process has charged nothing."""
        self._has_rules = False
        self._changed_ms = self._settled_ms = 0.0
        self._unlimited_ms = -inf
        for kept in (self._used, self._loud_until_ms, self._answer_ms, self._answered, self._answered_before):
            kept.clear()

    # -- which buckets are quiet --

    @property
    def _window_ms(self) -> float:
        """The longest time in which a charge may count."""
        settings = self.world.settings
        return max((settings.window_num + 1) * settings.window_ms, settings.burst_ms)

    def _bucket(self, entity: "Entity", node_id: int | None) -> tuple[tuple[int, Tags], Limit] | None:
        """Return the key of an entity's bucket, and its limit. None: there is none, or it is not known."""
        settings = self.world.settings
        if node_id is None or not self._is_known or self.ledger.is_stopping or settings.max_buckets < MANY_BUCKETS:
            return None
        tags, limit = self._rules.bucket(entity.user, entity.client_id)
        return None if limit is None else ((node_id, tags), limit)

    def _is_quiet(self, key: tuple[int, Tags], limit: Limit) -> bool:
        """Return whether a bucket can neither owe anything nor be short of room."""
        now_ms = self.world.clock.now_ms
        if now_ms < self._settled_ms or now_ms < self._loud_until_ms.get(key, 0.0):
            return False
        node_id, tags = key
        # Soon after a change of rules the bucket may have been that of others as well.
        is_fresh = self._changed_ms and now_ms < self._changed_ms + self._window_ms + SETTLE_MS
        total = sum(
            usage.since(now_ms - self._window_ms)
            for (user, client_id), usage in self._used.get(node_id, {}).items()
            if is_fresh or self._rules.bucket(user, client_id)[0] == tags
        )
        return total < _QUIET_SHARE * self._room(limit)

    def _room(self, limit: Limit) -> float:
        """Return how many bytes a limit allows at once, at least."""
        settings = self.world.settings
        if limit.shaping == "paced":
            return limit.rate * settings.burst_ms / 1_000
        return limit.rate * (settings.window_num - 1) * settings.window_ms / 1_000

    # -- what passes --

    def sent(self, exchange: "Exchange") -> None:
        """It waits from now on."""
        found = self._bucket(exchange.entity, exchange.broker)
        if found is not None:
            self._answered_before[exchange.correlation_id] = self._answered.get(found[0], 0)

    def forwarding(self, exchange: "Exchange") -> None:
        """Judge how long a fetch has waited."""
        if not exchange.is_inter_broker:
            self._judge_wait(exchange)

    def answered(self, exchange: "Exchange") -> None:
        """What was fetched is charged from now on, also if the client has gone."""
        node_id = exchange.forwarded_to
        response = exchange.response_of_broker
        if exchange.api_key not in _FETCHES or exchange.is_inter_broker or node_id is None or response is None:
            return
        now_ms, entity = self.world.clock.now_ms, exchange.entity
        of_broker = self._used.setdefault(node_id, {})
        usage = of_broker.setdefault((entity.user, entity.client_id), _Usage())
        usage.note(len(response), now_ms, self._window_ms)
        found = self._bucket(entity, node_id)
        if found is None:
            self._unlimited_ms = now_ms
            return
        key, limit = found
        if not self._is_quiet(key, limit):
            # The bucket owes no more than all that is charged from now on, and then forgets.
            owed_ms = max(now_ms, self._loud_until_ms.get(key, now_ms + self._window_ms + _CALM_MS))
            if now_ms >= self._loud_until_ms.get(key, 0.0):
                total_ms = usage.since(now_ms - self._window_ms) * 1_000 / limit.rate
                owed_ms = now_ms + self._window_ms + _CALM_MS + total_ms
            self._loud_until_ms[key] = owed_ms + len(response) * 1_000 / limit.rate

    def passed(self, exchange: "Exchange", frame_bytes: int) -> None:
        """Learn how long brokers take."""
        self._answered_before.pop(exchange.correlation_id, None)
        if exchange.api_key not in _FETCHES or exchange.forwarded_to is None or exchange.answered_ms < 0:
            return
        if exchange.answered_ms - exchange.at_broker_ms <= _AT_ONCE_MS:
            self._took(exchange.forwarded_to, self.world.clock.now_ms - exchange.forwarded_first_ms)
        found = self._bucket(exchange.entity, exchange.forwarded_to)
        if found is not None:
            self._answered[found[0]] = self._answered.get(found[0], 0) + 1

    def _took(self, node_id: int, time_ms: float) -> None:
        time_ms = min(time_ms + 1, _LONGEST_ANSWER_MS)
        self._answer_ms[node_id] = max(time_ms, self._answer_ms.get(node_id, _FIRST_ANSWER_MS))

    def received(self, exchange: "Exchange") -> None:
        """Judge what a client is told, and who has answered it."""
        node_id = exchange.broker if exchange.forwarded_to is None else exchange.forwarded_to
        found = self._bucket(exchange.entity, node_id)
        if exchange.api_key not in _FETCHES or exchange.is_inter_broker or found is None:
            return
        key, limit = found
        if not self._is_quiet(key, limit) or self._has_other_reason(exchange):
            return
        if exchange.forwarded_first_ms < 0:
            self.world.fail(
                self.name, f"{exchange} is answered by the proxy, and its bucket {key} is far from its limit"
            )
        if exchange.response_of_broker is None:
            return
        of_broker_ms = frames.throttle_ms(exchange.response_of_broker, exchange.api_key, exchange.api_version)
        if exchange.throttle_ms > of_broker_ms:
            text = (
                f"{exchange} is told to wait for {exchange.throttle_ms} ms, and its bucket {key} is far from its limit"
            )
            self.world.fail(self.name, text)

    # -- the verdict --

    def step(self) -> None:
        """Judge the fetches that wait now."""
        for line in self.ledger.lines.values():
            for exchange in line.waiting:
                self._judge_wait(exchange)

    def _has_other_reason(self, exchange: "Exchange") -> bool:
        """Return whether something but the bucket may slow a client: the fair call queue, or a limit on requests."""
        settings, scenario = self.world.settings, self.world.scenario
        if settings.has_queue or scenario.fired.get("queue switched", 0) or settings.max_buffered < SMALL_MEMORY:
            return True
        if any(getattr(actor, "manner", "") == HARM for actor in scenario.actors.values()):
            return True  # its long polls may be taken for fetches that the broker has data for
        return bool(self.ledger.book.limits(exchange, _OTHERS, since_ms=exchange.sent_ms - SETTLE_MS))

    def _judge_wait(self, exchange: "Exchange") -> None:
        """Fail if a fetch of a quiet bucket has waited longer than a broker with data takes to answer."""
        line = self.ledger.lines.get(exchange.connection)
        node_id = exchange.broker if exchange.forwarded_to is None else exchange.forwarded_to
        if exchange.api_key != frames.FETCH or line is None or exchange.sent_ms < 0 or node_id is None:
            return
        # Before the first request was forwarded the proxy dials the broker, and an earlier one may block the way.
        first = next(iter(line.open.values()), None)
        if line.last is None or first is not exchange or self.world.settings.age_ms is not None:
            return
        found = self._bucket(exchange.entity, node_id)
        before = self._answered_before.get(exchange.correlation_id)
        if found is None or before is None or self._has_other_reason(exchange):
            return
        key, limit = found
        now_ms = self.world.clock.now_ms
        free_ms = max(line.ended_ms, line.told_until_ms, line.unanswered_ms + _CHANGED_MS)
        since_ms = max(exchange.sent_ms, free_ms, self._settled_ms)
        answer_ms = self._answer_ms.get(node_id, _FIRST_ANSWER_MS)
        end = exchange.client_end
        way_ms = end.link.most_ms(len(exchange.request)) if end is not None else 0.0
        most_ms = answer_ms * (1 + self._answered.get(key, 0) - before) + way_ms + _ROUNDING_MS
        if now_ms - since_ms <= most_ms or since_ms <= self._disturbances.over_ms() + _PEACE_MS:
            return
        if self._disturbances.is_well_behaved(exchange.client) and self._is_quiet(key, limit):
            text = f"{exchange} waits for {now_ms - since_ms:.1f} ms, and {most_ms:.1f} ms is the most"
            self.world.fail(self.name, f"{text}: its bucket {key} is far from its limit")
