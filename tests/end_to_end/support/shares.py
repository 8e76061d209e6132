"""The parts of a quota that a crowd used, and that each of its connections used."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from tests.end_to_end.support.crowds import Answer, Outcome

# With fewer turns on average, a connection may have none by chance.
_ENOUGH_TURNS: Final = 10
_STEP_S: Final = 0.25


class Shares(NamedTuple):
    """The bytes that passed over those that the quota allows: in all, and in the lowest and highest window."""

    mean: float
    lowest: float
    highest: float

    def __str__(self) -> str:
        return f"{self.mean:.2f} ({self.lowest:.2f}–{self.highest:.2f})"


def shares(outcome: Outcome, *, quota: float, after_s: float, window_s: float) -> Shares:
    """Return the shares from ``after_s`` to the end. Windows start a quarter of a second apart."""
    begin_s, end_s = outcome.begin_s + after_s, outcome.end_s
    if window_s > end_s - begin_s:
        raise ValueError(f"a window of {window_s} s does not fit the {end_s - begin_s} s that are looked at")
    times = [answer.at_s for answer in outcome.answers]
    up_to = [0, *accumulate(answer.size_bytes for answer in outcome.answers)]

    def share(from_s: float, to_s: float) -> float:
        return (up_to[bisect_left(times, to_s)] - up_to[bisect_left(times, from_s)]) / (to_s - from_s) / quota

    steps = int((end_s - begin_s - window_s) / _STEP_S) + 1
    windows = [share(begin_s + step * _STEP_S, begin_s + step * _STEP_S + window_s) for step in range(steps)]
    return Shares(share(begin_s, end_s), min(windows), max(windows))


class Fairness(NamedTuple):
    """The least and the most bytes of a connection, relative to the mean."""

    least: float
    most: float


def fairness(outcome: Outcome, *, after_s: float) -> Fairness | None:
    """Compare the connections from ``after_s`` on. Returns None if they had fewer than ten turns on average."""
    late = _with_data([one for one in outcome.answers if one.at_s >= outcome.begin_s + after_s])
    if len(late) < _ENOUGH_TURNS * outcome.connections:
        return None
    each = [0] * outcome.connections
    for answer in late:
        each[answer.connection] += answer.size_bytes
    mean = sum(each) / len(each)
    return Fairness(min(each) / mean, max(each) / mean)


def _with_data(answers: Sequence[Answer]) -> list[Answer]:
    return [answer for answer in answers if answer.size_bytes]
