"""What happened to each request of the simulated world, as clients, brokers and the wire report it.

Correlation ids are unique in a world. So a frame that the proxy forwards, delays or answers is found by its id, and
nothing of the proxy is asked.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.simulation.checks.check import Check
from tests.simulation.checks.entities import RuleBook

if TYPE_CHECKING:
    from tests.simulation.clock import Clock
    from tests.simulation.network import End

FIRST_ID: Final = 1_000_000
NEVER: Final = -1.0
_STALLS_MS: Final = 2_100.0  # twice the time between two looks of the proxy


class Entity(NamedTuple):
    """Who a client is to the quotas: the user's name, the client-id, and the address that it connects from."""

    user: str
    client_id: str
    host: str


@dataclass(slots=True, eq=False, repr=False)
class Exchange:
    """A request of a simulated client and what became of it. Times are ms of the monotonic clock, or ``NEVER``.

    Attributes:
        client: The name of the actor that sent it.
        connection: The number of the client's TCP connection, unique in a world.
        broker: The node id of the broker that the client meant to reach; None at a bootstrap port.
        request: The whole frame as the client sent it, with its size.
        expects_response: Whether the client waits for a response. False for Produce with acks=0.
        detail: What the builder of the request keeps for itself and for the checks.
        sent_ms: When the client wrote the last byte.
        sent_bytes: How many bytes the client has written of it, if it wrote a part of it on purpose; else -1.
        forwarded_first_ms: When the proxy wrote the first byte to the broker.
        forwarded_ms: When the proxy wrote the last byte to the broker.
        forwarded_bytes: How many bytes the proxy has written of it, while it is not complete.
        forwarded_last_ms: When the proxy last wrote a byte of it.
        stalled_ms: The longest time between two of its pieces.
        forwarded_to: The node id of the broker that the proxy wrote it to.
        client_end: The client's end of its connection to the proxy.
        broker_end: The proxy's end of the connection to that broker.
        at_broker_ms: When the last byte arrived at the broker.
        answered_ms: When the broker wrote its response.
        response_at: Where the response begins in all bytes of the broker's connection.
        passed_ms: When the proxy wrote the last byte of a response to the client.
        received_ms: When the client had the whole response.
        line: What is known of its connection, also after its end.
        is_misnumbered: Whether the broker has given its response the number of no request.
        throttle_ms: The throttle time in the response, as the client read it.
    """

    correlation_id: int
    request: bytes
    _: KW_ONLY
    api_key: int
    api_version: int
    client: str
    connection: int
    entity: Entity
    broker: int | None = None
    expects_response: bool = True
    is_inter_broker: bool = False
    detail: Any = None
    sent_ms: float = NEVER
    sent_bytes: int = -1
    forwarded_first_ms: float = NEVER
    forwarded_ms: float = NEVER
    forwarded_bytes: int = 0
    forwarded_last_ms: float = NEVER
    stalled_ms: float = 0.0
    forwarded_to: int | None = None
    client_end: "End | None" = None
    broker_end: "End | None" = None
    at_broker_ms: float = NEVER
    answered_ms: float = NEVER
    response_of_broker: bytes | None = None
    response_at: int = 0
    passed_ms: float = NEVER
    received_ms: float = NEVER
    response: bytes | None = None
    is_misnumbered: bool = False
    throttle_ms: int = 0
    line: "Line" = field(init=False)

    @property
    def has_open_broker(self) -> bool:
        """Whether the proxy's connection to the broker that has the request is still open."""
        return self.broker_end is None or self.broker_end.is_open

    @property
    def has_reached_proxy(self) -> bool:
        """Whether the proxy has read size and correlation id of the broker's response."""
        end = self.broker_end
        return end is not None and self.answered_ms >= 0 and end.received_bytes >= self.response_at + 8

    def __repr__(self) -> str:
        return f"{self.client}#{self.correlation_id} (api {self.api_key} v{self.api_version}, {len(self.request)} B)"


