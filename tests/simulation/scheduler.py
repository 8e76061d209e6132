"""Runs all events of a simulated world in the order of their times, in one thread."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

from tests.simulation.clock import Clock
from tests.simulation.violation import Violation

_NS_PER_MS: Final = 1_000_000


class Event:
    """A call at a time. It can be cancelled until then."""

    __slots__ = ("arguments", "function")

    def __init__(self, function: Callable[..., object] | None, arguments: tuple[Any, ...]) -> None:
        self.function = function
        self.arguments = arguments

    def cancel(self) -> None:
        """Do not make the call. May be called again, also after the call."""
        self.function = None
        self.arguments = ()


class Scheduler:
    """A queue of events in order of time. Events of the same time run in the order in which they were added.

    Attributes:
        steps: How many events have run, with the callbacks that simulated event loops have run.
        calls: How many events and callbacks have begun.
        violation: The first violation that a check has found, or None. No event runs after it.
        on_step: Called after each event.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.steps = self.calls = 0
        self.violation: Violation | None = None
        self.on_step: Callable[[], None] = lambda: None
        self._queue: list[tuple[int, int, Event]] = []
        self._number = 0

    def at_ns(self, when_ns: int, function: Callable[..., object], *arguments: Any) -> Event:
        """Call ``function`` at the monotonic time ``when_ns``."""
        self._number += 1
        event = Event(function, arguments)
        now_ns = self.clock.now_ns
        heappush(self._queue, (when_ns if when_ns > now_ns else now_ns, self._number, event))
        return event

    def call_later(self, delay_ms: float, function: Callable[..., object], *arguments: Any) -> Event:
        """Call ``function`` after ``delay_ms``."""
        return self.at_ns(self.clock.now_ns + int(delay_ms * _NS_PER_MS), function, *arguments)

    @property
    def is_empty(self) -> bool:
        """Whether no event is left."""
        queue = self._queue
        while queue and queue[0][2].function is None:
            heappop(queue)
        return not queue

    def run_until(self, when_ns: int) -> None:
        """Run all events up to ``when_ns``, also those that are added meanwhile.

        Raises:
            Violation: If a check finds that a promise was broken.
        """
        queue, clock = self._queue, self.clock
        while queue and queue[0][0] <= when_ns:
            at_ns, _, event = heappop(queue)
            function = event.function
            if function is None:
                continue
            event.function = None
            if at_ns > clock.now_ns:
                clock.now_ns = at_ns
            self.calls += 1
            function(*event.arguments)
            self.steps += 1
            self.on_step()
            if self.violation is not None:
                raise self.violation
        clock.advance(when_ns)
