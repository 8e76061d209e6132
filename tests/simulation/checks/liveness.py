"""No connection waits for ever that could go on.

A healthy client's oldest request, with brokers and network at peace, is answered within a time that follows from what
its buckets owe, from the requests that wait before it, and from the time that brokers themselves take. After a fault,
peace is back when the fault is over. Connections of before, buckets and slots of the fair call queue may have to wait
longer, until what was lost is noticed.
"""

from typing import TYPE_CHECKING, ClassVar, Final

from tests.simulation.checks import frames
from tests.simulation.checks.check import Check, Quotas
from tests.simulation.checks.disturbance import Disturbances
from tests.simulation.checks.entities import FETCH, KINDS, PRODUCE

if TYPE_CHECKING:
    from tests.simulation.ledger import Entity, Exchange
    from tests.simulation.world import World

# What brokers, the network, a login and rounding may take, with nothing wrong.
_GRACE_MS: Final = 15_000.0
# A turn of the fair call queue, without the time of network and disk. The greediest level gets one turn in 15.
_TURN_MS: Final = 30.0
_TURNS: Final = 15
_READS_STORE_MS: Final = 30_000.0  # a proxy that starts while the disk of its store is slow, see faults/of_proxy.py
_WINDOWS_MS: Final = 24_000.0  # a sampled quota may stretch over two windows
_FETCHES: Final = (frames.FETCH, frames.SHARE_FETCH)


class Liveness(Check):
    """Scans the open exchanges once a simulated second."""

    name: ClassVar[str] = "liveness"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._disturbances = Disturbances(world)
        # The bytes that were sent or fetched, all of which buckets may still owe.
        self._bytes = {PRODUCE: 0, FETCH: 0}
        self._rude = 0  # the requests of clients that do not wait, heartbeats among them. These pass into debt

    def rules_changed(self, *possible: Quotas) -> None:
        """Begin to count anew: waits of before were computed with other limits."""
        self._disturbances.happened_now()

    def proxy_started(self, number: int) -> None:
        """Begin to count anew."""
        self._disturbances.happened_now()

    def proxy_ended(self, number: int, *, is_crash: bool) -> None:
        """Begin to count anew."""
        self._disturbances.happened_now()

    def connection_opened(self, client: str, connection: int, entity: "Entity") -> None:
        """Look for faults of before."""
        self._disturbances.over_ms()

    def sent(self, exchange: "Exchange") -> None:
        """Count what was sent."""
        if exchange.api_key == frames.PRODUCE:
            self._bytes[PRODUCE] += len(exchange.request)
        self._rude += not self._disturbances.is_well_behaved(exchange.client)

    def answered(self, exchange: "Exchange") -> None:
        """Count what was fetched."""
        if exchange.api_key in _FETCHES and exchange.response_of_broker is not None:
            self._bytes[FETCH] += len(exchange.response_of_broker)

    def step(self) -> None:
        """Look at all open exchanges once a second."""
        self._scan(self.world.clock.now_ms)

    def connection_closed(self, client: str, connection: int, *, by_client: bool) -> None:
        """A client that gives up has waited for too long."""
        self._scan(self.world.clock.now_ms)

    def faults_ended(self) -> None:
        """From now on nothing happens that could explain a wait."""
        self._disturbances.end()

    def _scan(self, now_ms: float) -> None:
        over_ms, quiet_ms = self._disturbances.over_ms(), self._disturbances.quiet_since_ms()
        for line in self.ledger.lines.values():
            exchange = next(iter(line.open.values()), None)
            if exchange is None or exchange.is_inter_broker:
                continue
            # It neither uses a bucket nor a slot, which those of other connections may have.
            is_free = not (self.world.settings.has_queue or self.ledger.book.limits(exchange))
            peace_ms = over_ms if line.opened_ms > over_ms and is_free else quiet_ms
            since_ms = max(exchange.sent_ms, peace_ms, line.told_until_ms, line.unanswered_ms)
            if now_ms - since_ms <= _GRACE_MS:
                continue
            if self.world.settings.limits_connections and not line.is_answered:
                continue  # it is not let in yet
            if exchange.client_end is not None and exchange.client_end.link.is_cut:
                continue  # nobody can know that the client is gone, or that it is not
            self._judge(exchange, now_ms, now_ms - since_ms)

    def _judge(self, exchange: "Exchange", now_ms: float, waited_ms: float) -> None:
        """Fail unless something explains the wait."""
        if not self._disturbances.is_well_behaved(exchange.client):
            return
        if exchange.forwarded_ms >= 0 and exchange.answered_ms < 0:
            return  # the broker has it
        most_ms = _GRACE_MS + self._owed_ms(exchange) + self._upload_ms(exchange)
        if self.world.scenario.fired.get("store slow"):
            most_ms += _READS_STORE_MS
        if waited_ms > most_ms:
            state = "answered by its broker" if exchange.answered_ms >= 0 else "not forwarded"
            text = f"{exchange} waits for {waited_ms:.0f} ms, is {state}, and {most_ms:.0f} ms is the most"
            self.world.fail(self.name, text)

    def _upload_ms(self, exchange: "Exchange") -> float:
        """Return how long a request takes to arrive. It may have to wait for others that have a slot of the queue."""
        waiting = [exchange]
        if self.world.settings.has_queue:
            waiting = [one for line in self.ledger.lines.values() for one in line.open.values()]
        ends = ((one.client_end, len(one.request)) for one in waiting)
        return sum(end.link.most_ms(size_bytes) for end, size_bytes in ends if end is not None)

    def _owed_ms(self, exchange: "Exchange") -> float:
        """Return how long the bucket of an exchange may need for its debt and for all that waits in its line."""
        waiting = sum(len(line.open) for line in self.ledger.lines.values()) + 1
        slowest_ms = max((link.most_ms(0) for link in self.world.network.links), default=0.0)
        turn_ms = _TURN_MS + self.world.scenario.theme.disk_ms[1] + slowest_ms
        owed_ms = waiting * _TURNS * turn_ms if self.world.settings.has_queue else 0.0
        for kind in KINDS:
            for limit in self.ledger.book.limits(exchange, (kind,)):
                if kind in self._bytes:  # of any request, because a response mutes its connection
                    owed_ms = max(owed_ms, _WINDOWS_MS + 1_000 * self._bytes[kind] / limit.rate)
                else:
                    owed_ms = max(owed_ms, 25_000.0 + 1_000 * (2 * waiting + self._rude) / limit.rate)
        return owed_ms
