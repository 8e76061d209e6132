"""The threads of a simulated process, as coroutines that run one at a time. They end with their process.

A thread runs until it waits or sleeps. So it is never interrupted between two of its steps, and a world with threads
does the same for the same seed.
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from greenlet import getcurrent, greenlet

if TYPE_CHECKING:
    from types import TracebackType

    from tests.simulation.process import Process
    from tests.simulation.scheduler import Event


_WAKE_MS: Final = 0.05


class SimulatedThread:
    """A thread of the process that creates it."""

    def __init__(
        self,
        current: "Callable[[], Process]",
        target: Callable[..., object],
        args: tuple[Any, ...] = (),
        name: str = "",
        daemon: bool = True,
    ) -> None:
        self._process = current()
        self._target = target
        self._args = args
        self.name = name
        self.ident: int | None = None
        self._is_done = False
        self._greenlet = greenlet(self._run, parent=_main())
        # A greenlet that is collected is ended by an exception, which would run code of a killed process.
        self._process.remains.append(self._greenlet)

    def start(self) -> None:
        """Begin soon."""
        self.ident = id(self)
        self._process.threads.append(self)
        self.resume_later(_WAKE_MS)

    def is_alive(self) -> bool:
        """Return whether the thread has begun and not ended."""
        return self.ident is not None and not self._is_done

    def join(self, timeout: float | None = None) -> None:
        """Do nothing: whoever joins looks at ``is_alive`` first, and gives no time."""

    def resume_later(self, delay_ms: float) -> "Event":
        """Go on after ``delay_ms``."""
        return self._process.world.call_later(delay_ms, self._resume)

    def _resume(self) -> None:
        if not self._process.is_dead and not self._is_done:
            before, self._process.world.thread = self._process.world.thread, self
            try:
                self._greenlet.switch()
            finally:
                self._process.world.thread = before

    @property
    def process(self) -> "Process":
        """The process of which this is a thread."""
        return self._process

    def _run(self) -> None:
        try:
            self._target(*self._args)
        finally:
            self._is_done = True

    def pause(self) -> None:
        """Let the rest of the world go on, until the thread is resumed."""
        _main().switch()


def _main() -> greenlet:
    current = getcurrent()
    while current.parent is not None:
        current = current.parent
    return current


class Condition:
    """A ``threading.Condition``. It needs no lock, because a thread is not interrupted."""

    def __init__(self, current: "Callable[[], Process]") -> None:
        self._process = current()
        self._waiting: deque[SimulatedThread] = deque()

    def __enter__(self) -> bool:
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: "TracebackType | None"
    ) -> None:
        pass

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for ``notify``, up to ``timeout`` seconds."""
        thread = self._process.world.thread
        assert thread is not None, "only a thread waits"
        self._waiting.append(thread)
        # No system wakes a thread at once.
        alarm = None if timeout is None else thread.resume_later(max(_WAKE_MS, timeout * 1_000))
        thread.pause()
        if alarm is not None:
            alarm.cancel()
        if thread in self._waiting:
            self._waiting.remove(thread)
            return False
        return True

    def notify(self) -> None:
        """Let the thread that has waited the longest go on."""
        if self._waiting:
            self._waiting.popleft().resume_later(0.02)


class ThreadingModule:
    """Stands for the module ``threading``."""

    def __init__(self, current: "Callable[[], Process]") -> None:
        self._current = current

    def Thread(self, **options: Any) -> SimulatedThread:  # noqa: N802 - as in threading
        """Return a thread of the current process."""
        return SimulatedThread(self._current, **options)

    def Condition(self) -> Condition:  # noqa: N802 - as in threading
        """Return a condition of the current process."""
        return Condition(self._current)
