"""Runs two workers under one quota, kills one after the other with SIGKILL, and measures the rate around each kill."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from bench.cores.worker import BUFFER_SIZE_BYTES, HOST, read_frame
from bench.frames import produce_request

if TYPE_CHECKING:
    from bench.cores.shared_buckets import Buckets

QUOTA = 50_000_000
SAMPLES = 11  # of one second, Kafka's default
SPAN_S = float(SAMPLES)
PRODUCERS = 16
REQUEST_BYTES = 128 * 1024
DEMAND = 1.5  # of the quota
REQUESTS_PER_CONNECTION = 50  # producers connect again after these, so that a new worker gets connections
SETTLE_S = 1.0


@dataclass
class Kill:
    """One kill of a worker. Times are monotonic; ``in_flight`` is what the worker had when it was killed."""

    worker: int
    at_s: float
    in_flight: int
    returned: int = -1
    restarted_s: float = 0.0


@dataclass
class QuotaRun:
    """What a run found: the time and bytes of each acknowledged request, the kills, and the share of each worker."""

    acknowledged: list[tuple[float, int]] = field(default_factory=list)
    unanswered: int = 0
    kills: list[Kill] = field(default_factory=list)
    charged: list[int] = field(default_factory=list)

    def relative_rate(self, start_s: float) -> float:
        """Return the rate over one window, relative to the quota."""
        total = sum(size for at_s, size in self.acknowledged if start_s <= at_s < start_s + SPAN_S)
        return total / SPAN_S / QUOTA


class Supervisor:
    """Keeps workers running, and gives back what a dead worker had in flight before it starts the next one."""

    def __init__(self, library: Path, file: Path, buckets: "Buckets", broker_port: int) -> None:
        self.port = free_port()
        self.pids: dict[int, int] = {}
        self.ready = asyncio.Semaphore(0)  # released for each start of a worker
        self.deaths: list[tuple[int, int, float]] = []  # worker, bytes given back, time of the restart
        self._buckets = buckets
        self._arguments = [str(library), str(file)], [str(self.port), str(broker_port)]
        self._is_stopping = False

    async def keep(self, worker: int) -> None:
        """Run one worker, and start it again whenever it has died."""
        before, after = self._arguments
        while not self._is_stopping:
            process = await started("-m", "bench.cores.worker", *before, str(worker), *after)
            if worker in self.pids:
                self.deaths[-1] = (*self.deaths[-1][:2], monotonic())
            self.pids[worker] = process.pid
            self.ready.release()
            await process.wait()
            self.deaths += [(one, returned, 0.0) for one, returned in self._buckets.reap().items()]

    def stop(self) -> None:
        """Terminate all workers."""
        self._is_stopping = True
        for pid in self.pids.values():
            os.kill(pid, signal.SIGTERM)


def free_port() -> int:
    with socket.create_server((HOST, 0)) as free:
        port: int = free.getsockname()[1]
        return port


async def started(*arguments: str) -> asyncio.subprocess.Process:
    """Start a Python program, and wait until it prints "ready"."""
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None  # noqa: S101 - for the type checker
    if await process.stdout.readline() != b"ready\n":
        raise SystemExit(f"{arguments[1]} did not start")
    return process


@asynccontextmanager
async def proxy(library: Path, file: Path, buckets: "Buckets", workers: int) -> AsyncIterator[tuple[Supervisor, int]]:
    """Run a fake broker, and workers in front of it. Return the supervisor and the process of the broker."""
    broker_port = free_port()
    broker = await started("-m", "bench.fake_broker", str(broker_port))
    supervisor = Supervisor(library, file, buckets, broker_port)
    try:
        async with asyncio.TaskGroup() as tasks:
            for worker in range(workers):
                tasks.create_task(supervisor.keep(worker))
            for _ in range(workers):
                await supervisor.ready.acquire()
            try:
                yield supervisor, broker.pid
            finally:
                supervisor.stop()
    finally:
        broker.terminate()
        await broker.wait()


async def produce(port: int, run: QuotaRun) -> None:
    """Send a request each time one is due, and wait for its response. Connect again after some, or after an error."""
    request = produce_request(b"bench", REQUEST_BYTES)
    amount = len(request) - 4
    period_s = REQUEST_BYTES * PRODUCERS / (QUOTA * DEMAND)
    while True:
        is_unanswered = False
        try:
            reader, writer = await asyncio.open_connection(HOST, port, limit=BUFFER_SIZE_BYTES)
            for _ in range(REQUESTS_PER_CONNECTION):
                due_s, is_unanswered = monotonic() + period_s, True
                writer.write(request)
                await read_frame(reader)
                run.acknowledged.append((monotonic(), amount))
                is_unanswered = False
                await asyncio.sleep(due_s - monotonic())
            writer.close()
        except (ConnectionError, asyncio.IncompleteReadError):
            run.unanswered += is_unanswered


async def kill(supervisor: Supervisor, buckets: "Buckets", worker: int) -> Kill:
    """Kill a worker while it has a request in flight. It is stopped for the look at its column."""
    while True:
        pid = supervisor.pids[worker]
        os.kill(pid, signal.SIGSTOP)
        if in_flight := buckets.in_flight_of(0, worker):
            os.kill(pid, signal.SIGKILL)
            return Kill(worker, monotonic(), in_flight)
        os.kill(pid, signal.SIGCONT)
        await asyncio.sleep(0.0003)


def fill_windows(buckets: "Buckets", now_ms: int) -> None:
    """Charge as a long load at the quota. Otherwise the run would begin with a burst of ten seconds' worth."""
    for start_ms in range(now_ms - SAMPLES * 1_000, now_ms, 1_000):
        buckets.charge(0, QUOTA, now_ms=start_ms)
        buckets.charge(0, 0, now_ms=start_ms + 999)


async def hold_quota(library: Path, file: Path, buckets: "Buckets", kills: Sequence[int]) -> QuotaRun:
    """Run two workers under demand above the quota, and kill these workers, one in each window."""
    run = QuotaRun()
    async with proxy(library, file, buckets, 2) as (supervisor, _):
        fill_windows(buckets, int(monotonic() * 1_000))
        async with asyncio.TaskGroup() as tasks:
            load = [tasks.create_task(produce(supervisor.port, run)) for _ in range(PRODUCERS)]
            await asyncio.sleep(SETTLE_S + SPAN_S)
            for worker in kills:
                run.kills.append(await kill(supervisor, buckets, worker))
                await asyncio.sleep(SETTLE_S + SPAN_S)
            for one in load:
                one.cancel()
        for one_kill, (_, returned, restarted_s) in zip(run.kills, supervisor.deaths, strict=True):
            one_kill.returned, one_kill.restarted_s = returned, restarted_s - one_kill.at_s
        run.charged = [charged for _, charged, _ in buckets.state(0)[1][:2]]
    return run
