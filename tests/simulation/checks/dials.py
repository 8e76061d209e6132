"""A broker that can be reached is dialled at once, even while dials to other brokers hang."""

from typing import TYPE_CHECKING, ClassVar, Final

from tests.simulation.checks.check import Check, Quotas
from tests.simulation.checks.entities import KINDS, RuleBook
from tests.simulation.checks.settings import SETTLE_MS

if TYPE_CHECKING:
    from tests.simulation.ledger import Exchange
    from tests.simulation.world import World

# The first is for latency, the second for a process that is paused.
_GRACE_MS: Final = 3_500.0
_STANDS_STILL_MS: Final = 5_000.0
# The time-out of a dial whose packets are lost. A dial may have begun while its broker could not be reached.
_DIAL_MS: Final = 10_000.0
_CUTS: Final = ("connection cut",)


class Dials(Check):
    """Looks twice a second at the first request of each connection for which no broker was dialled yet."""

    name: ClassVar[str] = "dials"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._book = RuleBook(world.settings)
        self._first: dict[int, Exchange | None] = {}  # None: it was forwarded, or the proxy has answered it
        self._since_ms: dict[int, float] = {}  # since when nothing explains that the first request waits
        self._there_since_ms: dict[int, float] = {}  # by node id

    def rules_changed(self, *possible: Quotas) -> None:
        """Note the rules. A client with a limit may have to wait."""
        self._book.change(possible, self.world.settings, self.world.clock.now_ms)

    def sent(self, exchange: "Exchange") -> None:
        """Remember the first request."""
        if not exchange.is_inter_broker:
            self._first.setdefault(exchange.connection, exchange)

    def forwarding(self, exchange: "Exchange") -> None:
        """The broker was dialled."""
        self._over(exchange.connection)

    def passed(self, exchange: "Exchange", frame_bytes: int) -> None:
        """The proxy itself may have answered."""
        self._over(exchange.connection)

    def _over(self, connection: int) -> None:
        if self._first.get(connection) is not None:
            self._first[connection] = None
            self._since_ms.pop(connection, None)

    def connection_closed(self, client: str, connection: int, *, by_client: bool) -> None:
        """Forget a connection."""
        self._first.pop(connection, None)
        self._since_ms.pop(connection, None)

    def step(self) -> None:
        """Look at what waits."""
        now_ms = self.world.clock.now_ms
        self._look_at_brokers(now_ms)
        has_room = self._has_room()
        for connection, exchange in self._first.items():
            if exchange is None:
                continue
            node_id = self._node_of(exchange) if has_room else None
            if node_id is None:
                self._since_ms.pop(connection, None)
            else:
                self._judge(exchange, node_id, now_ms)

    def _look_at_brokers(self, now_ms: float) -> None:
        unreachable = self.world.network.unreachable
        for node_id, broker in self.world.scenario.cluster.brokers.items():
            if broker.is_up and not broker.is_stalled and broker.host not in unreachable:
                self._there_since_ms.setdefault(node_id, now_ms)
            else:
                self._there_since_ms.pop(node_id, None)

    def _has_room(self) -> bool:
        """Return whether the proxy can serve everybody who comes."""
        settings, proxy = self.world.settings, self.world.scenario.proxy
        if settings.has_queue or settings.limits_connections or proxy.process.has_no_descriptor():
            return False
        return proxy.server is not None and proxy.server.is_listening  # else it has yet to read its stored quotas

    def _node_of(self, exchange: "Exchange") -> int | None:
        """Return the broker of a request that has arrived and may be forwarded. None: something explains its wait."""
        end = exchange.client_end
        if end is None or not end.is_open or end.is_on_the_way or exchange.sent_ms < 0:
            return None
        node_id = exchange.broker or self.world.scenario.setup.node_at(end.remote[1])
        if node_id not in self._there_since_ms:
            return None
        user, client_id, _ = exchange.entity
        since_ms = exchange.sent_ms - SETTLE_MS
        has_limits = any(self._book.limits(kind, user, client_id, since_ms=since_ms) for kind in KINDS)
        return None if has_limits else node_id

    def _judge(self, exchange: "Exchange", node_id: int, now_ms: float) -> None:
        fired = self.world.scenario.fired
        since_ms = self._since_ms.setdefault(exchange.connection, now_ms)
        most_ms = _GRACE_MS + (_STANDS_STILL_MS if fired.get("proxy paused") else 0.0)
        if since_ms - self._there_since_ms[node_id] < _DIAL_MS or any(fired.get(kind) for kind in _CUTS):
            most_ms += _DIAL_MS
        if now_ms - since_ms > most_ms:
            text = f"{exchange} waits for {now_ms - since_ms:.0f} ms, and broker {node_id} could be dialled"
            self.world.fail(self.name, text)
