"""Tests that themes name what exists. The worlds of the other tests run them."""

from collections import Counter

import pytest

from tests.simulation import actors, faults
from tests.simulation.drawing import draw_plan
from tests.simulation.themes import THEMES, Theme, theme_of


@pytest.mark.parametrize("theme", THEMES.values(), ids=list(THEMES))
def test_theme_names_kinds_of_actors_and_faults(theme: Theme) -> None:
    assert set(theme.actors) <= set(actors.KINDS)
    assert set(theme.faults) <= set(faults.KINDS)


def test_plan_has_the_actors_of_its_theme_and_no_more_than_eight() -> None:
    seen = set()
    for seed in range(300):
        theme, plan = theme_of(seed), draw_plan(seed)
        seen.add(theme)

        assert Counter(theme.actors) <= Counter(actor.kind for actor in plan.actors)
        assert 1 <= len(plan.actors) <= 8

    assert seen == set(THEMES.values()), "300 seeds have each theme"
