"""The requests of each bucket are within ``request_rate``, on any number of connections.

A request is counted when the proxy begins to forward it, which is before the proxy charges it. While the bucket owes
something, requests wait in its line, whatever their connection. So in any window of W seconds at most
rate * W + burst requests begin, and one more. Only requests that keep a membership of a group wait no longer than five
seconds. They count, too.
"""

from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from tests.simulation.checks.buckets import BucketCheck
from tests.simulation.checks.check import Quotas
from tests.simulation.checks.disturbance import is_undisturbed
from tests.simulation.checks.flow import TOLERANCE_MS, Flow, Suspicion

if TYPE_CHECKING:
    from tests.simulation.ledger import Exchange
    from tests.simulation.world import World

# SaslHandshake, ApiVersions and SaslAuthenticate come before a client is known.
_GREETINGS: Final = frozenset((17, 18, 36))
# OffsetCommit, JoinGroup, Heartbeat, LeaveGroup, SyncGroup, and the heartbeats of the other protocols.
_KEEP_MEMBERSHIP: Final = frozenset((8, 11, 12, 13, 14, 68, 76, 88))
_MEMBERS_WAIT_MS: Final = 5_000.0


class _Charge(NamedTuple):
    """A request on its way, and the oracle of its bucket."""

    exchange: "Exchange"
    flow: Flow


class RequestRates(BucketCheck):
    """Judges each request by all that its bucket has let through."""

    name: ClassVar[str] = "request rates"
    kind = "request_rate"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._charges: dict[int, _Charge] = {}
        self._of_connection: dict[int, dict[int, None]] = {}
        self._suspicions: list[Suspicion] = []
        self._dialled_ms: dict[int, float] = {}  # when each connection's first request began
        self._given_until_ms: dict[Flow, float] = {}  # see ``_give_for_dial``

    def forget(self) -> None:
        """Forget all buckets."""
        super().forget()
        self._charges.clear()
        self._of_connection.clear()
        self._suspicions.clear()
        self._given_until_ms.clear()

    def rules_changed(self, *possible: Quotas) -> None:
        """Go on with the buckets whose limits are as before. They owe the same."""
        flows, settings = dict(self._flows), self.settings
        super().rules_changed(*possible)
        if self.settings == settings:
            self._flows.update((key, flow) for key, flow in flows.items() if self._rules.limit(key.tags) == flow.limit)

    def forwarding(self, exchange: "Exchange") -> None:
        """Judge whether the bucket was out of debt, and take the request from it."""
        now_ms, connection = self.world.clock.now_ms, exchange.connection
        dialled_ms = self._dialled_ms.setdefault(connection, now_ms)
        if exchange.api_key in _GREETINGS:
            return
        flow = self.flow_of(exchange)
        if flow is None:
            return
        if now_ms - dialled_ms < TOLERANCE_MS:
            self._give_for_dial(flow, exchange.sent_ms, now_ms)
        elif exchange.api_key not in _KEEP_MEMBERSHIP or now_ms - exchange.sent_ms < _MEMBERS_WAIT_MS:
            self._judge(exchange, flow, now_ms)
        flow.take(1, now_ms)
        self._charges[exchange.correlation_id] = _Charge(exchange, flow)
        self._of_connection.setdefault(connection, {})[exchange.correlation_id] = None

    def _give_for_dial(self, flow: Flow, sent_ms: float, now_ms: float) -> None:
        """Add what the quota has given while a request waited for the broker to be dialled, each moment of it once.

        It may have been let through long ago. The time that it is worth has then passed for others.
        """
        flow.advance(now_ms)
        from_ms = max(sent_ms, self._given_until_ms.get(flow, 0.0))
        given = max(0.0, min(1.0, (now_ms - from_ms) * flow.rate / 1_000))
        flow.credit += given
        self._given_until_ms[flow] = from_ms + given * 1_000 / flow.rate

    def _judge(self, exchange: "Exchange", flow: Flow, now_ms: float) -> None:
        debt = flow.debt(now_ms)
        if debt > 0:
            text = (
                f"{exchange} begins, and its bucket at {flow.limit.rate:g} requests/s ({flow.limit.shaping}) is "
                f"{debt:.1f} requests over what the quota has given"
            )
            waits_for = {number for number, other in self._charges.items() if other.flow is flow}
            self._suspicions.append(Suspicion(debt, text, waits_for))
            self._fail_for_sure()

    def forwarded(self, exchange: "Exchange") -> None:
        """A Produce without an answer is charged when it is forwarded as a whole."""
        if not exchange.expects_response:
            self._settle(exchange.correlation_id, is_charged=True)

    def passed(self, exchange: "Exchange", frame_bytes: int) -> None:
        """The proxy has surely charged this request."""
        self._settle(exchange.correlation_id, is_charged=True)

    def connection_closed(self, client: str, connection: int, *, by_client: bool) -> None:
        """The proxy charges what is whole, unless the broker may not have got it. Only faults may have kept it back."""
        is_calm = is_undisturbed(self.world)
        for correlation_id in tuple(self._of_connection.pop(connection, ())):
            exchange = self._charges[correlation_id].exchange
            is_whole = exchange.forwarded_ms >= 0 and exchange.has_open_broker
            self._settle(correlation_id, is_charged=by_client and is_calm and is_whole)

    def _settle(self, correlation_id: int, *, is_charged: bool) -> None:
        charge = self._charges.pop(correlation_id, None)
        if charge is None:
            return
        self._of_connection.get(charge.exchange.connection, {}).pop(correlation_id, None)
        if not is_charged:
            charge.flow.give_back(1, self.world.clock.now_ms)
        for suspicion in self._suspicions:
            if correlation_id in suspicion.waits_for:
                suspicion.waits_for.discard(correlation_id)
                suspicion.excess -= not is_charged
        if self._suspicions:
            self._fail_for_sure()

    def _fail_for_sure(self) -> None:
        """Report what is wrong whatever becomes of what is on its way."""
        for suspicion in self._suspicions:
            if suspicion.excess > len(suspicion.waits_for):
                self.world.fail(self.name, suspicion.text)
        self._suspicions = [one for one in self._suspicions if one.excess > 0]
