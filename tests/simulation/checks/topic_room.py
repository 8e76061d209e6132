"""No change of topics is refused, and no client is told to wait, while ``controller_mutation_rate`` has room.

What a bucket owes at most is known: the partitions of all requests that a broker got, and did not refuse, and those of
requests that are on their way. They are charged when the answer has come, or when it cannot come any more. A request
that was never sent to a broker owes nothing once its connection is gone.
"""

from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from tests.simulation.checks import frames
from tests.simulation.checks.buckets import BucketCheck
from tests.simulation.checks.check import Quotas
from tests.simulation.checks.entities import FETCH, OF_REQUESTS, PRODUCE, Tags
from tests.simulation.checks.topic_changes import PARSERS, error_of

if TYPE_CHECKING:
    from tests.simulation.checks.entities import Limit
    from tests.simulation.ledger import Exchange
    from tests.simulation.world import World

# Kafka's defaults: ``controller.quota.window.num`` times ``controller.quota.window.size.seconds``.
_WINDOWS_MS: Final = 11_000.0
_ROUNDING_MS: Final = 5.0
_ROUNDING: Final = 0.01
# How long the proxy may need to end a connection that is gone, of which it hears once a second while it does not read
# it, and how much longer if it stands still.
_ENDS_MS: Final = 1_500.0
_LONGEST_PAUSE_MS: Final = 5_000.0  # see faults/of_proxy.py
_THROTTLING_QUOTA_EXCEEDED: Final = 89
# After these the broker may have made the change: no error, and those of Kafka that say nothing.
_PERHAPS_DONE: Final = frozenset((0, -1, 7, 13))
_OTHER_KINDS: Final = (PRODUCE, FETCH, *OF_REQUESTS)


class _Tokens:
    """The fewest tokens that a bucket may have. What may be charged is charged as late as possible, and in full."""

    __slots__ = ("_at_ms", "_burst", "_left", "rate")

    def __init__(self, rate: float, now_ms: float) -> None:
        self.rate = rate
        self._burst = self._left = rate * _WINDOWS_MS / 1_000
        self._at_ms = now_ms

    def take(self, amount: float, now_ms: float) -> float:
        """Take tokens. Return what is left."""
        self._left = min(self._burst, self._left + self.rate * (now_ms - self._at_ms) / 1_000) - amount
        self._at_ms = now_ms
        return self._left


class _Change:
    """A request about a topic.

    Attributes:
        tags: Its bucket.
        amount: The most that it is charged.
        least: The fewest tokens that its bucket may have had since it was sent, without what it takes itself.
        is_forwarded: Whether the proxy has begun to send it to a broker.
        gone_ms: When its client has gone.
    """

    __slots__ = ("amount", "exchange", "gone_ms", "is_forwarded", "least", "tags")

    def __init__(self, exchange: "Exchange", tags: Tags, amount: int, least: float) -> None:
        self.exchange = exchange
        self.tags = tags
        self.amount = amount
        self.least = least
        self.is_forwarded = False
        self.gone_ms: float | None = None


def _awaits_answer(exchange: "Exchange") -> bool:
    """Return whether the proxy may still get the broker's answer, or more of it."""
    end, answer = exchange.broker_end, exchange.response_of_broker
    if end is None or answer is None:
        return exchange.has_open_broker
    return end.is_open and end.received_bytes < exchange.response_at + len(answer)


class _Told(NamedTuple):
    least: float
    rate: float


