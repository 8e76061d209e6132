"""The requests of each bucket are within ``request_rate``.

A request is charged when its answer begins, which is after the broker wrote it. If its bucket then owes something, its
connection must not begin another request before the debt is paid. So in any window of W seconds at most
rate * W + burst requests pass, and one more for each connection.
"""

from typing import TYPE_CHECKING, ClassVar, Final

from tests.simulation.checks.buckets import BucketCheck
from tests.simulation.checks.flow import TOLERANCE_MS, Flow

if TYPE_CHECKING:
    from tests.simulation.ledger import Exchange
    from tests.simulation.world import World

# SaslHandshake, ApiVersions and SaslAuthenticate come before a client is known.
_GREETINGS: Final = frozenset((17, 18, 36))


class _Charge:
    """A request in its bucket.

    Attributes:
        flow: The oracle of the bucket.
        is_taken: Whether the broker has answered, so that the request is taken from the flow.
        free_ms: Until when the connection must wait after the answer.
    """

    __slots__ = ("flow", "free_ms", "is_taken")

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.is_taken = False
        self.free_ms = 0.0


class RequestRates(BucketCheck):
    """Judges each request by the answer that its connection got before."""

    name: ClassVar[str] = "request rates"
    kind = "request_rate"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._charges: dict[int, _Charge] = {}
        self._of_connection: dict[int, dict[int, None]] = {}
        self._free_ms: dict[int, float] = {}

    def forget(self) -> None:
        """Forget all buckets."""
        super().forget()
        self._charges.clear()
        self._of_connection.clear()
        self._free_ms.clear()

    def forwarding(self, exchange: "Exchange") -> None:
        """Judge whether the connection has waited long enough."""
        if exchange.api_key in _GREETINGS:
            return
        flow = self.flow_of(exchange)
        if flow is None:
            return
        now_ms = self.world.clock.now_ms
        free_ms = self._free_ms.get(exchange.connection, 0.0)
        if now_ms < free_ms - TOLERANCE_MS:
            text = (
                f"{exchange} begins {free_ms - now_ms:,.0f} ms before its connection has paid for what it sent before"
            )
            self.world.fail(self.name, f"{text}, at {flow.limit.rate:g} requests/s ({flow.limit.shaping})")
        self._charges[exchange.correlation_id] = _Charge(flow)
        self._of_connection.setdefault(exchange.connection, {})[exchange.correlation_id] = None

    def forwarded(self, exchange: "Exchange") -> None:
        """A Produce without an answer is charged when it is forwarded as a whole."""
        if not exchange.expects_response:
            self.answered(exchange)
            self._settle(exchange)

    def answered(self, exchange: "Exchange") -> None:
        """Charge a request, at the earliest time at which the proxy can."""
        charge = self._charges.get(exchange.correlation_id)
        if charge is None:
            return
        flow, now_ms = charge.flow, self.world.clock.now_ms
        flow.take(1, now_ms)
        charge.is_taken = True
        # What the proxy may not have charged yet is not owed yet.
        unsure = sum(1 for other in self._charges.values() if other.flow is flow and other.is_taken) - 1
        debt_ms = max(0.0, flow.debt(now_ms) - unsure) * 1_000 / flow.limit.rate
        most_ms = self.settings.max_throttle_ms
        windows_ms = self.settings.window_num * self.settings.window_ms
        if flow.limit.shaping == "sampled" and most_ms is not None and most_ms < windows_ms:
            return  # after the longest wait, windows forget what is still owed
        if debt_ms:
            charge.free_ms = now_ms + (debt_ms if most_ms is None else min(debt_ms, most_ms))

    def passed(self, exchange: "Exchange", frame_bytes: int) -> None:
        """The proxy has surely charged this request, and the connection waits."""
        self._settle(exchange)

    def connection_closed(self, client: str, connection: int, *, by_client: bool) -> None:
        """Nobody knows whether the proxy has charged what was on its way. Say no, which is never a false alarm."""
        for correlation_id in self._of_connection.pop(connection, ()):
            charge = self._charges.pop(correlation_id, None)
            if charge is not None and charge.is_taken:
                charge.flow.give_back(1, self.world.clock.now_ms)
        self._free_ms.pop(connection, None)

    def _settle(self, exchange: "Exchange") -> None:
        charge = self._charges.pop(exchange.correlation_id, None)
        if charge is None:
            return
        connection = exchange.connection
        self._of_connection.get(connection, {}).pop(exchange.correlation_id, None)
        if charge.free_ms:
            self._free_ms[connection] = max(charge.free_ms, self._free_ms.get(connection, 0.0))
