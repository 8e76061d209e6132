"""Prints a broken promise so that a person can begin with it: the seed, how to replay it, and its story."""

from typing import Final

from tests.simulation.outcome import Outcome
from tests.simulation.shrink import Shrunk

COMMAND: Final = "python -m tests.simulation"

_STORY_LINES: Final = 40


def finding_lines(outcome: Outcome) -> list[str]:
    """Return what is known of a failed seed."""
    assert outcome.violation is not None
    return [
        "",
        f"BROKEN: {outcome.violation.check}",
        *_indented(outcome.violation.text.splitlines()),
        f"seed {outcome.seed}, {outcome.steps:,} steps, {outcome.simulated_ms / 1_000:.3f} s simulated",
        f"replay: {COMMAND} --seed {outcome.seed}",
        *_story_lines(outcome),
    ]


def shrunk_lines(shrunk: Shrunk, file: str) -> list[str]:
    """Return the smaller plan and its story. ``file`` holds the plan."""
    assert shrunk.outcome.violation is not None
    ended = "" if shrunk.is_finished else ", when the time was over"
    return [
        "",
        f"shrunk in {shrunk.tries} tries{ended}",
        *_indented(str(shrunk.plan).splitlines()),
        f"replay: {COMMAND} --plan {file}",
        *_indented(shrunk.outcome.violation.text.splitlines()),
        *_story_lines(shrunk.outcome),
    ]


def _story_lines(outcome: Outcome) -> list[str]:
    if not outcome.story:
        return ["it has no story"]
    told = outcome.story[-_STORY_LINES:]
    left_out = len(outcome.story) - len(told)
    head = f"the last {len(told)} lines of its story ({left_out} before):" if left_out else "its story:"
    return [head, *_indented(told)]


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]
