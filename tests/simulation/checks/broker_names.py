"""When the proxy may take the two names of a broker for two brokers."""

from math import inf
from typing import TYPE_CHECKING, ClassVar, Final

from tests.simulation.checks.check import Check
from tests.simulation.checks.disturbance import Disturbances

if TYPE_CHECKING:
    from tests.simulation.world import World

_ASK_MS: Final = 2_000.0  # how long a listener's first clients wait until its broker has said who it is


class BrokerNames(Check):
    """Knows whether the running process of the proxy may have a bucket for each of the two names of a broker.

    It asks the broker who it is under each name, before it serves the first client there. Whether the two names share
    buckets is settled then, for as long as the process runs. So only a fault that disturbs the process until then is an
    excuse.

    Attributes:
        may_be_two: Whether there was such a fault.
    """

    name: ClassVar[str] = "broker names"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self._disturbances = Disturbances(world)
        self._started_ms = 0.0
        self._settled_ms = inf
        self.may_be_two = False

    def proxy_started(self, number: int) -> None:
        """Begin again: a new process asks again."""
        self._started_ms, self._settled_ms, self.may_be_two = self.world.clock.now_ms, inf, False
        self.look()

    def proxy_ended(self, number: int, *, is_crash: bool) -> None:
        """What has ended the process disturbs no later one."""
        self.look()

    def served(self, local: tuple[str, int], remote: tuple[str, int]) -> None:
        """All listeners are asked for at the same time, and the first of them serves a client now."""
        self._settled_ms = min(self._settled_ms, self.world.clock.now_ms + _ASK_MS)

    def step(self) -> None:
        """Look whether a fault has happened. If none has, the two names of each broker must share its buckets."""
        self.look()
        setup, proxy = self.world.scenario.setup, self.world.scenario.proxy
        if not setup.has_second_names or self.may_be_two or self.world.clock.now_ms <= self._settled_ms:
            return
        if proxy.server is not None and proxy.is_running:
            sets = len({upstream.broker for upstream in proxy.server.brokers.single.values()})
            if sets != setup.brokers:
                self.world.fail(self.name, f"{setup.brokers} brokers with two names each have {sets} sets of buckets")

    def look(self) -> None:
        """Look whether a fault disturbs the process while it asks."""
        over_ms = self._disturbances.over_ms()
        if self.world.clock.now_ms <= self._settled_ms and over_ms > self._started_ms:
            self.may_be_two = True


def may_have_two_buckets(world: "World") -> bool:
    """Return whether a broker may have a bucket for each of its two names."""
    if not world.scenario.setup.has_second_names:
        return False
    names = world.scenario.broker_names
    names.look()
    return names.may_be_two
