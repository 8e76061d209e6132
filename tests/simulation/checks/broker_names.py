"""When the proxy may take the two names of a broker for two brokers."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.simulation.world import World

_MEETS_MS: Final = 1_000.0  # how long a new process needs to know which addresses are of one broker


def may_have_two_buckets(world: "World", started_ms: float) -> bool:
    """Return whether a broker may have a bucket for each of its two names, which the proxy has not both reached.

    The process of the proxy has run since ``started_ms``.
    """
    scenario = world.scenario
    if not scenario.setup.has_second_names:
        return False
    has_failed = any(number for kind, number in scenario.fired.items() if kind.startswith(("broker", "host", "odd")))
    return has_failed or world.clock.now_ms < started_ms + _MEETS_MS
