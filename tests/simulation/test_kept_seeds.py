"""Each seed that once failed passes, and is still what it was."""

from pathlib import Path

import pytest

from tests.simulation import kept
from tests.simulation.guarded import run_guarded
from tests.simulation.made_up import draw


@pytest.mark.parametrize("path", kept.paths(), ids=lambda path: path.stem)
def test_kept_seed_passes(path: Path) -> None:
    from tests.simulation.run_seed import run_seed

    one = kept.read(path)
    outcome = run_guarded(run_seed, one.seed, one.plan)
    assert outcome.violation is None, "\n".join([one.found, *outcome.story[-40:], str(outcome.violation)])


def test_kept_plan_is_read_back_as_written(tmp_path: Path) -> None:
    one = kept.Kept(7, draw(7).shorter(2_500), "A response of 2 brokers, lost!")
    path = kept.write(one, tmp_path)
    assert path.name == "a_response_of_2_brokers_lost.json"
    assert kept.paths(tmp_path) == [path]
    assert kept.read(path) == one


def test_kept_seed_needs_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="say what the seed found"):
        kept.write(kept.Kept(7, None, "..."), tmp_path)
