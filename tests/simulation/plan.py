"""What a seed draws before its world starts: actors, faults and the length of the run.

A plan is what shrinking makes smaller. So that a smaller plan is still the same run, removing one actor or fault must
not change what the others do. The rule: nobody draws from a random generator that is shared. Each actor and each fault
draws from ``plan.random_of(its name)``, which depends on the seed and the name alone. Names are unique in a plan, and
never contain the number of other actors. What is shared by all, as the file of quotas, is drawn from a name of its own,
such as "configuration".
"""

import json
from collections.abc import Mapping
from random import Random
from typing import Any, NamedTuple, Self


class PlannedActor(NamedTuple):
    """An actor of the world.

    Attributes:
        name: Unique in the plan, such as "producer-3".
        kind: What it is, such as "java producer".
    """

    name: str
    kind: str


class PlannedFault(NamedTuple):
    """A fault and when it begins, in ms since the start.

    Attributes:
        name: Unique in the plan, such as "reset-2".
        kind: Its key in the table of fault kinds, such as "reset".
    """

    name: str
    kind: str
    at_ms: float


class Plan(NamedTuple):
    """What happens under a seed. Any part of it may be left out.

    Attributes:
        horizon_ms: When the clients begin to leave.
        most_steps: After this many steps they leave earlier.
        relay: What moves the bytes of connections: "python" or "native".
    """

    seed: int
    actors: tuple[PlannedActor, ...]
    faults: tuple[PlannedFault, ...]
    horizon_ms: float
    most_steps: int = 4_000
    relay: str = "python"

    def random_of(self, name: str) -> Random:
        """Return a new generator for the actor, fault or subject ``name``. See the module's rule."""
        return derived_random(self.seed, name)

    def shorter(self, horizon_ms: float) -> Self:
        """Return the plan with an earlier end, without the faults that would begin after it."""
        horizon_ms = min(horizon_ms, self.horizon_ms)
        faults = tuple(fault for fault in self.faults if fault.at_ms < horizon_ms)
        return self._replace(faults=faults, horizon_ms=horizon_ms)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as values of JSON."""
        return {
            "seed": self.seed,
            "horizon_ms": self.horizon_ms,
            "most_steps": self.most_steps,
            "relay": self.relay,
            "actors": [list(actor) for actor in self.actors],
            "faults": [list(fault) for fault in self.faults],
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the plan that ``to_json`` gave."""
        return cls(
            seed=values["seed"],
            actors=tuple(PlannedActor(*actor) for actor in values["actors"]),
            faults=tuple(PlannedFault(*fault) for fault in values["faults"]),
            horizon_ms=values["horizon_ms"],
            most_steps=values["most_steps"],
            relay=values.get("relay", "python"),
        )

    def __str__(self) -> str:
        lines = [f"seed {self.seed}, {self.horizon_ms / 1_000:g} s"]
        lines += [f"  {actor.name}: {actor.kind}" for actor in self.actors]
        lines += [f"  at {fault.at_ms / 1_000:.3f} s {fault.name}: {fault.kind}" for fault in self.faults]
        return "\n".join(lines)


def derived_random(seed: int, name: str) -> Random:
    """Return a generator that depends on the seed and the name alone, in any process."""
    # Seeding with text hashes it with SHA-512, not with the hash() of this process.
    return Random(json.dumps([seed, name]))
