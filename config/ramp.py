"""A change from an old limit to a new one in steps, at fixed times, so a restart changes nothing. No clock."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """Step i of n applies from ``begins_ms`` + i * ``over_ms`` / n on. Step 0 is the old limit, as before the ramp.

    ``start`` has the old limits, as pairs of key and limit. A key of the rule that it does not name is not ramped.
    """

    start: tuple[tuple[str, float], ...]
    begins_ms: int  # Unix time
    over_ms: int  # above 0
    steps: int  # above 0


def step_of(ramp: Ramp, *, now_ms: int) -> int:
    """Return the current step; ``ramp.steps`` is the rule's own limit."""
    return min(max((now_ms - ramp.begins_ms) * ramp.steps // ramp.over_ms, 0), ramp.steps)


def step_ms(ramp: Ramp, step: int) -> int:
    """Return the begin of a step in whole milliseconds; Unix time."""
    return ramp.begins_ms - (-step * ramp.over_ms // ramp.steps)


def next_step_ms(ramp: Ramp, *, now_ms: int) -> int | None:
    """Return the begin of the next step; None if there is none."""
    step = step_of(ramp, now_ms=now_ms)
    return None if step == ramp.steps else step_ms(ramp, step + 1)


def limit_at(ramp: Ramp, step: int, *, old: float, new: float) -> float:
    """Return the limit of a step, on the straight line from old to new."""
    return new if step >= ramp.steps else old + (new - old) * step / ramp.steps
