"""A broker that can be reached is dialled at once, even while dials to other brokers hang."""

from math import inf
from typing import TYPE_CHECKING, ClassVar, Final

from tests.simulation.checks.check import Check, Quotas
from tests.simulation.checks.entities import KINDS, RuleBook
from tests.simulation.checks.settings import SETTLE_MS

if TYPE_CHECKING:
    from tests.simulation.ledger import Exchange
    from tests.simulation.world import World

# On a slow network a connection takes up to 3.6 s: two ways of up to 2 * 900 ms. The other is for a paused process.
_GRACE_MS: Final = 4_000.0
_STANDS_STILL_MS: Final = 5_000.0
# The time-out of a dial whose first packet is lost, also if its broker can be reached again a moment later.
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
        has_room = self._has_room()
        for connection, exchange in self._first.items():
            if exchange is None:
                continue
            node_id = self._node_of(exchange) if has_room else None
            if node_id is None:
                self._since_ms.pop(connection, None)
            else:
                self._judge(exchange, node_id, now_ms)

    def _has_room(self) -> bool:
        """Return whether the proxy can serve everybody who comes."""
        settings, proxy = self.world.settings, self.world.scenario.proxy
        if settings.has_queue or settings.limits_connections or proxy.process.has_no_descriptor():
            return False
        return proxy.server is not None and proxy.server.is_listening  # else it has yet to read its stored quotas

    def _node_of(self, exchange: "Exchange") -> int | None:
        """Return the broker of a request that has arrived and may be forwarded. None: something explains its wait."""
        end = exchange.client_end
        if end is None or not end.is_open or not end.peer.is_open or end.is_on_the_way or exchange.sent_ms < 0:
            return None
        node_id = exchange.broker or self.world.scenario.setup.node_at(end.remote[1])
        if not self._is_there(node_id):
            return None
        user, client_id, _ = exchange.entity
        since_ms = exchange.sent_ms - SETTLE_MS
        has_limits = any(self._book.limits(kind, user, client_id, since_ms=since_ms) for kind in KINDS)
        return None if has_limits else node_id

    def _is_there(self, node_id: int | None) -> bool:
        broker = None if node_id is None else self.world.scenario.cluster.brokers.get(node_id)
        if broker is None or not broker.is_up or broker.is_stalled:
            return False
        return broker.host not in self.world.network.unreachable

    def _judge(self, exchange: "Exchange", node_id: int, now_ms: float) -> None:
        fired = self.world.scenario.fired
        since_ms = self._since_ms.setdefault(exchange.connection, now_ms)
        most_ms = _GRACE_MS + (_STANDS_STILL_MS if fired.get("proxy paused") else 0.0)
        if any(fired.get(kind) for kind in _CUTS):
            most_ms += _DIAL_MS
        if now_ms - since_ms > most_ms and now_ms - self._lost_ms(exchange, node_id, since_ms) > _DIAL_MS + most_ms:
            text = f"{exchange} waits for {now_ms - since_ms:.0f} ms, and broker {node_id} could be dialled"
            self.world.fail(self.name, text)

    def _lost_ms(self, exchange: "Exchange", node_id: int, until_ms: float) -> float:
        """Return when the last dial was lost for which a request may wait.

        While the proxy does not know a broker of a cluster, or does not know that it has moved, it dials another host.
        """
        scenario = self.world.scenario
        hosts, is_cluster = scenario.cluster.brokers[node_id].hosts, scenario.setup.is_cluster
        return max(
            (
                lost_ms
                for lost_ms, host in self.world.network.lost_dials
                if host in hosts or (is_cluster and exchange.sent_ms <= lost_ms <= until_ms)
            ),
            default=-inf,
        )
