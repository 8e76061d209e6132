"""The story of a run: short lines with the time, for whoever must understand a failed seed."""

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.simulation.clock import Clock

_MOST_LINES: Final = 4_000


class Story:
    """The last lines of what happened, each with the time since the start in seconds."""

    def __init__(self, clock: "Clock") -> None:
        self._clock = clock
        self._start_ms = clock.now_ms
        self._lines: deque[tuple[float, str]] = deque(maxlen=_MOST_LINES)

    def tell(self, line: str) -> None:
        """Add a line, such as "broker 2 restarts"."""
        self._lines.append((self._clock.now_ms, line))

    def lines(self) -> list[str]:
        """Return the story, oldest line first."""
        return [f"{(at_ms - self._start_ms) / 1_000:9.3f} s  {line}" for at_ms, line in self._lines]
