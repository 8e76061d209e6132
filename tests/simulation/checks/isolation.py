"""Nobody's failure touches another: the proxy closes a connection only for a cause that is known.

A client that behaves, whose broker and network work, keeps its connection whatever others do, and whatever the operator
changes in the file.
"""

from typing import TYPE_CHECKING, ClassVar, Final

from tests.simulation.checks.check import Check
from tests.simulation.checks.disturbance import SMALL_MEMORY, Disturbances

if TYPE_CHECKING:
    from tests.simulation.ledger import Entity, Exchange
    from tests.simulation.world import World

# For how long a fault may still be the cause: brokers come back, and time-outs pass.
_AFTERMATH_MS: Final = 60_000.0
# Time limits may end a connection somewhat early.
_EARLY: Final = 0.7


class _Open:
    """An open connection.

    Attributes:
        quiet_ms: How long it was quiet before a request that the proxy may not have yet. A request may cross the end of
            a connection that was idle.
        last_unanswered: The correlation id of the last request without a response. Until a later one is answered, the
            broker may close the connection, since it cannot tell of an error in another way.
    """

    __slots__ = ("active_ms", "is_excused", "last_unanswered", "opened_ms", "quiet_ms")

    def __init__(self, now_ms: float) -> None:
        self.opened_ms = self.active_ms = now_ms
        self.quiet_ms = 0.0
        self.is_excused = True  # until it has sent a request to a broker
        self.last_unanswered = -1

    def is_used(self, now_ms: float) -> None:
        """Note that the proxy has a request of it, or has sent it a response."""
        self.active_ms = now_ms
        self.quiet_ms = 0.0


class Isolation(Check):
    """Judges each connection that the proxy closes."""

    name: ClassVar[str] = "isolation"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._disturbances = Disturbances(world)
        self._open: dict[int, _Open] = {}
        self._had_limits = False
        # When a connection was closed, and opened, and what to say if no fault explains it.
        self._suspicions: list[tuple[float, float, str]] = []

    def connection_opened(self, client: str, connection: int, entity: "Entity") -> None:
        """Remember since when it is open."""
        self._disturbances.last_ms()
        self._had_limits |= self.world.settings.limits_connections
        self._open[connection] = _Open(self.world.clock.now_ms)

    def sent(self, exchange: "Exchange") -> None:
        """Note what a connection is used for."""
        if self._suspicions:
            self._judge_earlier()
        one = self._open.get(exchange.connection)
        if one is None:
            return
        one.quiet_ms = max(one.quiet_ms, exchange.sent_ms - one.active_ms)
        one.active_ms = exchange.sent_ms
        self._disturbances.last_ms()
        # The proxy closes connections to its bootstrap port when it learns more of the cluster.
        one.is_excused = exchange.broker is None or exchange.is_inter_broker
        if not exchange.expects_response:
            one.last_unanswered = exchange.correlation_id

    def forwarding(self, exchange: "Exchange") -> None:
        """A request that the proxy has counts as activity."""
        one = self._open.get(exchange.connection)
        if one is not None:
            one.is_used(self.world.clock.now_ms)

    def received(self, exchange: "Exchange") -> None:
        """A response counts as activity."""
        one = self._open.get(exchange.connection)
        if one is not None:
            one.is_used(exchange.received_ms)
            if exchange.correlation_id > one.last_unanswered:
                one.last_unanswered = -1

    def proxy_stopping(self, number: int) -> None:
        """All connections end."""
        self._disturbances.happened_now()

    def proxy_ended(self, number: int, *, is_crash: bool) -> None:
        """All connections end."""
        self._disturbances.happened_now()

    def connection_closed(self, client: str, connection: int, *, by_client: bool) -> None:
        """Judge the end of a connection, a moment later: a fault is only known when it is over."""
        self._judge_earlier()
        one = self._open.pop(connection, None)
        last_ms = self._disturbances.last_ms()
        settings = self.world.settings
        self._had_limits |= settings.limits_connections
        if by_client or one is None or last_ms >= one.opened_ms - _AFTERMATH_MS:
            return
        if one.is_excused or one.last_unanswered >= 0:
            return
        now_ms = self.world.clock.now_ms
        is_old = settings.age_ms is not None and now_ms - one.opened_ms >= _EARLY * settings.age_ms
        quiet_ms = max(one.quiet_ms, now_ms - one.active_ms)
        was_idle = settings.idle_ms is not None and quiet_ms >= _EARLY * settings.idle_ms
        if is_old or was_idle or self._had_limits or settings.max_buffered < SMALL_MEMORY:
            return
        if not self._disturbances.is_well_behaved(client):
            return
        open_ms = now_ms - one.opened_ms
        text = f"the connection {connection} of {client} is closed after {open_ms:.0f} ms, and nothing explains it"
        self._suspicions.append((now_ms, one.opened_ms, text))

    def _judge_earlier(self) -> None:
        """Judge the connections that have ended before now."""
        now_ms = self.world.clock.now_ms
        while self._suspicions and self._suspicions[0][0] < now_ms:
            _, opened_ms, text = self._suspicions.pop(0)
            if self._disturbances.last_ms() < opened_ms - _AFTERMATH_MS:
                self.world.fail(self.name, text)

    def end(self) -> None:
        """Judge the rest."""
        self._judge_earlier()
