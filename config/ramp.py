"""Computes ramps, which change the limits of a rule from old to new ones in several steps.

The steps are at fixed times, so that a restart of the proxy does not change them.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """A gradual change from old limits to the limits of a rule, in ``steps`` equal steps over the time ``over_ms``.

    Step i of n applies from ``begins_ms`` + i * ``over_ms`` / n on. Until step 1, the old limits in ``start`` apply. A
    limit of the rule for which ``start`` has no old limit applies at once.
    """

    start: tuple[tuple[str, float], ...]
    begins_ms: int  # Unix time
    over_ms: int  # above 0
    steps: int  # above 0


def step_of(ramp: Ramp, *, now_ms: int) -> int:
    """Return the number of the step that applies at ``now_ms``, from 0 (old limits) to ``ramp.steps`` (new limits)."""
    return min(max((now_ms - ramp.begins_ms) * ramp.steps // ramp.over_ms, 0), ramp.steps)


def step_ms(ramp: Ramp, step: int) -> int:
    """Return the Unix time at which a step of the ramp begins, rounded up to whole milliseconds."""
    return ramp.begins_ms - (-step * ramp.over_ms // ramp.steps)


def next_step_ms(ramp: Ramp, *, now_ms: int) -> int | None:
    """Return the Unix time after ``now_ms`` at which the limits of a ramp next change, or None after its end."""
    step = step_of(ramp, now_ms=now_ms)
    return None if step == ramp.steps else step_ms(ramp, step + 1)


def limit_at(ramp: Ramp, step: int, *, old: float, new: float) -> float:
    """Return the limit at a step of a ramp, which is on a straight line from ``old`` to ``new``."""
    return new if step >= ramp.steps else old + (new - old) * step / ramp.steps
