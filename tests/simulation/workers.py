"""Runs seeds in several processes.

A worker is replaced after some hundred seeds, since a long-lived process grows and slows down. A new one is a fork of a
server process that has imported everything, so it costs little.
"""

import contextlib
import gc
import multiprocessing
import resource
import signal
from collections import deque
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Final, Self

from tests.simulation.guarded import SEED_SECONDS, run_guarded
from tests.simulation.outcome import Outcome, RunSeed, failed
from tests.simulation.violation import Violation

SURVIVES: Final = "the process survives"
SEEDS_PER_WORKER: Final = 400

# While a worker runs one seed, the next one waits in its pipe.
_OUTSTANDING: Final = 2
# A world needs a few MiB. This stops a seed that eats all memory before it hurts the machine.
_MOST_MEMORY_BYTES: Final = 4 << 30


class _Worker:
    """A process and the seeds that it has not answered, oldest first."""

    def __init__(self, process: BaseProcess, connection: "Connection[int | None, Outcome]") -> None:
        self.process = process
        self.connection = connection
        self.outstanding: deque[int] = deque()
        self.given = 0


class Workers:
    """Some processes that run the seeds from an iterator. Use it in ``with``; its end ends the processes.

    Args:
        run: A function of a module, which the processes import.
        seeds: Read as workers become free. It may be endless, and stop at any time.
        is_twice: Run each seed twice, and compare.
    """

    def __init__(
        self,
        run: RunSeed,
        seeds: Iterator[int],
        *,
        jobs: int,
        is_twice: bool = False,
        seed_seconds: float = SEED_SECONDS,
        seeds_per_worker: int = SEEDS_PER_WORKER,
    ) -> None:
        self._run = run
        self._seeds = seeds
        self._is_twice = is_twice
        self._seed_seconds = seed_seconds
        self._seeds_per_worker = seeds_per_worker
        self._again: deque[int] = deque()
        self._workers: list[_Worker] = []
        self._jobs = jobs
        self._context = multiprocessing.get_context("forkserver")
        # It ignores modules that cannot be imported; the workers will say so.
        self._context.set_forkserver_preload([run.__module__])
        self.started = 0

    def __enter__(self) -> Self:
        for _ in range(self._jobs):
            self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.process.terminate()
        for worker in self._workers:
            worker.process.join()
            worker.connection.close()
        self._workers.clear()

    def outcomes(self, timeout_seconds: float) -> list[Outcome] | None:
        """Return the outcomes of seeds that have ended, after a wait of at most ``timeout_seconds``.

        Returns:
            An empty list if the time is over, and None when all seeds have been run.
        """
        if not self._workers:
            return None
        found: list[Outcome] = []
        ready = wait([worker.connection for worker in self._workers], timeout_seconds)
        for worker in [worker for worker in self._workers if worker.connection in ready]:
            try:
                found.append(worker.connection.recv())
            except (EOFError, OSError):
                found += self._bury(worker)
                continue
            worker.outstanding.popleft()
            self._feed(worker)
        return found

    def _start(self) -> None:
        ours, theirs = self._context.Pipe()
        arguments = (self._run, theirs, self._is_twice, self._seed_seconds)
        process = self._context.Process(target=_work, args=arguments, daemon=True)
        process.start()
        theirs.close()
        self.started += 1
        worker = _Worker(process, ours)
        self._workers.append(worker)
        self._feed(worker)

    def _feed(self, worker: _Worker) -> None:
        """Give the worker its next seeds. Let it go if there are none or if it has had its share."""
        while len(worker.outstanding) < _OUTSTANDING and worker.given < self._seeds_per_worker:
            seed = self._next_seed()
            if seed is None:
                break
            worker.outstanding.append(seed)
            worker.given += 1
            # If it has died, its end of the pipe says so later.
            with contextlib.suppress(OSError):
                worker.connection.send(seed)
        if worker.outstanding:
            return
        with contextlib.suppress(OSError):
            worker.connection.send(None)
        is_tired = worker.given >= self._seeds_per_worker
        self._remove(worker)
        if is_tired:
            self._start()

    def _next_seed(self) -> int | None:
        return self._again.popleft() if self._again else next(self._seeds, None)

    def _bury(self, worker: _Worker) -> list[Outcome]:
        """Replace a worker that has died. The seed that it ran is a finding, and the others are run again."""
        self._remove(worker)
        found = []
        if worker.outstanding:
            seed = worker.outstanding.popleft()
            found.append(failed(seed, Violation(SURVIVES, f"it ended with status {worker.process.exitcode}")))
        self._again.extend(worker.outstanding)
        self._start()
        return found

    def _remove(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.process.join()
        worker.connection.close()


def _work(run: RunSeed, seeds: "Connection[Outcome, int | None]", is_twice: bool, seed_seconds: float) -> None:
    """Run the seeds that come through the pipe until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY_BYTES, _MOST_MEMORY_BYTES))
    with contextlib.suppress(EOFError, OSError):
        while (seed := seeds.recv()) is not None:
            outcome = run_guarded(run, seed, is_twice=is_twice, most_seconds=seed_seconds)
            # A world's remains are kept. The collector would look at those of all worlds before, again and again.
            gc.freeze()
            # Nobody reads the story of a run in which all went well.
            seeds.send(outcome if outcome.violation is not None else outcome._replace(story=()))
