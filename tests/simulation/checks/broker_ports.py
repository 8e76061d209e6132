"""A client at the port of a broker is served if the broker runs, or if it is not known yet and another broker runs.

The proxy learns where a broker is from the first list of brokers that it passes on. Before, and if the cluster wants a
login from everybody, the port of a broker leads to each bootstrap server in turn, and not to those that cannot be
dialled.
"""

from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from tests.simulation.checks import frames
from tests.simulation.checks.check import Check
from tests.simulation.checks.disturbance import Disturbances

if TYPE_CHECKING:
    from tests.simulation.brokers.broker import Broker
    from tests.simulation.ledger import Entity, Exchange
    from tests.simulation.world import World

# A dial that is refused ends a connection so soon. What ends one later is another matter.
_REFUSED_MS: Final = 1_500.0
# So often the proxy may fail to dial a broker that it knows, in at least so long a time.
_MOST_DIALS: Final = 3
_LEAST_MS: Final = 300.0
_PLENTY_OF_MEMORY: Final = 16 << 20
# After these, it is not the broker that cannot be reached.
_UNKNOWN: Final = (
    "no descriptors",
    "odd dial",
    "connection reset",
    "all connections reset",
    "broker drops connections",
)
_ADDRESSED: Final = frozenset({frames.METADATA, frames.FIND_COORDINATOR, frames.DESCRIBE_CLUSTER})


class _Visit(NamedTuple):
    port: int
    opened_ms: float


class _Tries:
    """The connections to one port that were closed in a row, without a response to any of them."""

    __slots__ = ("begin_ms", "closed_ms", "number")

    def __init__(self, begin_ms: float) -> None:
        self.begin_ms = self.closed_ms = begin_ms
        self.number = 0


class BrokerPorts(Check):
    """Counts the connections to the ports of a cluster's brokers that the proxy closes without a request forwarded."""

    name: ClassVar[str] = "ports of brokers"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._disturbances = Disturbances(world)
        self._opened_ms: dict[int, float] = {}
        self._visits: dict[int, _Visit] = {}  # the connections that have sent something and are not served yet
        self._tries: dict[int, _Tries] = {}
        self._told_ms: dict[int, float] = {}  # when the process was first told where each broker is since it runs there
        self._is_told = False

    # -- the proxy --

    def proxy_started(self, number: int) -> None:
        """A new process knows no broker."""
        self._is_told = False
        self._tries.clear()
        self._told_ms.clear()

    def answered(self, exchange: "Exchange") -> None:
        """From now on the proxy may know some brokers."""
        self._is_told |= exchange.api_key in _ADDRESSED

    # -- connections --

    def connection_opened(self, client: str, connection: int, entity: "Entity") -> None:
        """Remember since when it is open."""
        self._opened_ms[connection] = self.world.clock.now_ms

    def sent(self, exchange: "Exchange") -> None:
        """Note the first request of a connection. From it on the proxy dials."""
        opened_ms = self._opened_ms.pop(exchange.connection, None)
        end = exchange.client_end
        if opened_ms is not None and end is not None and not exchange.is_inter_broker:
            self._visits[exchange.connection] = _Visit(end.remote[1], opened_ms)

    def forwarding(self, exchange: "Exchange") -> None:
        """A connection is served."""
        self._serve(exchange)

    def passed(self, exchange: "Exchange", frame_bytes: int) -> None:
        """A connection is served, and a list of brokers tells the proxy where those are that run."""
        self._serve(exchange)
        if exchange.api_key == frames.METADATA and exchange.response_of_broker is not None:
            for node_id, broker in self._brokers().items():
                told_ms = self._told_ms.get(node_id, 0.0)
                if told_ms < broker.started_ms < exchange.answered_ms and broker.is_up:
                    self._told_ms[node_id] = exchange.passed_ms

    def _serve(self, exchange: "Exchange") -> None:
        visit = self._visits.pop(exchange.connection, None)
        if visit is not None:
            self._tries.pop(visit.port, None)

    def connection_closed(self, client: str, connection: int, *, by_client: bool) -> None:
        """Count it, if it came after the last one that was counted."""
        self._opened_ms.pop(connection, None)
        visit = self._visits.pop(connection, None)
        now_ms = self.world.clock.now_ms
        if visit is None or by_client or now_ms > visit.opened_ms + _REFUSED_MS or not self._is_judged(client):
            return
        tries = self._tries.setdefault(visit.port, _Tries(visit.opened_ms))
        if not tries.number or visit.opened_ms > tries.closed_ms:
            tries.number += 1
            tries.closed_ms = now_ms
            self._judge(visit.port, tries)

    # -- the verdict --

    def _is_judged(self, client: str) -> bool:
        fired, settings = self.world.scenario.fired, self.world.settings
        if self.ledger.is_stopping or settings.limits_connections or settings.max_buffered < _PLENTY_OF_MEMORY:
            return False
        return not any(fired.get(kind) for kind in _UNKNOWN) and self._disturbances.is_well_behaved(client)

    def _brokers(self) -> "dict[int, Broker]":
        return self.world.scenario.cluster.brokers

    def _judge(self, port: int, tries: _Tries) -> None:
        setup = self.world.scenario.setup
        node_id = setup.node_of_cluster_at(port)
        if node_id is None:
            return
        lasted_ms = tries.closed_ms - tries.begin_ms
        text = f"{tries.number} connections in {lasted_ms:.0f} ms were closed at the port of broker {node_id}"
        told_ms = self._told_ms.get(node_id)
        if told_ms is not None and not self._is_there(node_id, told_ms):
            tries.begin_ms, tries.number = tries.closed_ms, 0
        elif told_ms is not None and told_ms < tries.begin_ms:
            if tries.number >= _MOST_DIALS and lasted_ms >= _LEAST_MS:
                self.world.fail(self.name, f"{text}, which is there")
        elif setup.has_login and not self._is_told:
            there = [one for one in self._brokers() if self._is_bootstrap(one, tries.begin_ms)]
            if there and tries.number > 2 * setup.brokers:
                self.world.fail(self.name, f"{text}, which is not known, and {there} could serve them")

    def _is_bootstrap(self, node_id: int, since_ms: float) -> bool:
        """Return whether a broker can be dialled at once where the proxy's file says."""
        return not self._brokers()[node_id].has_moved_away and self._is_there(node_id, since_ms)

    def _is_there(self, node_id: int, since_ms: float) -> bool:
        """Return whether a broker can be dialled at once."""
        broker = self._brokers()[node_id]
        is_here = broker.is_up and not broker.is_stalled and broker.host not in self.world.network.unreachable
        return is_here and broker.started_ms < since_ms and broker.stalled_until_ms < since_ms
