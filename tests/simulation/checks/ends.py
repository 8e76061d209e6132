"""Each connection of the proxy ends soon after nobody needs it any more.

The peers that the proxy has lost, and the sides that it has closed itself, are read from the simulated system. So it
does not matter whether a client is patient, what it is owed, or which faults there are: the time of each end is known.
"""

from math import inf
from typing import TYPE_CHECKING, ClassVar, Final

from tests.simulation.checks import frames
from tests.simulation.checks.check import Check
from tests.simulation.checks.disturbance import Disturbances
from tests.simulation.checks.entities import OF_REQUESTS

if TYPE_CHECKING:
    from tests.simulation.ledger import Exchange
    from tests.simulation.network import End
    from tests.simulation.transport import SimulatedTransport
    from tests.simulation.world import World

_SCAN_MS: Final = 1_000.0
# A process may stand still for five seconds, and the sweep that looks for lost clients runs once a second.
_GRACE_MS: Final = 8_000.0
_SHORT_GRACE_MS: Final = 3_000.0
# The keepalive of both sides takes 30 + 3 * 5 s, and what is closed waits for 30 s.
_KEEPALIVE_MS: Final = 45_000.0
# After the proxy has closed its side, a client has two seconds for its own, and 15 times as long while it still reads.
_CLOSES_MS: Final = 2_000.0
_HALF_CLOSED_MS: Final = 30_000.0
# A dial takes at most 10 s. It may wait for 32 others.
_DIAL_MS: Final = 10_000.0
_MOST_DIALS: Final = 32
# These begin a connection, and neither wait for a bucket of bytes nor for a slot of the fair call queue.
_GREETINGS: Final = (frames.API_VERSIONS, frames.SASL_HANDSHAKE)


class _Client:
    """What is known of a client's connection: its requests without a response, and its connection to a broker.

    ``active_ms`` is when it has last sent or got something, or when its throttle time ends.
    """

    __slots__ = ("active_ms", "at_broker", "broker_end", "name", "open", "waiting")

    def __init__(self) -> None:
        self.name = ""
        self.waiting: dict[int, Exchange] = {}
        self.open: dict[int, Exchange] = {}
        self.at_broker: dict[int, Exchange] = {}
        self.broker_end: End | None = None
        self.active_ms = 0.0


