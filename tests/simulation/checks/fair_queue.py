"""The fair call queue starves nobody.

While a broker answers, the request that is next on its connection is forwarded or refused after a bounded number of
turns: the greediest level gets one turn of 15, and connections of a level take turns. A broker without any work never
leaves it waiting.
"""

from typing import TYPE_CHECKING, ClassVar, Final

from tests.simulation.checks import frames
from tests.simulation.checks.check import Check, Quotas
from tests.simulation.checks.disturbance import Disturbances
from tests.simulation.checks.entities import KINDS, RuleBook

if TYPE_CHECKING:
    from tests.simulation.ledger import Exchange
    from tests.simulation.world import World

_SCAN_MS: Final = 1_000.0
# A new connection, a login, a slow network, and the pause after a refusal.
_GRACE_MS: Final = 15_000.0
_TURNS_OF_ALL_LEVELS: Final = 15  # 8 + 4 + 2 + 1
_PIPELINED: Final = 5  # requests that a connection sends ahead
# While they wait at a broker they keep no slot.
_SLOTLESS: Final = frozenset({frames.FETCH, frames.SHARE_FETCH, frames.JOIN_GROUP, frames.SYNC_GROUP})


class _Line:
    """A client's connection with requests that have no response, oldest first."""

    __slots__ = ("exchanges", "next_ms", "node_id", "told_until_ms", "turns")

    def __init__(self) -> None:
        self.exchanges: dict[int, Exchange] = {}
        self.node_id: int | None = None  # of the broker that it led to so far
        self.next_ms = 0.0  # since when its oldest request is the oldest
        self.told_until_ms = 0.0
        self.turns = 0  # the count of the broker at that time


class FairQueue(Check):
    """Counts, for each request that is next on its connection, what its broker gets in the meantime."""

    name: ClassVar[str] = "fair call queue"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._disturbances = Disturbances(world)
        self._book = RuleBook(world.settings)
        self._lines: dict[int, _Line] = {}
        self._turns: dict[int, int] = {}  # requests that each broker was sent so far
        self._at_broker: dict[int, dict[int, Exchange]] = {}
        self._next_ms = 0.0

    def rules_changed(self, *possible: Quotas) -> None:
        """Begin to count anew."""
        self._book.change(possible, self.world.settings, self.world.clock.now_ms)
        self._disturbances.happened_now()

    def proxy_started(self, number: int) -> None:
        """Begin to count anew."""
        self._disturbances.happened_now()

    def proxy_stopping(self, number: int) -> None:
        """Begin to count anew."""
        self._disturbances.happened_now()

    def sent(self, exchange: "Exchange") -> None:
        """It is next if its connection waits for nothing else."""
        line = self._lines.setdefault(exchange.connection, _Line())
        line.exchanges[exchange.correlation_id] = exchange
        if len(line.exchanges) == 1:
            self._advance(line)
        if exchange.sent_ms >= self._next_ms:
            self._scan(exchange.sent_ms)

    def forwarding(self, exchange: "Exchange") -> None:
        """It had its turn."""
        node_id = exchange.forwarded_to
        if node_id is None:
            return
        self._turns[node_id] = self._turns.get(node_id, 0) + 1
        if exchange.expects_response and exchange.api_key not in _SLOTLESS:
            self._at_broker.setdefault(node_id, {})[exchange.correlation_id] = exchange
        line = self._lines.get(exchange.connection)
        if line is not None:
            line.node_id = node_id

    def forwarded(self, exchange: "Exchange") -> None:
        """A request without a response has ended."""
        if not exchange.expects_response:
            self._ended(exchange)

    def answered(self, exchange: "Exchange") -> None:
        """The broker has worked."""
        if exchange.forwarded_to is not None:
            self._at_broker.get(exchange.forwarded_to, {}).pop(exchange.correlation_id, None)

    def passed(self, exchange: "Exchange", frame_bytes: int) -> None:
        """It was answered or refused."""
        self._ended(exchange)
        if self.world.clock.now_ms >= self._next_ms:
            self._scan(self.world.clock.now_ms)

    def received(self, exchange: "Exchange") -> None:
        """Remember for how long the proxy may not read the connection."""
        line = self._lines.get(exchange.connection)
        if line is not None and exchange.throttle_ms > 0:
            line.told_until_ms = max(line.told_until_ms, exchange.received_ms + exchange.throttle_ms)

    def connection_closed(self, client: str, connection: int, *, by_client: bool) -> None:
        """A client that gives up has waited for too long."""
        self._scan(self.world.clock.now_ms)
        line = self._lines.pop(connection, None)
        if line is not None:
            for exchange in line.exchanges.values():
                self.answered(exchange)

    def end(self) -> None:
        """Nobody waits at the end."""
        self._lines.clear()

    def _ended(self, exchange: "Exchange") -> None:
        line = self._lines.get(exchange.connection)
        if line is not None and line.exchanges.pop(exchange.correlation_id, None) is not None:
            self._advance(line)

    def _advance(self, line: _Line) -> None:
        line.next_ms = self.world.clock.now_ms
        line.turns = self._turns.get(line.node_id or 0, 0)

    def _scan(self, now_ms: float) -> None:
        self._next_ms = now_ms + _SCAN_MS
        quiet_ms = self._disturbances.quiet_since_ms()
        if not self.world.settings.has_queue:
            self._disturbances.happened_now()
            return
        for line in self._lines.values():
            if not line.exchanges or line.node_id is None:
                continue
            exchange = next(iter(line.exchanges.values()))
            # Only its client still waits: the proxy has ended the connection within ``quiet_ms``, by its keepalives.
            if exchange.client_end is not None and exchange.client_end.link.is_cut:
                continue
            waited_ms = now_ms - max(line.next_ms, quiet_ms, line.told_until_ms)
            if exchange.forwarded_first_ms < 0 and waited_ms > _GRACE_MS:
                self._judge(exchange, line, line.node_id, waited_ms)

    def _judge(self, exchange: "Exchange", line: _Line, node_id: int, waited_ms: float) -> None:
        """Fail if the broker had time for it. A request may also wait for its quota."""
        user, client_id, _ = exchange.entity
        if exchange.is_inter_broker or not self._disturbances.is_well_behaved(exchange.client):
            return
        if any(self._book.limits(kind, user, client_id, since_ms=exchange.sent_ms) for kind in KINDS):
            return
        turns = self._turns.get(node_id, 0) - line.turns
        most_turns = _TURNS_OF_ALL_LEVELS * _PIPELINED * (1 + len(self._lines))
        if turns > most_turns:
            self._fail(exchange, waited_ms, f"broker {node_id} was sent {turns} others, and {most_turns} is the most")
        if not self._at_broker.get(node_id):
            self._fail(exchange, waited_ms, f"broker {node_id} has nothing to do")

    def _fail(self, exchange: "Exchange", waited_ms: float, text: str) -> None:
        self.world.fail(self.name, f"{exchange} waits for {waited_ms:.0f} ms, while {text}")