class Line:
    """A client's connection to the proxy, or a follower's.

    Attributes:
        open: Its requests whose response has not passed. Those without a response are there until they are forwarded.
        unread: Its requests that were forwarded, and whose response the client does not have.
        last: The request that was forwarded last.
        is_answered: Whether a response has passed.
        ended_ms: When the last response has passed.
        unanswered_ms: When the last request without a response was forwarded.
        told_until_ms: Until when the client was told to wait.
        slowest_ms: The longest time in which a request of it was forwarded.
        is_gone: Whether the client has left it.
    """

    __slots__ = (
        "ended_ms", "is_answered", "is_gone", "is_inter_broker", "last", "open", "opened_ms", "slowest_ms",
        "told_until_ms", "unanswered_ms", "unread",
    )  # fmt: skip

    def __init__(self, opened_ms: float = 0.0) -> None:
        self.opened_ms = opened_ms
        self.open: dict[int, Exchange] = {}
        self.unread: dict[int, Exchange] = {}
        self.last: Exchange | None = None
        self.is_answered = self.is_inter_broker = self.is_gone = False
        self.ended_ms = self.unanswered_ms = NEVER
        self.told_until_ms = self.slowest_ms = 0.0

    @property
    def waiting(self) -> "Iterator[Exchange]":
        """The requests that were not forwarded."""
        return (one for one in self.open.values() if one.forwarded_first_ms < 0)

    @property
    def at_broker(self) -> "Iterator[Exchange]":
        """The requests that were forwarded, and whose response has not passed."""
        return (one for one in self.open.values() if one.forwarded_first_ms >= 0 and one.expects_response)


