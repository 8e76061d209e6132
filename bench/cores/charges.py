"""Measures a charge, and kills processes that charge, to see whether the sums stay exact."""

import random
import subprocess
import sys
import time
import timeit
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

if TYPE_CHECKING:
    from bench.cores.shared_buckets import Buckets

COUNT = 2_000_000
ROUNDS = 5
KILLS = 40
STEPS = {
    1: "the lock is taken",
    2: "the new values are written beside",
    3: "they are marked as complete",
    4: "half of them are applied",
    5: "all are applied",
    6: "the mark is gone",
}


@dataclass
class Charges:
    """What a charge cost in each round, in ns, and what was found after kills."""

    alone_ns: list[float]
    at_limit_ns: list[float]
    python_ns: list[float]
    two_ns: list[float]
    charges_of_two: int
    sum_of_two: int
    holders_killed: int
    inexact: list[str]


class Charger:
    """A process of ``bench.cores.charger``."""

    def __init__(self, library: Path, file: Path, worker: int, count: int, step: int = 0) -> None:
        command = [sys.executable, "-m", "bench.cores.charger", str(library), str(file), str(worker), str(count)]
        self.process = subprocess.Popen([*command, str(step)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._output = cast(IO[str], self.process.stdout)
        self._output.readline()

    def go(self) -> None:
        """Let it charge."""
        cast(IO[str], self.process.stdin).write("\n")
        cast(IO[str], self.process.stdin).flush()

    def took_ns(self) -> int:
        """Wait for its end, and return the ns that all charges took."""
        return int(self.process.communicate()[0])

    def kill(self) -> None:
        """Kill it with SIGKILL, and wait until it is dead."""
        self.process.kill()
        self.process.communicate()


def kill_at_step(library: Path, file: Path, buckets: "Buckets", step: int) -> str | None:
    """Kill a process at a step of its charge. Return what is inexact then, or None."""
    before = buckets.state(0)[1][1][1]
    charger = Charger(library, file, 1, 1, step)
    charger.go()
    while buckets.stopped_at != step:
        time.sleep(0.001)
    charger.kill()
    recorded = buckets.state(0)[1][1][1] - before
    if recorded != (step >= 3):  # from then on the next owner of the lock completes the charge
        return f"killed when {STEPS[step]}: {recorded} of 1 was recorded"
    return inexact(buckets)


def inexact(buckets: "Buckets") -> str | None:
    """Return which sums differ, or None. All charges were of 1, in less than ten seconds."""
    slots, columns, total, _, _ = buckets.state(0)
    by_slot, by_column = sum(slot[0] for slot in slots), sum(column[1] for column in columns)
    charges = sum(column[2] for column in columns)
    return None if by_slot == by_column == charges == total else f"{by_slot}, {by_column}, {charges}, {total}"


def kill_at_random(library: Path, file: Path, buckets: "Buckets") -> None:
    """Kill a process at any instruction of its charges, while this process charges, too."""
    charger = Charger(library, file, 1, 1 << 60)
    charger.go()
    buckets.charge_many(0, 1, random.randrange(2_000, 10_000))  # noqa: S311 - any moment
    charger.kill()
    buckets.charge_many(0, 1, 1)


def two_at_once(library: Path, file: Path) -> int:
    """Let two processes charge one bucket, and return the ns that the slower one took."""
    chargers = [Charger(library, file, worker, COUNT) for worker in (1, 2)]
    for one in chargers:
        one.go()
    return max(one.took_ns() for one in chargers)


def measured(library: Path, folder: Path, buckets_class: "type[Buckets]") -> Charges:
    """Measure charges of one process and of two, and count what is inexact after kills."""

    def fresh(name: str, limit: float = 1e18) -> "tuple[Path, Buckets]":
        file = folder / name
        buckets = buckets_class(str(file), create=1, limit=limit)
        buckets.join(0)
        return file, buckets

    _, alone = fresh("alone")
    _, at_limit = fresh("at-limit", limit=1.0)
    alone_ns = [alone.charge_many(0, 1, COUNT) / COUNT for _ in range(ROUNDS)]
    at_limit_ns = [at_limit.charge_many(0, 1, COUNT) / COUNT for _ in range(ROUNDS)]
    calls = COUNT // 10
    python_ns = [one / calls * 1e9 for one in timeit.repeat(lambda: alone.charge(0, 1), number=calls, repeat=ROUNDS)]
    file, shared = fresh("shared")
    two_ns = [two_at_once(library, file) / COUNT for _ in range(ROUNDS)]
    sum_of_two = shared.state(0)[1][1][1] + shared.state(0)[1][2][1]
    found: list[str | None] = []
    holders = 0
    for step in STEPS:
        file, shared = fresh(f"step-{step}")
        found.append(kill_at_step(library, file, shared, step))
    for n in range(KILLS):
        file, shared = fresh(f"kill-{n}")
        kill_at_random(library, file, shared)
        holders += shared.state(0)[4]
        found.append(inexact(shared))
    return Charges(
        alone_ns, at_limit_ns, python_ns, two_ns, 2 * ROUNDS * COUNT, sum_of_two, holders, [one for one in found if one]
    )