class TopicRoom(BucketCheck):
    """Keeps the fewest tokens that each bucket may have, for all brokers together."""

    name: ClassVar[str] = "topic room"
    kind = "controller_mutation_rate"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._tokens: dict[Tags, _Tokens] = {}
        self._changes: dict[int, _Change] = {}
        self._told: dict[int, _Told] = {}
        self._has_broker: dict[int, None] = {}  # the connections of which something was forwarded
        self._is_known = True

    def forget(self) -> None:
        """Forget all buckets."""
        super().forget()
        for kept in (self._tokens, self._changes, self._told, self._has_broker):
            kept.clear()

    def rules_changed(self, *possible: Quotas) -> None:
        """Stop judging until the proxy starts again, because earlier debts are paid at another rate now."""
        self._is_known = not self._has_rules and len(possible) == 1
        super().rules_changed(*possible)

    def proxy_started(self, number: int) -> None:
        """Begin anew. The rules of its start come right after this."""
        super().proxy_started(number)
        self._is_known = True

    # -- what passes --

    def _bucket(self, exchange: "Exchange") -> "tuple[Tags, Limit] | None":
        if exchange.api_key not in PARSERS or not hasattr(exchange.detail, "topic") or not self._is_known:
            return None
        tags, limit = self.limit_of(exchange.entity)
        if limit is None:
            return None
        # Beyond the most buckets, clients share one.
        seen = self._tags_seen.setdefault(0, set())
        seen.add(tags)
        return None if len(seen) >= self.settings.max_buckets else (tags, limit)

    def _most(self, exchange: "Exchange") -> int:
        """Return the most partitions that the proxy may charge for a request, by what the cluster has now."""
        topic = self.world.scenario.cluster.topics.get(exchange.detail.topic)
        has, wants = 0 if topic is None else len(topic.partitions), exchange.detail.partitions
        if exchange.api_key == frames.DELETE_TOPICS:
            return max(1, has)
        return max(1, int(wants) - (has if exchange.api_key == frames.CREATE_PARTITIONS else 0))

    def sent(self, exchange: "Exchange") -> None:
        """It may be charged from now on."""
        found = self._bucket(exchange)
        if found is None:
            return
        tags, limit = found
        now_ms = self.world.clock.now_ms
        tokens = self._tokens.setdefault(tags, _Tokens(limit.rate, now_ms))
        change = _Change(exchange, tags, self._most(exchange), tokens.take(0, now_ms))
        self._changes[exchange.correlation_id] = change
        self._look(tags)

    def _look(self, tags: Tags) -> None:
        """Note the fewest tokens that the bucket of each request may have, after something else may be charged."""
        now_ms = self.world.clock.now_ms
        left = self._tokens[tags].take(0, now_ms)
        changes = [one for one in self._changes.values() if one.tags == tags]
        coming = [one for one in changes if one.is_forwarded or self._may_come(one, now_ms)]
        owed = sum(one.amount for one in coming)
        for change in coming:
            change.least = min(change.least, left - owed + change.amount)

    def _may_come(self, change: _Change, now_ms: float) -> bool:
        """Return whether a request may be charged that was not forwarded."""
        if change.gone_ms is None:
            return True
        end = change.exchange.client_end
        if end is not None and end.peer.is_open:  # the proxy does not know yet that its client has gone
            change.gone_ms = now_ms
        was_paused = self.world.scenario.fired.get("proxy paused", 0) > 0
        return now_ms < change.gone_ms + _ENDS_MS + (_LONGEST_PAUSE_MS if was_paused else 0.0)

    def forwarding(self, exchange: "Exchange") -> None:
        """It is on its way until it is answered."""
        self._has_broker[exchange.connection] = None
        change = self._changes.get(exchange.correlation_id)
        if change is not None and not change.is_forwarded:
            change.is_forwarded = True
            change.amount = max(change.amount, self._most(exchange))
            self._look(change.tags)

    def passed(self, exchange: "Exchange", frame_bytes: int) -> None:
        """It is charged, unless the broker has not made the change."""
        change = self._changes.get(exchange.correlation_id)
        if change is None:
            return
        self._look(change.tags)
        del self._changes[exchange.correlation_id]
        tokens = self._tokens[change.tags]
        if change.is_forwarded and exchange.response_of_broker is not None:
            error = error_of(exchange, exchange.response_of_broker)
            if error is None or error in _PERHAPS_DONE:
                change.least -= change.amount
                tokens.take(change.amount, self.world.clock.now_ms)
        if self.judges:
            self._told[exchange.correlation_id] = _Told(change.least, tokens.rate)

    def connection_closed(self, client: str, connection: int, *, by_client: bool) -> None:
        """What was never sent to a broker is not charged any more, once the proxy hears of it."""
        has_broker = self._has_broker.pop(connection, connection) is None
        for correlation_id, change in list(self._changes.items()):
            exchange = change.exchange
            if exchange.connection != connection:
                continue
            change.gone_ms = self.world.clock.now_ms
            # It may be on its way to the broker, or the proxy may have asked the broker about its topic.
            if not change.is_forwarded and (has_broker or exchange.api_key != frames.CREATE_TOPICS):
                self._charge(correlation_id)

    def _charge(self, correlation_id: int) -> None:
        change = self._changes.pop(correlation_id)
        self._tokens[change.tags].take(change.amount, self.world.clock.now_ms)
        self._look(change.tags)

    def step(self) -> None:
        """Charge requests of clients that have gone once no answer can come any more, and forget those never sent."""
        now_ms = self.world.clock.now_ms
        for correlation_id, change in list(self._changes.items()):
            if change.is_forwarded:
                if change.gone_ms is not None and not _awaits_answer(change.exchange):
                    self._charge(correlation_id)
            elif not self._may_come(change, now_ms):
                del self._changes[correlation_id]

    # -- the verdict --

    def received(self, exchange: "Exchange") -> None:
        """Judge what a client was told."""
        told = self._told.pop(exchange.correlation_id, None)
        # The fair call queue refuses topic changes with the same error.
        if told is None or not self.judges or exchange.response is None or self.settings.has_queue:
            return
        owed_ms = max(0.0, -told.least) * 1_000 / told.rate + _ROUNDING_MS
        about = f"the bucket of {exchange} has {told.least:.2f} partitions of {told.rate:g}/s or more"
        is_refused = error_of(exchange, exchange.response) == _THROTTLING_QUOTA_EXCEEDED
        if is_refused and told.least > _ROUNDING + told.rate * _ROUNDING_MS / 1_000:
            self.world.fail(self.name, f"{about}, and it is refused")
        of_broker_ms = 0
        if exchange.response_of_broker is not None:
            answer = exchange.response_of_broker
            of_broker_ms = frames.throttle_ms(answer, exchange.api_key, exchange.api_version)
        if exchange.throttle_ms <= max(owed_ms, of_broker_ms):
            return
        if not self.ledger.book.limits(exchange, _OTHER_KINDS):
            self.world.fail(self.name, f"{about}, and its client is told to wait for {exchange.throttle_ms} ms")