class Ledger:
    """All exchanges of a world by correlation id. It tells each event to ``checks``, in their order.

    Attributes:
        lines: What is known of each open connection, by its number.
        book: The rules that may have been in force.
        started_ms: When the process of the proxy was started.
        is_stopping: Whether it was asked to stop, or has ended.
    """

    def __init__(self, clock: "Clock") -> None:
        self._clock = clock
        self._next_id = FIRST_ID
        self._next_connection = 0
        self.exchanges: dict[int, Exchange] = {}
        self._own: dict[int, None] = {}  # requests of the proxy itself, at a broker, with the id of a client's request
        self.checks: Sequence[Check] = ()
        self._listeners: dict[str, list[Callable[..., None]]] = {}
        self._heard: Sequence[Check] = ()  # the checks of these listeners
        self.lines: dict[int, Line] = {}
        self.book = RuleBook()
        self.started_ms = NEVER
        self.is_stopping = False

    def next_id(self) -> int:
        """Return a correlation id that nobody has used."""
        self._next_id += 1
        return self._next_id

    def next_connection(self) -> int:
        """Return the number of a new connection of a client."""
        self._next_connection += 1
        return self._next_connection

    def _tell(self, event: str, *args: Any, **more: Any) -> None:
        # Most checks hear few events, and a world has a thousand events in a second.
        if self._heard is not self.checks:
            self._heard, self._listeners = self.checks, {}
        listeners = self._listeners.get(event)
        if listeners is None:
            nothing = getattr(Check, event)
            every = ((check, getattr(type(check), event, None)) for check in self.checks)
            listeners = [getattr(check, event) for check, own in every if own is not nothing]
            self._listeners[event] = listeners
        for listener in listeners:
            listener(*args, **more)

    # -- called by clients --

    def sent(self, exchange: Exchange) -> Exchange:
        """Record that a client writes this request now."""
        exchange.sent_ms = self._clock.now_ms
        self.exchanges[exchange.correlation_id] = exchange
        exchange.line = line = self.lines.setdefault(exchange.connection, Line())
        line.open[exchange.correlation_id] = exchange
        line.is_inter_broker = exchange.is_inter_broker
        self._tell("sent", exchange)
        return exchange

    def received(self, exchange: Exchange, response: bytes, *, throttle_ms: int) -> None:
        """Record that a client has the whole response to its request. ``response`` includes its size."""
        exchange.received_ms = self._clock.now_ms
        exchange.response = response
        exchange.throttle_ms = throttle_ms
        line = exchange.line
        line.unread.pop(exchange.correlation_id, None)
        line.told_until_ms = max(line.told_until_ms, exchange.received_ms + throttle_ms)
        self._tell("received", exchange)

    def connected(self, client: str, connection: int, entity: Entity) -> None:
        """Record that a client's connection to the proxy is open."""
        self.lines[connection] = Line(self._clock.now_ms)
        self._tell("connection_opened", client, connection, entity)

    def disconnected(self, client: str, connection: int, *, by_client: bool) -> None:
        """Record that a client's connection is gone. ``by_client`` says that the client itself ended it."""
        self._tell("connection_closed", client, connection, by_client=by_client)
        self.lines.pop(connection, Line()).is_gone = True

    # -- called by the supervisor of the proxy --

    def proxy_started(self, number: int) -> None:
        """Record that a process of the proxy serves."""
        self.started_ms, self.is_stopping = self._clock.now_ms, False
        self._tell("proxy_started", number)

    def proxy_stopping(self, number: int) -> None:
        """Record that a process of the proxy was asked to stop."""
        self.is_stopping = True
        self._tell("proxy_stopping", number)

    def proxy_ended(self, number: int, *, is_crash: bool) -> None:
        """Record that a process of the proxy has stopped in order, or was killed."""
        self.is_stopping = True
        self._tell("proxy_ended", number, is_crash=is_crash)

    # -- called by the sockets of the proxy --

    def accepted(self, local: tuple[str, int], remote: tuple[str, int]) -> None:
        """Record that the proxy accepts a connection."""
        self._tell("accepted", local, remote)

    def served(self, local: tuple[str, int], remote: tuple[str, int]) -> None:
        """Record that the proxy begins to serve a connection that it has accepted."""
        self._tell("served", local, remote)

    # -- called by the tap on the proxy's side of each connection --

    def forwarding(self, correlation_id: int, node_id: int, api_key: int, end: "End | None" = None) -> Exchange | None:
        """Record the first byte of a request that the proxy writes to a broker. None: a request of the proxy itself.

        To charge a DeleteTopics, the proxy asks for the topics' partitions first, with the id of that request.
        """
        exchange = self.exchanges.get(correlation_id)
        if exchange is not None and exchange.api_key != api_key:
            return None
        if exchange is not None:
            exchange.forwarded_first_ms = exchange.forwarded_last_ms = self._clock.now_ms
            exchange.forwarded_to = node_id
            exchange.broker_end = end
            self._tell("forwarding", exchange)
            exchange.line.last = exchange
            if exchange.expects_response:
                exchange.line.unread[correlation_id] = exchange
        return exchange

    def goes_on(self, exchange: Exchange) -> None:
        """Record that the proxy writes more of a request."""
        now_ms = self._clock.now_ms
        stalled_ms = now_ms - exchange.forwarded_last_ms
        exchange.stalled_ms = max(exchange.stalled_ms, stalled_ms)
        if stalled_ms >= _STALLS_MS:
            self._tell("continuing", exchange)
        exchange.forwarded_last_ms = now_ms

    def forwarded(self, exchange: Exchange) -> None:
        """Record the last byte of a request that the proxy writes to a broker."""
        exchange.forwarded_ms = self._clock.now_ms
        line = exchange.line
        line.slowest_ms = max(line.slowest_ms, exchange.forwarded_ms - exchange.forwarded_first_ms)
        if not exchange.expects_response:
            line.open.pop(exchange.correlation_id, None)
            line.unanswered_ms = exchange.forwarded_ms
        self._tell("forwarded", exchange)

    def passed(self, correlation_id: int, frame_bytes: int) -> None:
        """Record the last byte of a response of ``frame_bytes`` bytes that the proxy writes to a client."""
        exchange = self.exchanges[correlation_id]
        exchange.passed_ms = self._clock.now_ms
        line = exchange.line
        line.open.pop(correlation_id, None)
        line.is_answered, line.ended_ms = True, exchange.passed_ms
        self._tell("passed", exchange, frame_bytes)

    # -- called by brokers --

    def at_broker(self, node_id: int, frame: bytes, correlation_id: int) -> Exchange | None:
        """Record a whole request, with its size, that has arrived at a broker. None: a request of the proxy itself."""
        exchange = self.exchanges.get(correlation_id)
        if exchange is not None and exchange.api_key != int.from_bytes(frame[4:6]):
            self._own[correlation_id] = None
            return None
        if exchange is not None:
            exchange.at_broker_ms = self._clock.now_ms
            self._tell("at_broker", exchange, node_id, frame)
        return exchange

    def answered(self, correlation_id: int, response: bytes) -> None:
        """Record the response, with its size, that a broker writes."""
        exchange = self.exchanges.get(correlation_id)
        if correlation_id in self._own:
            del self._own[correlation_id]
        elif exchange is not None:
            exchange.answered_ms = self._clock.now_ms
            exchange.response_of_broker = response
            if exchange.broker_end is not None:
                exchange.response_at = exchange.broker_end.peer.written_bytes - len(response)
            self._tell("answered", exchange)
