"""What peers do not read takes bounded memory.

The proxy stops to read a client whose broker is slow, and a broker whose client is slow. So what waits to be written to
one peer is at most what the transport's buffer may hold when the proxy is told to stop, one more read, and what was
held back before. All of it together is at most ``max_buffered``, at which the proxy looks once a second. Requests and
responses that are held back and not yet written to a transport are not counted.
"""

from typing import TYPE_CHECKING, ClassVar, Final

from tests.simulation.checks.check import Check, Quotas

if TYPE_CHECKING:
    from tests.simulation.ledger import Exchange
    from tests.simulation.world import World

_SCAN_MS: Final = 100.0
_HIGH_WATER_BYTES: Final = 64 << 10  # of a transport's buffer
_READ_BYTES: Final = 256 << 10  # the most that the proxy reads at once
# Answers of the proxy itself, and frames that are collected whole before they are passed on.
_OWN_BYTES: Final = 128 << 10
MOST_OF_ONE_BYTES: Final = _HIGH_WATER_BYTES + 2 * _READ_BYTES + _OWN_BYTES
_BROKERS: Final = "10.0.1."
_BROKER_PORTS: Final = (9092, 9093)
# Two looks, and the longest time that a process stands still (see faults.py).
_TWO_LOOKS_MS: Final = 2_000.0 + 5_000.0


class Memory(Check):
    """Adds up what waits in the transports of the proxy, ten times in a simulated second."""

    name: ClassVar[str] = "memory"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._next_ms = 0.0
        self._within_ms = world.clock.now_ms  # when all of it was last within the bound

    def rules_changed(self, *possible: Quotas) -> None:
        """Another bound may be in force."""
        self._within_ms = self.world.clock.now_ms

    def sent(self, exchange: "Exchange") -> None:
        """Look."""
        self._look()

    def answered(self, exchange: "Exchange") -> None:
        """Look."""
        self._look()

    def passed(self, exchange: "Exchange", frame_bytes: int) -> None:
        """Look."""
        self._look()

    def _look(self) -> None:
        now_ms = self.world.clock.now_ms
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + _SCAN_MS
        total = 0
        for transport in self.world.scenario.proxy.process.transports:
            end = transport.end
            unsent = end.unsent_bytes
            # A response to a follower is collected whole and trimmed, and may have any size.
            is_follower = end.remote[0].startswith(_BROKERS) and end.remote[1] not in _BROKER_PORTS
            if unsent > MOST_OF_ONE_BYTES and not is_follower:
                text = f"{unsent} B wait for {end.remote}, and {MOST_OF_ONE_BYTES} B is the most"
                self.world.fail(self.name, text)
            total += unsent
        if total <= self.world.settings.max_buffered:
            self._within_ms = now_ms
        elif now_ms - self._within_ms > _TWO_LOOKS_MS:
            text = f"{total} B wait, and max_buffered is {self.world.settings.max_buffered} B"
            self.world.fail(self.name, text)
