"""From an old limit to a new one in steps. Without a clock: a ramp is fixed in time, so a restart changes nothing."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """Step i of n holds from ``begins_ms`` + i * ``over_ms`` / n on; step 0, and all before it, is the old limit.

    ``start`` has the old limits, as pairs of key and limit. A key of the rule that it does not name is not ramped.
    """

    start: tuple[tuple[str, float], ...]
    begins_ms: int  # Unix time
    over_ms: int  # above 0
    steps: int  # above 0


def step_of(ramp: Ramp, *, now_ms: int) -> int:
    """Return the step that holds; ``ramp.steps`` is the rule's own limit."""
    return min(max((now_ms - ramp.begins_ms) * ramp.steps // ramp.over_ms, 0), ramp.steps)


def step_ms(ramp: Ramp, step: int) -> int:
    """Return from when on a step holds: the first whole millisecond; Unix time."""
    return ramp.begins_ms - (-step * ramp.over_ms // ramp.steps)


def next_step_ms(ramp: Ramp, *, now_ms: int) -> int | None:
    """Return when the next step begins; None: there is none."""
    step = step_of(ramp, now_ms=now_ms)
    return None if step == ramp.steps else step_ms(ramp, step + 1)


def limit_at(ramp: Ramp, step: int, *, old: float, new: float) -> float:
    """Return the limit of a step, which lies on the straight line from old to new."""
    return new if step >= ramp.steps else old + (new - old) * step / ramp.steps
