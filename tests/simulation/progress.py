"""What a run of many seeds has done so far, and the line that says so."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from tests.simulation.outcome import Outcome

TERMINAL_SECONDS: Final = 5
LOG_SECONDS: Final = 30

_MS_PER_HOUR: Final = 3_600_000


class Totals:
    """Sums over outcomes. ``faults`` has each kind of fault, also one that never fired."""

    def __init__(self, fault_kinds: Iterable[str]) -> None:
        self.seeds = 0
        self.steps = 0
        self.simulated_ms = 0.0
        self.findings = 0
        self.faults: Counter[str] = Counter(dict.fromkeys(fault_kinds, 0))
        self.states: set[str] = set()

    def add(self, outcome: Outcome) -> None:
        """Count one seed."""
        self.seeds += 1
        self.steps += outcome.steps
        self.simulated_ms += outcome.simulated_ms
        self.findings += outcome.violation is not None
        self.faults.update(outcome.faults)
        self.states |= outcome.states

    @property
    def simulated_hours(self) -> float:
        """The time that passed in all worlds."""
        return self.simulated_ms / _MS_PER_HOUR

    @property
    def unfired(self) -> list[str]:
        """The kinds of faults that never fired."""
        return sorted(kind for kind, times in self.faults.items() if not times)

    def line(self, seconds: float) -> str:
        """Return the sums in one line. They took ``seconds`` of real time."""
        rate = self.steps / seconds if seconds > 0 else 0.0
        fired = len(self.faults) - len(self.unfired)
        return (
            f"{self.seeds:,} seeds, {self.steps:,} steps ({rate:,.0f}/s), {self.simulated_hours:,.1f} simulated hours, "
            f"fault kinds {fired} of {len(self.faults)}, {len(self.states)} states, "
            f"{counted(self.findings, 'finding')}"
        )

    def fault_lines(self, kinds: Mapping[str, str]) -> list[str]:
        """Return a line for each kind of fault, with how often it fired. ``kinds`` says what each is."""
        width = max((len(kind) for kind in self.faults), default=0)
        return [f"{kind:{width}}  {times:>11,}  {kinds.get(kind, '')}" for kind, times in sorted(self.faults.items())]


class Progress:
    """Prints the line of the totals now and then.

    Args:
        before_seconds: The real time of earlier runs with the same totals.
        is_terminal: Whether lines go to a person, who wants them more often.
        now: The time in seconds.
    """

    def __init__(
        self,
        totals: Totals,
        *,
        before_seconds: float = 0.0,
        is_terminal: bool,
        now: Callable[[], float],
        say: Callable[[str], None],
    ) -> None:
        self._totals = totals
        self._now = now
        self._say = say
        self._every = TERMINAL_SECONDS if is_terminal else LOG_SECONDS
        self._started = now() - before_seconds
        self._next = now() + self._every

    @property
    def seconds(self) -> float:
        """The time since the start, with that of earlier runs."""
        return self._now() - self._started

    def tick(self) -> bool:
        """Print the line if it is time. Return whether it was."""
        if self._now() < self._next:
            return False
        self._say(self._totals.line(self.seconds))
        self._next = self._now() + self._every
        return True


def counted(number: int, noun: str) -> str:
    """Return as "no finding", "1 finding", "2 findings"."""
    return f"{f'{number:,}' if number else 'no'} {noun}{'s' if number > 1 else ''}"
