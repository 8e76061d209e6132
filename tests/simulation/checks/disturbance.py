"""What may explain that a client waits or loses its connection, other than the proxy."""

from math import inf
from typing import TYPE_CHECKING, Final

from tests.simulation.clients.profiles import HEALTHY

if TYPE_CHECKING:
    from tests.simulation.world import World

# Faults that may neither close nor stop anything that goes through the proxy.
HARMLESS: Final = frozenset(
    {
        "quotas changed", "quotas of others changed", "file takes over", "settings changed", "queue switched",
        "file broken", "wall clock set",
        "disk full",
        "disk faulty", "store full", "store faulty", "store slow", "leader move", "topic deleted",
        "broker throttles", "replication changed",
    }
)  # fmt: skip
_PEACE: Final = -1e18
# With less memory (max_buffered) the proxy may close connections of whoever does not read.
SMALL_MEMORY: Final = 64 << 20
MANY_BUCKETS: Final = 100  # with fewer (max_buckets) clients may share one
# How long each kind of fault lasts, and how long peers may take to notice it: keepalives take 45 s, and a new
# connection 10 s. See faults/. A kind that is not here may explain everything for ever.
_NOTICED_MS: Final = 55_000.0
_LASTS_MS: Final = {
    "connection reset": 0.0, "connection cut": 0.0, "all connections reset": 0.0, "host unreachable": 20_000.0,
    "odd dial": 0.0,
    "broker cut off": 15_000.0, "broker crash": 15_000.0, "broker disk lost": 2_000.0, "broker stall": 40_000.0,
    "broker drops connections": 0.0,
    "response cut": 0.0, "odd response": 0.0, "follower hangs up": 0.0,
    "slow broker disk": 15_000.0, "proxy killed": 0.0, "power lost": 0.0, "proxy restarted": 0.0,
    "proxy paused": 5_000.0, "no descriptors": 4_000.0, "disk full": 10_000.0, "disk faulty": 10_000.0,
    "broker throttles": 8_000.0, "broker refuses": 8_000.0,
}  # fmt: skip
# These can delay no request for longer than a moment.
_SHORT: Final = HARMLESS - _LASTS_MS.keys()


def is_undisturbed(world: "World") -> bool:
    """Return whether no fault has happened that may have stopped something."""
    return HARMLESS.issuperset(kind for kind, number in world.scenario.fired.items() if number)


class Disturbances:
    """Knows when the last fault happened that may close connections or stop traffic, or was seen to have happened."""

    __slots__ = ("_count", "_counts", "_last_ms", "_over_ms", "_world")

    def __init__(self, world: "World") -> None:
        self._world = world
        self._count = 0
        self._last_ms = self._over_ms = _PEACE
        self._counts: dict[str, int] = {}

    def last_ms(self) -> float:
        """Return the time of the last such fault. Ask often: the time is that of the first question after it."""
        fired = self._world.scenario.fired
        count = sum([number for kind, number in fired.items() if kind not in HARMLESS])
        if count != self._count:
            self._count = count
            self._last_ms = self._world.clock.now_ms
        return self._last_ms

    def over_ms(self) -> float:
        """Return when the last fault that can delay a request is over: in the future, or never, if it lasts. Ask often.

        Connections of before may still wait for the end of what is lost, see ``quiet_since_ms``.
        """
        fired = self._world.scenario.fired
        if fired != self._counts:
            now_ms = self._world.clock.now_ms
            for kind, number in fired.items():
                if number > self._counts.get(kind, 0) and kind not in _SHORT:
                    self._over_ms = max(self._over_ms, now_ms + _LASTS_MS.get(kind, inf))
            self._counts = dict(fired)
        return max(self._over_ms, self._last_ms)

    def quiet_since_ms(self) -> float:
        """Return from when on nothing explains a wait any more, also of connections that were there before."""
        self.over_ms()
        return max(self._last_ms, self._over_ms + _NOTICED_MS)

    def happened_now(self) -> None:
        """Note something else that explains as much, such as the end of the proxy."""
        self._last_ms = self._world.clock.now_ms

    def end(self) -> None:
        """Note that the faults of before are over, and that no more will come."""
        self.over_ms()
        self._over_ms = self._world.clock.now_ms

    def is_well_behaved(self, client: str) -> bool:
        """Return whether an actor reads and writes as it should."""
        actor = self._world.scenario.actors.get(client)
        setting = getattr(actor, "setting", None)
        return setting is not None and setting.habits is HEALTHY and not hasattr(actor, "manner")
