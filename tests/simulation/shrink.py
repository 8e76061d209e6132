"""Makes the plan of a failing seed smaller: fewer actors, fewer faults, an earlier end.

It is delta debugging: leave out a half, then quarters, and so on, and keep what still breaks the same promise.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from tests.simulation.outcome import Outcome
from tests.simulation.plan import Plan

_Item = TypeVar("_Item")

# The end is not moved by less than this share of what is left, nor by less than this time.
_LEAST_SHARE: Final = 0.05
_LEAST_MS: Final = 100.0


class _Shrinker:
    def __init__(self, failed: Outcome, run: Callable[[Plan], Outcome], is_over: Callable[[], bool]) -> None:
        assert failed.violation is not None
        self.smallest = failed
        self.is_over = is_over
        self._check = failed.violation.check
        self._run = run

    def fails(self, plan: Plan) -> bool:
        """Run the plan, and keep it if it breaks the same promise."""
        if self.is_over():
            return False
        outcome = self._run(plan)
        if outcome.violation is None or outcome.violation.check != self._check:
            return False
        # What was given is what shrinks on, whatever the run says that its plan was.
        self.smallest = outcome._replace(plan=plan)
        return True

    def shrink_once(self) -> bool:
        """Try to leave out each part once. Return whether something could be left out."""
        before = self.smallest.plan
        self._cut_horizon()
        plan = self.smallest.plan
        _leave_out(plan.faults, lambda kept: self.fails(plan._replace(faults=tuple(kept))))
        plan_of_faults = self.smallest.plan
        _leave_out(plan_of_faults.actors, lambda kept: self.fails(plan_of_faults._replace(actors=tuple(kept))))
        return self.smallest.plan != before

    def _cut_horizon(self) -> None:
        """Find an earlier end by halving."""
        # The run that failed says when, so nothing later is needed.
        self.fails(self.smallest.plan.shorter(self.smallest.simulated_ms + 1))
        plan = self.smallest.plan
        low, high = 0.0, plan.horizon_ms
        while high - low > max(_LEAST_SHARE * high, _LEAST_MS) and not self.is_over():
            middle = float(round((low + high) / 2))
            if self.fails(plan.shorter(middle)):
                high = middle
            else:
                low = middle


def shrink(
    failed: Outcome, run: Callable[[Plan], Outcome], *, seconds: float, clock: Callable[[], float] = time.monotonic
) -> Outcome:
    """Return the run of a small plan that breaks the same promise as ``failed``, within about ``seconds``.

    ``run`` runs a plan, and returns also from plans that cannot work, such as one without brokers.
    """
    deadline = clock() + seconds
    shrinker = _Shrinker(failed, run, lambda: clock() >= deadline)
    while shrinker.shrink_once() and not shrinker.is_over():
        pass
    return shrinker.smallest


def _leave_out(items: Sequence[_Item], is_enough: Callable[[Sequence[_Item]], bool]) -> None:
    """Leave out chunks of ``items``, from all of them to single ones, as long as ``is_enough`` of what is kept."""
    kept = list(items)
    size = len(kept)
    while size:
        at = 0
        while at < len(kept):
            candidate = kept[:at] + kept[at + size :]
            if is_enough(candidate):
                kept = candidate
            else:
                at += size
        size //= 2
