"""A broker that can be reached is dialled at once, even while dials to other brokers hang."""

from math import inf
from typing import TYPE_CHECKING, ClassVar, Final

from tests.simulation.checks.check import Check
from tests.simulation.checks.settings import SETTLE_MS

if TYPE_CHECKING:
    from tests.simulation.ledger import Exchange
    from tests.simulation.world import World

# The proxy asks a broker for its id before it serves the first client, which takes 2 s at most. On a slow network,
# connecting then takes up to 3.6 s: two round trips of 1.8 s. The rest of the grace is for a paused process.
_GRACE_MS: Final = 6_000.0
_STANDS_STILL_MS: Final = 5_000.0
# The time-out of a dial whose first packet is lost, also if its broker can be reached again a moment later.
_DIAL_MS: Final = 10_000.0


class Dials(Check):
    """Looks twice a second at the first request of each connection for which no broker was dialled yet."""

    name: ClassVar[str] = "dials"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._since_ms: dict[int, float] = {}  # since when nothing explains that a connection's first request waits

    def step(self) -> None:
        """Look at what waits."""
        now_ms = self.world.clock.now_ms
        has_room = self._has_room()
        before, self._since_ms = self._since_ms, {}
        for connection, line in self.ledger.lines.items():
            exchange = next(iter(line.open.values()), None)
            if exchange is None or line.last is not None or line.is_answered or exchange.is_inter_broker:
                continue  # the broker was dialled, or the proxy itself has answered
            node_id = self._node_of(exchange) if has_room else None
            if node_id is not None:
                since_ms = self._since_ms[connection] = before.get(connection, now_ms)
                self._judge(exchange, node_id, since_ms, now_ms)

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
        has_limits = self.ledger.book.limits(exchange, since_ms=exchange.sent_ms - SETTLE_MS)
        return None if has_limits else node_id

    def _is_there(self, node_id: int | None) -> bool:
        broker = None if node_id is None else self.world.scenario.cluster.brokers.get(node_id)
        if broker is None or not broker.is_up or broker.is_stalled:
            return False
        return broker.host not in self.world.network.unreachable

    def _judge(self, exchange: "Exchange", node_id: int, since_ms: float, now_ms: float) -> None:
        fired = self.world.scenario.fired
        most_ms = _GRACE_MS + (_STANDS_STILL_MS if fired.get("proxy paused") else 0.0)
        if fired.get("connection cut"):
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
