"""What peers do not read takes bounded memory.

The proxy stops to read a client whose broker is slow, and a broker whose client is slow. So what waits to be written to
one peer is at most what the transport's buffer may hold when the proxy is told to stop, one more read, and what was
held back before. All of it together is at most ``max_buffered``, at which the proxy looks once a second. Meanwhile any
amount may arrive, so only what has waited since then is judged: what is written to peers that take nothing at all.
Requests and responses that are held back and not yet written to a transport are not counted.
"""

from typing import TYPE_CHECKING, ClassVar, Final

from tests.simulation.checks.check import Check, Quotas

if TYPE_CHECKING:
    from tests.simulation.ledger import Exchange
    from tests.simulation.network import End
    from tests.simulation.world import World

_HIGH_WATER_BYTES: Final = 64 << 10  # of a transport's buffer
_READ_BYTES: Final = 256 << 10  # the most that the proxy reads at once
# Answers of the proxy itself, and frames that are collected whole before they are passed on.
_OWN_BYTES: Final = 128 << 10
MOST_OF_ONE_BYTES: Final = _HIGH_WATER_BYTES + 2 * _READ_BYTES + _OWN_BYTES
_BROKERS: Final = "10.0.1."
_BROKER_PORTS: Final = (9092, 9093)
TWO_LOOKS_MS: Final = 2_100.0
_LONGEST_PAUSE_MS: Final = 5_000.0  # see faults/of_proxy.py


class _Stuck:
    """A connection whose peer has taken nothing more.

    Attributes:
        taken_bytes: How many bytes the system had taken.
        since_ms: Since when it was so, as far as the scans know.
        unsent_bytes: How many bytes have waited since then.
    """

    __slots__ = ("since_ms", "taken_bytes", "unsent_bytes")

    def __init__(self, taken_bytes: int, since_ms: float, unsent_bytes: int) -> None:
        self.taken_bytes = taken_bytes
        self.since_ms = since_ms
        self.unsent_bytes = unsent_bytes


class Memory(Check):
    """Adds up what waits in the transports of the proxy, twice in a simulated second and after large writes."""

    name: ClassVar[str] = "memory"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._stuck: dict[End, _Stuck] = {}

    def rules_changed(self, *possible: Quotas) -> None:
        """Another bound may be in force."""
        self._stuck.clear()

    def proxy_started(self, number: int) -> None:
        """Begin anew."""
        self._stuck.clear()

    def passed(self, exchange: "Exchange", frame_bytes: int) -> None:
        """Look at once after a large response."""
        if frame_bytes > MOST_OF_ONE_BYTES:
            self._look()

    def step(self) -> None:
        """Look twice a second."""
        self._look()

    def _look(self) -> None:
        now_ms = self.world.clock.now_ms
        before, self._stuck = self._stuck, {}
        total = 0
        was_paused = self.world.scenario.fired.get("proxy paused", 0) > 0
        judged_ms = TWO_LOOKS_MS + (_LONGEST_PAUSE_MS if was_paused else 0.0)
        for transport in self.world.scenario.proxy.process.transports:
            end = transport.end
            unsent = end.unsent_bytes
            if not unsent:
                continue
            # A response to a follower is collected whole and trimmed, and may have any size.
            is_follower = end.remote[0].startswith(_BROKERS) and end.remote[1] not in _BROKER_PORTS
            if unsent > MOST_OF_ONE_BYTES and not is_follower:
                text = f"{unsent} B wait for {end.remote}, and {MOST_OF_ONE_BYTES} B is the most"
                self.world.fail(self.name, text)
            taken = end.written_bytes - unsent
            stuck = before.get(end)
            if stuck is None or stuck.taken_bytes != taken:
                stuck = _Stuck(taken, now_ms, unsent)
            self._stuck[end] = stuck
            if now_ms - stuck.since_ms > judged_ms:
                total += stuck.unsent_bytes
        if total > self.world.settings.max_buffered and not self.ledger.is_stopping:
            text = f"{total} B wait for peers that take nothing, and max_buffered is {self.world.settings.max_buffered}"
            self.world.fail(self.name, f"{text} B")
