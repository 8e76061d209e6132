"""What may explain that a client waits or loses its connection, other than the proxy."""

from typing import TYPE_CHECKING, Final

from tests.simulation.clients.profiles import HEALTHY

if TYPE_CHECKING:
    from tests.simulation.world import World

# Faults that may neither close nor stop anything that goes through the proxy.
HARMLESS: Final = frozenset(
    {
        "quotas changed", "settings changed", "queue switched", "file broken", "wall clock set", "disk full",
        "disk faulty", "leader move", "topic deleted", "broker throttles", "broker refuses",
    }
)  # fmt: skip
_PEACE: Final = -1e18


class Disturbances:
    """Knows when the last fault happened that may close connections or stop traffic, or was seen to have happened."""

    __slots__ = ("_count", "_last_ms", "_world")

    def __init__(self, world: "World") -> None:
        self._world = world
        self._count = 0
        self._last_ms = _PEACE

    def last_ms(self) -> float:
        """Return the time of the last such fault. Ask often: the time is that of the first question after it."""
        fired = self._world.scenario.fired
        count = sum([number for kind, number in fired.items() if kind not in HARMLESS])
        if count != self._count:
            self._count = count
            self._last_ms = self._world.clock.now_ms
        return self._last_ms

    def happened_now(self) -> None:
        """Note something else that explains as much, such as the end of the proxy."""
        self._last_ms = self._world.clock.now_ms

    def is_well_behaved(self, client: str) -> bool:
        """Return whether an actor reads and writes as it should."""
        actor = self._world.scenario.actors.get(client)
        setting = getattr(actor, "setting", None)
        return setting is not None and setting.habits is HEALTHY and not hasattr(actor, "manner")
