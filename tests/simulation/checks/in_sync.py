"""No follower falls out of the in-sync replicas by our doing."""

from typing import TYPE_CHECKING, ClassVar, Final

from tests.simulation.checks.check import Check
from tests.simulation.checks.disturbance import Disturbances

if TYPE_CHECKING:
    from tests.simulation.ledger import Exchange
    from tests.simulation.world import World

# A fault may leave a follower behind for so long.
_AFTERMATH_MS: Final = 120_000.0
_LAGS: Final = "it lags"


class InSync(Check):
    """Judges each replica that leaves the in-sync replicas because it lags."""

    name: ClassVar[str] = "in-sync replicas"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._disturbances = Disturbances(world)
        self._seen = 0

    def sent(self, exchange: "Exchange") -> None:
        """Look for news."""
        self._look()

    def proxy_stopping(self, number: int) -> None:
        """Followers lose their connections."""
        self._disturbances.happened_now()

    def proxy_ended(self, number: int, *, is_crash: bool) -> None:
        """Followers lose their connections."""
        self._disturbances.happened_now()

    def end(self) -> None:
        """Look for the last news."""
        self._look()

    def _look(self) -> None:
        last_ms = self._disturbances.last_ms()
        changes = self.world.scenario.cluster.isr_changes
        while self._seen < len(changes):
            change = changes[self._seen]
            self._seen += 1
            if change.is_in_sync or not change.reason.startswith(_LAGS) or last_ms >= change.at_ms - _AFTERMATH_MS:
                continue
            text = f"replica {change.node_id} of {change.topic}-{change.partition} leaves, and nothing explains it: "
            self.world.fail(self.name, text + change.reason)
