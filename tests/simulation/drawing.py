"""Draws the plan of a seed: who is there, what goes wrong and when, and how long it lasts."""

from typing import Final

from tests.simulation.actors import WEIGHTS
from tests.simulation.faults import KINDS
from tests.simulation.plan import Plan, PlannedActor, PlannedFault, derived_random
from tests.simulation.themes import theme_of

# Most worlds are short, because many short ones find more than few long ones.
_HORIZONS_MS: Final = {1_500.0: 15, 4_000.0: 30, 10_000.0: 35, 25_000.0: 17, 90_000.0: 3}
# A busy world ends early: more of the same finds less than another world.
_MOST_STEPS: Final = {1_000: 12, 3_000: 1}
_MOST_ACTORS: Final = 8


def draw_plan(seed: int) -> Plan:
    """Return what happens under a seed."""
    random = derived_random(seed, "plan")
    horizon_ms = random.choices(list(_HORIZONS_MS), list(_HORIZONS_MS.values()))[0]
    counts: dict[str, int] = {}
    actors: list[PlannedActor] = []
    theme = theme_of(seed)
    horizon_ms = max(horizon_ms, theme.least_ms)
    others = random.choices(list(WEIGHTS), list(WEIGHTS.values()), k=random.choice(theme.others))
    for kind in (*(theme.actors or ("producer",)), *others[: _MOST_ACTORS - len(theme.actors)]):
        counts[kind] = counts.get(kind, 0) + 1
        actors.append(PlannedActor(f"{kind}-{counts[kind]}", kind))
    faults: list[PlannedFault] = []
    number = 0 if random.random() < theme.calm_share else random.choice((1, 2, 4, 8))
    last_ms = min(horizon_ms, theme.faults_within_ms)
    kinds = [
        (at_ms, random.choice(theme.faults if theme.faults and random.random() < 0.7 else list(KINDS)))
        for at_ms in sorted(random.uniform(0.0, last_ms) for _ in range(number))
    ]
    if number:
        sure = derived_random(seed, "sure faults")
        kinds = sorted([*kinds, *((sure.uniform(0.0, last_ms), kind) for kind in theme.sure_faults)])
    for at_ms, kind in kinds:
        counts[kind] = counts.get(kind, 0) + 1
        faults.append(PlannedFault(f"{kind}-{counts[kind]}", kind, round(at_ms, 3)))
    most_steps = random.choices(list(_MOST_STEPS), list(_MOST_STEPS.values()))[0]
    relay = derived_random(seed, "relay").choice(("python", "native"))
    return Plan(seed, tuple(actors), tuple(faults), horizon_ms, max(most_steps, theme.most_steps), relay)
