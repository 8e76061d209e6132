"""Computes how fast partition logs grow, from samples of their sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise


def growth(steps: Sequence[int | None], durations_ms: Sequence[int]) -> list[float]:
    """Return how much a log grew from each sample of its size to the next, in bytes.

    ``steps`` contains the change in size from each sample to the next, and ``durations_ms`` the time between these two
    samples. If a step is None, because one of the two sizes is unknown, the growth is 0. If a step is negative, because
    retention has deleted a segment, the growth is estimated from the mean growth rate of the steps that are not
    negative.
    """
    forward = [(step, ms) for step, ms in zip(steps, durations_ms, strict=True) if step is not None and step >= 0]
    forward_ms = sum(ms for _, ms in forward)
    mean = sum(step for step, _ in forward) / forward_ms if forward_ms else 0.0
    return [
        0.0 if step is None else mean * ms if step < 0 else float(step)
        for step, ms in zip(steps, durations_ms, strict=True)
    ]


def rate(growths: Iterable[Sequence[float]], times_ms: Sequence[int]) -> float:
    """Return the combined growth rate of several logs, in bytes per second.

    ``growths`` contains a result of ``growth`` for each log, and ``times_ms`` the times of the samples. A throttled log
    grows in bursts, often one a second. The rate is measured from the end of one burst to the end of another, so that
    it does not depend on when the samples were taken.
    """
    steps: list[float] = [sum(column) for column in zip(*growths, strict=True)]
    ends = [at for at, step in zip(times_ms[1:], steps, strict=False) if step > 0]
    if not ends:
        return 0.0
    if len(ends) == 1:
        return sum(steps) * 1_000 / (times_ms[-1] - times_ms[0])
    longest_rest_ms = max(after - before for before, after in pairwise(ends))
    end = ends[-1] if times_ms[-1] - ends[-1] <= longest_rest_ms else times_ms[-1]
    grown = sum(step for at, step in zip(times_ms[1:], steps, strict=True) if at > ends[0])
    return grown * 1_000 / (end - ends[0])
