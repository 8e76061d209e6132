"""The proxy closes no connection in the middle of a request.

A drained connection, and one whose client has closed its side, are closed when all requests are answered. Who waits for
the proxy is not closed by a time limit. That the proxy itself has closed a connection, and not its peers, is read from
the simulated system. A Produce without a response that the proxy has read is forwarded, also while it drains.
"""

from typing import TYPE_CHECKING, ClassVar, Final

from tests.simulation.checks.check import Check, Quotas
from tests.simulation.checks.disturbance import SMALL_MEMORY, Disturbances
from tests.simulation.checks.settings import SETTLE_MS
from tests.simulation.clients.profiles import CLUMSY

if TYPE_CHECKING:
    from tests.simulation.ledger import Exchange, Line
    from tests.simulation.network import End
    from tests.simulation.world import World

# After this time a request has arrived before its connection was closed, not while it was.
_WAITED_MS: Final = 5_000.0
# After a fault a dial may fail.
_AFTERMATH_MS: Final = 60_000.0
# After this time the proxy has forwarded what it has read, even if its process was paused.
_FORWARDED_MS: Final = 10_000.0


class CutShort(Check):
    """Judges what is open on each connection that the proxy has closed."""

    name: ClassVar[str] = "cut short"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._disturbances = Disturbances(world)
        self._had_limits = False
        self._unforwarded: list[tuple[float, Exchange]] = []  # and when it must have been forwarded

    def rules_changed(self, *possible: Quotas) -> None:
        """Remember limits on connections, also those of before."""
        self._had_limits |= self.world.settings.limits_connections
        self._had_limits |= any("connections" in rule or "ip" in rule for quotas in possible for rule in quotas)

    def proxy_started(self, number: int) -> None:
        """Connections of before are gone."""
        self._unforwarded.clear()

    def step(self) -> None:
        """Judge the requests that should have been forwarded by now."""
        if self._unforwarded and self._unforwarded[0][0] <= self.world.clock.now_ms:
            _, exchange = self._unforwarded.pop(0)
            if exchange.forwarded_first_ms < 0 and not self.ledger.is_stopping:
                self.world.fail(self.name, f"{exchange} expects no response, was read, and is not forwarded")

    # -- the verdict --

    def connection_closed(self, client: str, connection: int, *, by_client: bool) -> None:
        """Judge the requests that have not ended."""
        last_ms = self._disturbances.last_ms()
        line = self.ledger.lines.get(connection)
        if line is None or not line.open or by_client or self.ledger.is_stopping or self._had_limits:
            return
        if line.is_inter_broker or line.opened_ms < self.ledger.started_ms:
            return
        settings = self.world.settings
        exchange = next(iter(line.open.values()))
        if settings.max_buffered < SMALL_MEMORY or exchange.sent_ms < 0 or not self._is_closed_by_proxy(exchange):
            return
        now_ms = self.world.clock.now_ms
        is_healthy = self._disturbances.is_well_behaved(client)
        if line.last is None:
            is_known = is_healthy and last_ms < now_ms - _AFTERMATH_MS and not self._may_be_refused(exchange)
        else:
            is_known = _is_good(line.last.broker_end)
        if not is_known or any(one.is_misnumbered for one in line.open.values()):
            return
        if not exchange.expects_response:
            if is_healthy:
                self._await_forward(line, now_ms)
        elif exchange.forwarded_ms >= 0:
            if is_healthy or (settings.idle_ms is None and self._is_clumsy(client)):
                self.world.fail(self.name, f"the proxy closes the connection of {exchange}, which its broker has")
        # A connection to a bootstrap server is drained once the brokers are known, as one that is too old.
        elif (
            is_healthy and settings.age_ms is None and not settings.hides_addresses and exchange.forwarded_first_ms < 0
        ):
            waited_ms = now_ms - exchange.sent_ms
            if waited_ms > _WAITED_MS:
                text = f"which has waited for {waited_ms:.0f} ms to be forwarded"
                self.world.fail(self.name, f"the proxy closes the connection of {exchange}, {text}")

    def _is_clumsy(self, client: str) -> bool:
        setting = getattr(self.world.scenario.actors.get(client), "setting", None)
        return setting is not None and setting.habits is CLUMSY

    def _is_closed_by_proxy(self, exchange: "Exchange") -> bool:
        """Return whether neither the network nor the client is to blame. A bootstrap port may end for good."""
        end = exchange.client_end
        return end is not None and exchange.broker is not None and end.has_ended and not end.peer.is_reset

    def _may_be_refused(self, exchange: "Exchange") -> bool:
        """Return whether its broker may not have been dialled, because something else went wrong."""
        broker = self.world.scenario.cluster.brokers.get(exchange.broker or 0)
        return broker is None or not broker.is_up or broker.is_stalled

    def _await_forward(self, line: "Line", now_ms: float) -> None:
        """Expect that a Produce without a response is forwarded, if the proxy has surely read it."""
        last = line.last
        if self.world.settings.has_queue or last is None or last.expects_response or last.forwarded_ms < 0:
            return
        for exchange in line.open.values():
            end = exchange.client_end
            if exchange.expects_response or end is None or end.peer.received_bytes != end.written_bytes:
                return
            if self.ledger.book.limits(exchange, since_ms=exchange.sent_ms - SETTLE_MS):
                return
            self._unforwarded.append((now_ms + _FORWARDED_MS, exchange))


def _is_good(end: "End | None") -> bool:
    """Return whether the connection to a broker is open, or was closed by the proxy alone."""
    return end is not None and not (end.has_ended or end.is_reset or end.is_timed_out or end.link.is_cut)
