"""Runs a seed so that whatever goes wrong is an outcome: an exception, a seed that never ends, a run that differs."""

import signal
import traceback
from types import FrameType
from typing import Final, Never

from tests.simulation.outcome import Outcome, RunSeed, failed
from tests.simulation.plan import Plan
from tests.simulation.violation import Violation

NO_ERROR: Final = "no unexpected error"
ENDS: Final = "each seed ends"
REPLAYS: Final = "a seed replays to the byte"

SEED_SECONDS: Final = 60
_MOST_TEXT: Final = 4_000


class _TookTooLong(BaseException):
    """Not an Exception, so that what isolates faults does not catch it."""


def run_guarded(
    run: RunSeed, seed: int, plan: Plan | None = None, *, is_twice: bool = False, most_seconds: float = SEED_SECONDS
) -> Outcome:
    """Run a seed or a plan. An error and a run without an end become violations.

    ``is_twice`` runs it again and compares the digests. Each run may take ``most_seconds`` of real time.
    """
    outcome = _within(run, seed, plan, most_seconds)
    if not is_twice:
        return outcome
    again = _within(run, seed, plan, most_seconds)
    if again.digest == outcome.digest and (again.violation is None) is (outcome.violation is None):
        return outcome
    return outcome._replace(violation=Violation(REPLAYS, _first_difference(outcome, again)))


def _within(run: RunSeed, seed: int, plan: Plan | None, most_seconds: float) -> Outcome:
    def interrupt(_number: int, _frame: FrameType | None) -> Never:
        raise _TookTooLong

    before = signal.signal(signal.SIGALRM, interrupt)
    # Repeated, for something may swallow the first one.
    signal.setitimer(signal.ITIMER_REAL, most_seconds, 1)
    try:
        return run(seed, plan)
    except _TookTooLong:
        return failed(seed, Violation(ENDS, f"not within {most_seconds:g} s\n{_traceback()}"), plan)
    except Violation as violation:
        return failed(seed, violation, plan)
    except Exception:  # noqa: BLE001 - any error is a finding
        return failed(seed, Violation(NO_ERROR, _traceback()), plan)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _traceback() -> str:
    return traceback.format_exc()[-_MOST_TEXT:].rstrip()


def _first_difference(first: Outcome, second: Outcome) -> str:
    if second.violation is not None and first.violation is None:
        return f"the second run failed: {second.violation}"
    text = f"digest {first.digest} after {first.steps} steps, then {second.digest} after {second.steps}"
    for one, other in zip(first.story, second.story, strict=False):
        if one != other:
            return f"{text}; the stories differ from here\n  {one}\n  {other}"
    return text
