"""The simulated world: its clock, its network, its random numbers, and what all actors report to."""

from collections.abc import Callable
from hashlib import blake2b
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn

from tests.simulation.checks.settings import Settings
from tests.simulation.clock import Clock
from tests.simulation.ledger import Ledger
from tests.simulation.loop import CountedTask
from tests.simulation.network import End, Network
from tests.simulation.plan import derived_random
from tests.simulation.scheduler import Event, Scheduler
from tests.simulation.story import Story
from tests.simulation.taps import RequestTap, ResponseTap
from tests.simulation.threads import SimulatedThread
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.scenario import Scenario


class World:
    """One simulated world. Two worlds with the same seed do the same to the byte.

    Attributes:
        seed: The seed of all random numbers.
        random: The random numbers of what is not an actor or a fault. Those have their own, see ``random_of``.
        clock: The clocks of all machines.
        broker_addresses: The node id by address of each broker's listeners.
        settings: What the checks know of the proxy's configuration.
        scenario: What runs in this world.
        thread: The simulated thread that runs, or None.
        digest: A hash of every byte on the wire.
    """

    def __init__(self, seed: int) -> None:
        CountedTask.restart_count()
        self.seed = seed
        self.random = self.random_of("world")
        self.clock = Clock()
        self.scheduler = Scheduler(self.clock)
        self.digest = blake2b(digest_size=16)
        self.network = Network(self.scheduler, self.random_of("network"), self.digest)
        self.ledger = Ledger(self.clock)
        self.story = Story(self.clock)
        self.settings = Settings()
        self.scenario: Scenario
        self.thread: SimulatedThread | None = None
        self.odd_errors = 0  # exceptions that were made up, which the proxy may count as internal errors
        self.broker_addresses: dict[tuple[str, int], int] = {}

    def random_of(self, name: str) -> Random:
        """Return random numbers that depend on the seed and on ``name`` only.

        So an actor draws the same numbers if another actor is left out.
        """
        return derived_random(self.seed, name)

    def call_later(self, delay_ms: float, function: Callable[..., object], *args: Any) -> Event:
        """Call ``function`` after ``delay_ms``. The result has ``cancel``."""
        return self.scheduler.call_later(delay_ms, function, *args)

    def call_soon(self, function: Callable[..., object], *args: Any) -> Event:
        """Call ``function`` after the current event, at the same time."""
        return self.scheduler.at_ns(0, function, *args)

    def fail(self, check: str, text: str) -> NoReturn:
        """End the run, because the promise ``check`` was broken.

        Raises:
            Violation: Always. If an event loop swallows it, the scheduler raises it again.
        """
        violation = Violation(check, text)
        if self.scheduler.violation is None:
            self.scheduler.violation = violation
        raise violation

    def tap_broker(self, end: End) -> None:
        """Follow what a proxy writes at this end, if a broker is at the other."""
        node_id = self.broker_addresses.get(end.remote)
        if node_id is not None:
            end.tap = RequestTap(self.ledger, node_id, end)

    def tap_client(self, end: End) -> None:
        """Follow what a proxy writes to a client at this end."""
        end.tap = ResponseTap(self.ledger)
