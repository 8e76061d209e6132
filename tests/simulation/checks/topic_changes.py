"""The partitions that are created, added and deleted are within ``controller_mutation_rate`` (KIP-599).

The quota is a token bucket whatever the shaping: it saves up a whole window of its rate, and may go below zero once.
Newer requests are refused below zero, and older ones wait. So no request of either kind begins at a broker in debt. The
exception is a newer one that would change nothing: Kafka finds the error in it before it looks at the quota.
"""

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tests.simulation.checks.broker_names import may_have_two_buckets
from tests.simulation.checks.buckets import BucketCheck
from tests.simulation.checks.flow import Flow
from tests.simulation.wire import administration

if TYPE_CHECKING:
    from tests.simulation.checks.entities import Limit
    from tests.simulation.ledger import Exchange
    from tests.simulation.world import World

# Kafka's defaults: ``controller.quota.window.num`` times ``controller.quota.window.size.seconds``.
_ROUNDING: Final = 0.02  # partitions, by the rounding of times to whole ms
_WINDOWS_MS: Final = 11_000.0
# For these the proxy asks how many partitions the topic has. To create one that exists, it does not ask. From these
# versions on, a refusal has THROTTLING_QUOTA_EXCEEDED (KIP-599).
_FREE_FROM: Final = {administration.create_partitions.key: 3, administration.delete_topics.key: 5}

# By the keys of the APIs that change topics.
PARSERS: Final[dict[int, Callable[[bytes, int], Any]]] = {
    api.key: api.parse_response
    for api in (administration.create_topics, administration.delete_topics, administration.create_partitions)
}


def error_of(exchange: "Exchange", frame: bytes) -> int | None:
    """Return the error of the topic in a response; None if the response is not about one topic."""
    topics = PARSERS[exchange.api_key](frame, exchange.api_version).topics
    return int(topics[0].error_code) if len(topics) == 1 else None


class _Change:
    """A request that is on its way, and its partitions that are taken from the flow when it is answered."""

    __slots__ = ("flow", "partitions")

    def __init__(self, flow: Flow, partitions: int) -> None:
        self.flow = flow
        self.partitions = partitions


class TopicChanges(BucketCheck):
    """Counts the partitions that the cluster really has gained and lost."""

    name: ClassVar[str] = "topic changes"
    kind = "controller_mutation_rate"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._changes: dict[int, _Change] = {}
        self._of_connection: dict[int, dict[int, None]] = {}
        self._has_broker: dict[int, None] = {}  # the connections of which something was forwarded
        # The least debt since a request was sent that waits for its broker to be connected.
        self._least_debts: dict[int, float] = {}

    def forget(self) -> None:
        """Forget all buckets."""
        super().forget()
        self._changes.clear()
        self._of_connection.clear()
        self._least_debts.clear()

    def sent(self, exchange: "Exchange") -> None:
        """It may be charged from now on, and begin later, because the proxy connects to the broker first."""
        if exchange.api_key in PARSERS and exchange.connection not in self._has_broker:
            self._least_debts[exchange.correlation_id] = inf

    def new_flow(self, limit: "Limit") -> Flow:
        """Return the oracle of a token bucket that saves up a whole window."""
        settings = replace(self.settings, burst_ms=_WINDOWS_MS)
        return Flow(limit._replace(shaping="paced"), settings, self.world.clock.now_ms)

    def _partitions(self, exchange: "Exchange") -> int:
        """Return how many partitions the topic of a request has now."""
        topic = self.world.scenario.cluster.topics.get(exchange.detail.topic)
        return 0 if topic is None else len(topic.partitions)

    def forwarding(self, exchange: "Exchange") -> None:
        """Judge whether the bucket was out of debt, and take what the request would change."""
        self._has_broker[exchange.connection] = None
        least_debt = self._least_debts.pop(exchange.correlation_id, inf)
        if exchange.api_key not in PARSERS or not hasattr(exchange.detail, "topic"):
            return
        flow = self.flow_of(exchange)
        if flow is None:
            return
        now_ms = self.world.clock.now_ms
        debt = flow.debt(now_ms)
        for correlation_id, least in self._least_debts.items():
            self._least_debts[correlation_id] = min(least, debt)  # of whatever bucket, which is never a false alarm
        debt = min(debt, least_debt)
        has, wants = self._partitions(exchange), exchange.detail.partitions
        change = _Change(flow, has if exchange.api_key == administration.delete_topics.key else max(0, wants - has))
        is_free = not change.partitions and exchange.api_version >= _FREE_FROM.get(exchange.api_key, inf)
        if debt > _ROUNDING and not is_free and not may_have_two_buckets(self.world):
            text = (
                f"{exchange} begins, and its bucket at {flow.limit.rate:g} partitions/s is {debt:.1f} partitions over"
            )
            self.world.fail(self.name, text + " what the quota has given")
        self._changes[exchange.correlation_id] = change
        self._of_connection.setdefault(exchange.connection, {})[exchange.correlation_id] = None

    def answered(self, exchange: "Exchange") -> None:
        """Note what the broker has not changed. Of two requests for the same change, it refuses the later one."""
        change, frame = self._changes.get(exchange.correlation_id), exchange.response_of_broker
        if change is not None and frame is not None and error_of(exchange, frame) != 0:
            change.partitions = 0

    def passed(self, exchange: "Exchange", frame_bytes: int) -> None:
        """The proxy has charged what has changed, because it has the answer."""
        change = self._changes.pop(exchange.correlation_id, None)
        if change is not None:
            change.flow.take(change.partitions, self.world.clock.now_ms)
        self._of_connection.get(exchange.connection, {}).pop(exchange.correlation_id, None)
        self._least_debts.pop(exchange.correlation_id, None)

    def connection_closed(self, client: str, connection: int, *, by_client: bool) -> None:
        """Nobody knows whether the proxy has charged what was on its way. Say no, which is never a false alarm."""
        self._has_broker.pop(connection, None)
        for correlation_id in self._of_connection.pop(connection, ()):
            self._changes.pop(correlation_id, None)