class Ends(Check):
    """Looks once a second at all connections that the proxy has."""

    name: ClassVar[str] = "ends of connections"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._disturbances = Disturbances(world)
        self._clients: dict[End, _Client] = {}  # by the proxy's end
        self._client_ends: dict[End, End] = {}  # by the end to the broker
        self._since_ms: dict[tuple[End, str], float] = {}
        self._most_transports = 0  # at any time, because those that a dial has waited for may have given up

    def proxy_started(self, number: int) -> None:
        """All connections of before are gone."""
        self._clients.clear()
        self._client_ends.clear()
        self._since_ms.clear()

    def sent(self, exchange: "Exchange") -> None:
        """It waits."""
        if exchange.client_end is None:
            return
        client = self._clients.setdefault(exchange.client_end.peer, _Client())
        client.name = exchange.client
        client.active_ms = max(client.active_ms, exchange.sent_ms)
        client.open[exchange.correlation_id] = exchange
        if exchange.expects_response:
            client.waiting[exchange.correlation_id] = exchange

    def forwarding(self, exchange: "Exchange") -> None:
        """Note that a client gets no more responses, because the proxy has closed its side."""
        client_end, broker_end = exchange.client_end, exchange.broker_end
        if client_end is None or broker_end is None:
            return
        own = client_end.peer
        if exchange.expects_response and own.is_open and own.has_shut_down:
            self.world.fail(self.name, f"{exchange} is forwarded, and the proxy can give no response any more")
        client = self._clients.setdefault(own, _Client())
        client.broker_end = broker_end
        client.waiting.pop(exchange.correlation_id, None)
        if exchange.expects_response:
            client.at_broker[exchange.correlation_id] = exchange
        self._client_ends[broker_end] = own

    def forwarded(self, exchange: "Exchange") -> None:
        """A request without a response has ended."""
        client = self._client_of(exchange)
        if client is not None and not exchange.expects_response:
            client.open.pop(exchange.correlation_id, None)
            # Nobody is told for how long the proxy does not read a client that has a limit.
            client.active_ms = (
                inf if self.ledger.book.limits(exchange) else max(client.active_ms, exchange.forwarded_ms)
            )

    def answered(self, exchange: "Exchange") -> None:
        """The broker has nothing of it left."""
        client = self._client_of(exchange)
        if client is not None:
            client.at_broker.pop(exchange.correlation_id, None)

    def passed(self, exchange: "Exchange", frame_bytes: int) -> None:
        """It has ended. The proxy itself may have answered."""
        client = self._client_of(exchange)
        if client is not None:
            for exchanges in (client.waiting, client.at_broker, client.open):
                exchanges.pop(exchange.correlation_id, None)
            client.active_ms = max(client.active_ms, exchange.passed_ms)

    def received(self, exchange: "Exchange") -> None:
        """Who is told to wait is not idle meanwhile."""
        client = self._client_of(exchange)
        if client is not None:
            client.active_ms = max(client.active_ms, exchange.received_ms + exchange.throttle_ms)

    def _client_of(self, exchange: "Exchange") -> _Client | None:
        return None if exchange.client_end is None else self._clients.get(exchange.client_end.peer)

    # -- the verdict --

    def step(self) -> None:
        """Look at all connections once a second."""
        now_ms = self.world.clock.now_ms
        proxy = self.world.scenario.proxy
        transports = {transport.end: transport for transport in proxy.process.transports} if proxy.is_running else {}
        ports = self.world.settings.limited_ports
        since_ms: dict[tuple[End, str], float] = {}
        self._most_transports = max(self._most_transports, len(transports))
        for end, transport in transports.items():
            if end.local in ports:
                found = self._of_client(end, transport, transports, now_ms)
            elif end in self._client_ends:
                found = self._of_broker(end, transport, transports)
            else:
                continue
            if found is not None:
                text, most_ms = found
                began_ms = since_ms[end, text] = self._since_ms.get((end, text), now_ms)
                if now_ms - began_ms > most_ms:
                    what = f"the connection of {end.local} and {end.remote}"
                    self.world.fail(self.name, f"{what} has been open for {now_ms - began_ms:.0f} ms after {text}")
        self._since_ms = since_ms
        if len(self._clients) > len(transports) + 100:
            self._forget(transports)

    def _forget(self, transports: "dict[End, SimulatedTransport]") -> None:
        self._client_ends = {end: own for end, own in self._client_ends.items() if end in transports}
        kept = {*transports, *self._client_ends.values()}
        self._clients = {own: client for own, client in self._clients.items() if own in kept or own.is_open}

    def _of_client(
        self, end: "End", transport: "SimulatedTransport", transports: "dict[End, SimulatedTransport]", now_ms: float
    ) -> tuple[str, float] | None:
        """Return why a client's connection should end, and how long that may take."""
        if transport.is_closing():
            return None
        if not end.is_open:
            return "its client has gone", _GRACE_MS
        if end.link.is_cut:
            return "its client has vanished", _KEEPALIVE_MS + _GRACE_MS
        if end.has_shut_down:
            if end.unsent_bytes:
                return "the proxy has closed its side, with bytes to send", _HALF_CLOSED_MS + self._grace_ms
            return "the proxy has closed its side", _CLOSES_MS + self._grace_ms
        client = self._clients.get(end)
        if client is None:
            return None
        idle_ms = self.world.settings.idle_ms
        if idle_ms is not None and self._is_idle(client, end, now_ms):
            # The proxy checks a connection four times within idle_timeout, and the check may be a second late.
            return f"it got idle at {client.active_ms:.3f} ms", 1.25 * idle_ms + 2 * _SCAN_MS + self._grace_ms
        if client.broker_end is not None:
            return ("its broker has gone", _GRACE_MS) if client.broker_end not in transports else None
        exchange = next(iter(client.waiting.values()), None)
        if exchange is not None and self._awaits_dial(exchange):
            most_ms = _DIAL_MS * (1 + self._most_transports // _MOST_DIALS)
            return "its broker should have been dialled", most_ms + _GRACE_MS
        return None

    @property
    def _grace_ms(self) -> float:
        return _GRACE_MS if self.world.scenario.fired.get("proxy paused") else _SHORT_GRACE_MS

    def _is_idle(self, client: _Client, end: "End", now_ms: float) -> bool:
        """Return whether a client has sent nothing, and waits for nothing."""
        if client.open or now_ms < client.active_ms or end.is_on_the_way or end.unread_bytes:
            return False
        return self._disturbances.is_well_behaved(client.name) and not end.peer.is_on_the_way

    def _awaits_dial(self, exchange: "Exchange") -> bool:
        """Return whether a request waits for nothing but the dial of its broker."""
        client_end = exchange.client_end
        if exchange.api_key not in _GREETINGS or exchange.sent_ms < 0 or client_end is None:
            return False
        if client_end.is_on_the_way or client_end.peer.unread_bytes:
            return False
        return not self.ledger.book.limits(exchange, OF_REQUESTS)

    def _of_broker(
        self, end: "End", transport: "SimulatedTransport", transports: "dict[End, SimulatedTransport]"
    ) -> tuple[str, float] | None:
        """Return why a connection to a broker should end, and how long that may take."""
        if transport.is_closing() or not end.is_open:
            return None  # while it is not read, nobody looks at it
        if end.link.is_cut:
            return "its broker has vanished", _KEEPALIVE_MS + _GRACE_MS
        own = self._client_ends[end]
        client = self._clients.get(own)
        if own in transports or client is None or client.at_broker:
            return None
        if end.peer.is_on_the_way or end.unread_bytes:
            return None
        return "its client has gone, and everything was answered", _GRACE_MS
