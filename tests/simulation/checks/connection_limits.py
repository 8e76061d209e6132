"""No more connections are open, and none are made faster, than the limits of listeners, addresses and rules allow.

What is open and when it was accepted is read from the simulated system, which has the proxy's ends of all connections.
"""

from typing import TYPE_CHECKING, ClassVar

from tests.simulation.checks.buckets import BucketCheck
from tests.simulation.checks.check import Quotas
from tests.simulation.checks.entities import Limit, Tags
from tests.simulation.checks.flow import Flow
from tests.simulation.checks.settings import number

if TYPE_CHECKING:
    from tests.simulation.ledger import Entity, Exchange
    from tests.simulation.world import World

Address = tuple[str, int]
# ApiVersions and logins come before a client is known.
_GREETINGS = frozenset((17, 18, 36))

# A broker, the sets of buckets of bootstrap servers if it was reached by a bootstrap port, and a bucket.
_Key = tuple[tuple[int | None, frozenset[int]], Tags]


class ConnectionLimits(BucketCheck):
    """Judges each connection that the proxy accepts, begins to serve, or gets the first request of."""

    name: ClassVar[str] = "connection limits"
    kind = "connections"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._address_rates: dict[str, float] = {}
        self._accepted: dict[Address, Flow] = {}
        self._served: dict[tuple[Address, str], Flow] = {}
        self._hosts: set[str] = set()  # for which the proxy may keep a rate
        self._open: dict[_Key, dict[int, None]] = {}
        self._known: dict[int, _Key] = {}
        self._opened_ms: dict[int, float] = {}
        self._entities: dict[int, Entity] = {}  # for which each connection is counted, also under other rules
        # Sets of connections of one bucket that are too many since this time, unless the proxy has ended one of them
        # without the client knowing, or its client has gone. Another request of each shows that neither is true.
        self._too_many: list[tuple[float, set[int], str]] = []

    def forget(self) -> None:
        """Forget all connections."""
        super().forget()
        self._accepted.clear()
        self._served.clear()
        self._open.clear()
        self._too_many.clear()

    def proxy_started(self, number: int) -> None:
        """A new process has no connections."""
        super().proxy_started(number)
        self._known.clear()
        self._entities.clear()

    def rules_changed(self, *possible: Quotas) -> None:
        """Count the open connections again. None is closed, but for new ones they count."""
        super().rules_changed(*possible)
        for connection, (place, _) in list(self._known.items()):
            tags, limit = self.limit_of(self._entities[connection])
            key = self._known[connection] = place, tags
            if limit is not None:
                self._open.setdefault(key, {})[connection] = None
        quotas = possible[0] if len(possible) == 1 else ()
        self._address_rates = {
            str(rule["ip"]): number(rule["connection_creation_rate"])
            for rule in quotas
            if rule.get("connection_creation_rate") is not None
        }

    def _new_rate(self, rate: float) -> Flow:
        return Flow(Limit(rate, "sampled", "respond"), self.settings, self.world.clock.now_ms)

    def _count(self, flow: Flow, text: str) -> None:
        now_ms = self.world.clock.now_ms
        debt = flow.debt(now_ms)
        if debt > 0:
            self.world.fail(self.name, f"{text} at {flow.limit.rate:g}/s, {debt:.1f} more than the quota has given")
        flow.take(1, now_ms)

    def accepted(self, local: Address, remote: Address) -> None:
        """Judge the rate of new connections to a listener. A pause begins after the connection that caused it."""
        rate = self.settings.max_creation_rate
        # Connections that are refused because of their address do not count, and neither do those that are refused
        # because no broker could be asked who it is.
        if not self._is_open(local):
            return
        if rate is None or self._address_rates or self.settings.enforcement == "observe" or not self.judges:
            return
        if local not in self.settings.limited_ports:
            return
        flow = self._accepted.get(local)
        if flow is None:
            flow = self._accepted[local] = self._new_rate(rate)
        self._count(flow, f"a connection from {remote} to {local} is accepted")

    def _is_open(self, local: Address) -> bool:
        """Return whether the listener at an address serves clients."""
        server = self.world.scenario.proxy.server
        if server is None:
            return True
        of = [one for one in server.listeners if (one.settings.bind.host, one.settings.bind.port) == local]
        return all(server.brokers.is_introduced(one) for one in of)

    def served(self, local: Address, remote: Address) -> None:
        """Judge how many connections are open, and the rate of their address."""
        settings = self.settings
        if local not in settings.limited_ports or not self.judges:
            return
        if settings.max_connections is not None or settings.max_connections_per_host is not None:
            self._judge_open(local, remote)
        rate = self._address_rates.get(remote[0], self._address_rates.get("<default>"))
        if rate is None or settings.enforcement == "observe" or settings.has_proxy_header:
            return
        self._hosts.add(remote[0])
        if len(self._hosts) >= settings.max_buckets:
            return  # a full table forgets an address that is within its limit
        flow = self._served.get((local, remote[0]))
        if flow is None:
            flow = self._served[local, remote[0]] = self._new_rate(rate)
        self._count(flow, f"a connection from {remote} to {local} is served")

    def _judge_open(self, local: Address, remote: Address) -> None:
        settings = self.settings
        ports = settings.limited_ports
        listener = ports[local]
        ends = (transport.end for transport in self.world.scenario.proxy.process.transports)
        # A client that has gone is not counted, although what it sent with acks=0 may still wait.
        hosts = [end.remote[0] for end in ends if ports.get(end.local) == listener and not end.has_ended]
        for count, most in (
            (len(hosts), settings.max_connections),
            (0 if settings.has_proxy_header else hosts.count(remote[0]), settings.max_connections_per_host),
        ):
            if most is not None and count > most:
                self.world.fail(self.name, f"{remote} is served at {local}: {count} are open, {most} may be")

    def forwarding(self, exchange: "Exchange") -> None:
        """Judge how many connections of a bucket are open."""
        connection = exchange.connection
        for since_ms, waits_for, text in self._too_many:
            if exchange.sent_ms >= since_ms:
                waits_for.discard(connection)
            if not waits_for:
                self.world.fail(self.name, text)
        if connection in self._known or exchange.api_key in _GREETINGS or exchange.is_inter_broker:
            return
        tags, limit = self.limit_of(exchange.entity)
        key = self._known[connection] = (exchange.forwarded_to, self._bootstrap_sets(exchange)), tags
        self._entities[connection] = exchange.entity
        if limit is None or not self.judges:
            return
        found = self._open.setdefault(key, {})
        found[connection] = None
        # One that was there before the rules changed may have been counted then, and waited with its first request.
        is_new = self._opened_ms.get(connection, 0.0) >= self._settled_ms
        if len(found) > limit.rate and is_new:
            text = f"{exchange} is forwarded, and bucket {tags} has {len(found)} connections"
            self._too_many.append((self.world.clock.now_ms, set(found), text))

    def _bootstrap_sets(self, exchange: "Exchange") -> frozenset[int]:
        """Return the sets of buckets that bootstrap servers have now, or none for a broker's own port.

        Until the proxy knows which broker a bootstrap server is, it counts the two apart. Whom it counted until then
        stays in the set of then.
        """
        server = self.world.scenario.proxy.server
        if exchange.broker is not None or not self.settings.hides_addresses or server is None:
            return frozenset()
        return frozenset(id(one.broker) for cluster in server.brokers.clusters.values() for one in cluster.members)

    def connection_opened(self, client: str, connection: int, entity: "Entity") -> None:
        """Note when it was opened."""
        self._opened_ms[connection] = self.world.clock.now_ms

    def connection_closed(self, client: str, connection: int, *, by_client: bool) -> None:
        """Forget a connection."""
        key = self._known.pop(connection, None)
        self._entities.pop(connection, None)
        self._opened_ms.pop(connection, None)
        if key is not None:
            self._open.get(key, {}).pop(connection, None)
        if self._too_many:
            self._too_many = [one for one in self._too_many if connection not in one[1]]
