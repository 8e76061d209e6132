"""An asyncio event loop whose time, timers and I/O are those of the simulated world.

Each simulated process has a loop of its own, so that the process can be killed at any instant: its loop never runs
again, and no code of it is told.
"""

import asyncio
from asyncio import events
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import Context
from heapq import heappop
from random import Random
from typing import Any, Final, TypeVar

from tests.simulation.scheduler import Scheduler

_NS_PER_S: Final = 1_000_000_000
T = TypeVar("T")


class CountedTask(asyncio.Task[Any]):
    """A task with a hash that is the same in each run of a seed. So sets of tasks have the same order, too."""

    _next = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        CountedTask._next += 1
        self._number = CountedTask._next
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self._number

    @classmethod
    def restart_count(cls) -> None:
        """Count from 0 again, for a new world."""
        cls._next = 0


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs the callbacks of one simulated process, in turns that the ``Scheduler`` calls.

    ``busy_until_ns`` is the time before which the process runs nothing. A fault sets it, to pause the process.
    """

    def __init__(self, scheduler: Scheduler, random: Random) -> None:
        super().__init__()
        self._scheduler = scheduler
        self._random = random
        self._turn_ns: int | None = None  # when the next turn is
        self._planned_ns: set[int] = set()  # the turns that the scheduler will call, also those that are not taken
        self._is_dead = False
        self._timer_cancelled_count = 0
        self._workers_free_ns: dict[Executor | None, int] = {}
        self.busy_until_ns = 0
        self.signal_handlers: dict[int, Callable[[], object]] = {}
        self.set_task_factory(lambda loop, work, **options: CountedTask(work, loop=loop, **options))

    # -- turns --

    def kill(self) -> None:
        """Run nothing from now on. Tasks stay as they are."""
        self._is_dead = True
        self._ready.clear()  # type: ignore[attr-defined]
        self._scheduled.clear()  # type: ignore[attr-defined]

    def time(self) -> float:
        """Return the simulated monotonic time in seconds."""
        return self._scheduler.clock.now_ns / _NS_PER_S

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Call ``callback`` in the next turn."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        self._plan(0)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment] # there are no threads

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call ``callback`` at the time ``when``, in seconds."""
        timer = super().call_at(when, callback, *args, context=context)
        self._plan(int(when * _NS_PER_S) + 1)
        return timer

    def _plan(self, at_ns: int) -> None:
        """Take a turn at ``at_ns``, or as soon as the process is free."""
        now_ns, turn_ns = self._scheduler.clock.now_ns, self._turn_ns
        if turn_ns is not None and (turn_ns <= now_ns or turn_ns <= at_ns):
            return  # the usual case
        at_ns = max(at_ns, self.busy_until_ns, now_ns)
        if (turn_ns is None or at_ns < turn_ns) and not self._is_dead:
            self._turn_ns = at_ns
            if at_ns not in self._planned_ns:
                self._planned_ns.add(at_ns)
                self._scheduler.at_ns(at_ns, self._take_turn, at_ns)

    def _take_turn(self, planned_ns: int) -> None:
        """Run the callbacks that are ready, as an event loop does in one iteration."""
        self._planned_ns.discard(planned_ns)
        if self._turn_ns != planned_ns or self._is_dead:
            self._scheduler.steps -= 1
            return  # an earlier turn was planned since
        self._turn_ns = None
        clock = self._scheduler.clock
        if clock.now_ns < self.busy_until_ns:
            self._plan(0)
            return
        ready, scheduled = self._ready, self._scheduled  # type: ignore[attr-defined]
        now = self.time()
        while scheduled and scheduled[0]._when <= now:
            timer = heappop(scheduled)
            timer._scheduled = False
            if timer._cancelled:
                self._timer_cancelled_count -= 1
            else:
                ready.append(timer)
        before = events._get_running_loop()
        events._set_running_loop(self)
        count = len(ready)
        try:
            for _ in range(count):
                handle = ready.popleft()
                if not handle._cancelled:
                    self._scheduler.calls += 1
                    handle._run()
                    if self._is_dead or self._scheduler.violation is not None:
                        return
        finally:
            events._set_running_loop(before)
        self._scheduler.steps += max(0, count - 1)
        self.busy_until_ns = clock.now_ns + 2_000 + int(self._random.random() * 3_000) * (count + 1)
        while scheduled and scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1
            heappop(scheduled)._scheduled = False
        if ready:
            self._plan(0)
        elif scheduled:
            self._plan(int(scheduled[0]._when * _NS_PER_S) + 1)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._timer_cancelled_count += 1

    @property
    def open_timers(self) -> list[asyncio.TimerHandle]:
        """The timers that are set and not cancelled."""
        return [timer for timer in self._scheduled if not timer._cancelled]  # type: ignore[attr-defined]

    def is_running(self) -> bool:
        """Return whether a turn is being taken."""
        return events._get_running_loop() is self

    # -- what a process asks of its system --

    def run_in_executor(  # type: ignore[override]
        self,
        executor: Executor | None,
        func: Callable[..., T],
        *args: Any,
    ) -> asyncio.Future[T]:
        """Call ``func`` after the time that a thread would take. The calls of one executor keep their order."""
        future: asyncio.Future[T] = self.create_future()
        now_ns = self._scheduler.clock.now_ns
        begins_ns = max(now_ns, self._workers_free_ns.get(executor, 0) if executor is not None else 0)
        done_ns = begins_ns + int(self._random.expovariate(1 / 500_000)) + 20_000
        before_ns, after_ns = self.extra_work_ns(executor)
        done_ns += before_ns
        self._workers_free_ns[executor] = done_ns + after_ns

        def end(report: Callable[..., None], outcome: object) -> None:
            if after_ns:
                self._scheduler.at_ns(done_ns + after_ns, self.call_soon, report, future, outcome)
            else:
                self.call_soon(report, future, outcome)

        def run() -> None:
            if self._is_dead:
                return
            events._set_running_loop(self)  # tells which process runs
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - whoever awaits it gets it
                end(_fail, error)
            else:
                end(_succeed, result)
            finally:
                events._set_running_loop(None)

        self._scheduler.at_ns(done_ns, run)
        return future

    def extra_work_ns(self, executor: Executor | None) -> tuple[int, int]:
        """Return how much longer a call takes than usual: before it has an effect, and then until it returns."""
        return 0, 0

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        """Keep what a signal calls."""
        self.signal_handlers[sig] = lambda: callback(*args)

    def _write_to_self(self) -> None:
        """Nothing waits in a system call that would have to be woken."""


def _succeed(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
