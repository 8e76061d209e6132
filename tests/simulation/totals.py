"""What the runs of many seeds have done, which a file keeps from one run to the next, and the record of a long one.

The sums of several runs are those of one if all had the same proxy. The checks may have been corrected between two of
them: so a seed that has failed does not count, and is run again in the next.
"""

import datetime
import hashlib
import json
import os
import platform
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.simulation.outcome import Outcome

RECORD: Final = Path(__file__).parent / "RECORD.md"
_REPOSITORY: Final = Path(__file__).parents[2]
_ROOMS: Final = ("config", "protocol", "proxy")
_MS_PER_HOUR: Final = 3_600_000
_CPU_INFO: Final = Path("/proc/cpuinfo")
_PREFACE: Final = """# The last long run of the simulation

Written by `python -m tests.simulation --record`. A *step* is one callback of the event loop. A *seed* is one world from
its start to its end. A fault *fires* when it takes effect, not when it is planned. Earlier runs have found
[these bugs](README.md#what-it-found).
"""


class NotALogError(Exception):
    """The file is not one that ``Totals`` has written."""


class CannotRecordError(Exception):
    """The run is not one to be recorded."""


class Totals:
    """Sums over the seeds that have passed.

    Attributes:
        kinds: What happens in each kind of fault.
        faults: How often each has fired, also one that never did.
        failed: The seeds that have failed in this run.
        runs: How many runs have taken part, with this one.
        seconds: The real time of the runs before.
        again: Seeds still to be run first: those that had failed, and those that were not at their end.
        next_seed: The first seed after those. None if no run has been before.
        is_anew: Whether the file is of another proxy, so that nothing of it counts.
    """

    def __init__(self, kinds: Mapping[str, str], log: Path | None = None) -> None:
        """Read the sums of earlier runs, if there is a file of them.

        Raises:
            NotALogError: The file is of something else.
        """
        self.kinds = kinds
        self.seeds = self.steps = 0
        self.simulated_ms = self.seconds = 0.0
        self.runs = 1
        self.faults: Counter[str] = Counter(dict.fromkeys(kinds, 0))
        self.states: set[str] = set()
        self.failed: list[Outcome] = []
        self.again: list[int] = []
        self.next_seed: int | None = None
        self.is_anew = False
        self._given: dict[int, None] = {}
        self._log = log
        if log is not None and log.exists():
            try:
                self._read(json.loads(log.read_text(encoding="utf-8")))
            except (ValueError, KeyError, TypeError) as error:
                raise NotALogError(f"{log} is not the log of a run; name another file") from error

    def _read(self, known: Mapping[str, object]) -> None:
        self.is_anew = known["proxy"] != digest_of_proxy()
        if not self.is_anew:
            for name in ("seeds", "steps", "simulated_ms", "seconds", "again", "next_seed"):
                setattr(self, name, known[name])
            self.runs += int(str(known["runs"]))
            self.faults.update(known["faults"])  # type: ignore[call-overload] # a dictionary
            self.states |= set(known["states"])  # type: ignore[call-overload] # a list

    def given(self, seed: int) -> None:
        """Note that a seed is going to be run."""
        self._given[seed] = None
        if seed in self.again:
            self.again.remove(seed)
        else:
            self.next_seed = max(seed + 1, self.next_seed or 0)

    def add(self, outcome: Outcome) -> None:
        """Count one seed."""
        self._given.pop(outcome.seed, None)
        if outcome.violation is not None:
            self.failed.append(outcome)
            return
        self.seeds += 1
        self.steps += outcome.steps
        self.simulated_ms += outcome.simulated_ms
        self.faults.update(outcome.faults)
        self.states |= outcome.states

    def write(self, seconds: float) -> None:
        """Replace the file, if there is one. All runs have taken ``seconds`` of real time."""
        if self._log is None:
            return
        again = [*(one.seed for one in self.failed), *self._given, *self.again]
        known = {
            name: getattr(self, name) for name in ("runs", "seeds", "steps", "simulated_ms", "faults", "next_seed")
        }
        known |= {"proxy": digest_of_proxy(), "seconds": seconds, "states": sorted(self.states), "again": again,
        }  # fmt: skip
        draft = self._log.with_suffix(".draft")
        draft.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        draft.replace(self._log)

    @property
    def unfired(self) -> list[str]:
        """The kinds of faults that never fired."""
        return sorted(kind for kind, times in self.faults.items() if not times)

    def line(self, seconds: float) -> str:
        """Return the sums in one line. They took ``seconds`` of real time."""
        rate = self.steps / seconds if seconds > 0 else 0.0
        return (
            f"{self.seeds:,} seeds, {self.steps:,} steps ({rate:,.0f}/s), "
            f"{self.simulated_ms / _MS_PER_HOUR:,.1f} simulated hours, "
            f"fault kinds {len(self.faults) - len(self.unfired)} of {len(self.faults)}, {len(self.states)} states, "
            f"findings: {len(self.failed)}"
        )

    def recorded(self, command: str, seconds: float) -> str:
        """Return the text of the record of one run, or of several that had a log.

        Raises:
            CannotRecordError: Something was found, or a kind of fault never fired.
        """
        if self.failed or self.unfired or not self.seeds:
            raise CannotRecordError(
                f"{self.seeds} seeds, findings: {len(self.failed)}, never fired: {', '.join(self.unfired)}"
            )
        rows = {
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "machine": f"{cpu_model()}, {os.cpu_count()} cores, Python {platform.python_version()}",
            "command": f"`{command}`",
            "runs": f"{self.runs}, all of the same proxy. What had failed in one was run again in the next.",
            "seeds": f"{self.seeds:,}",
            "steps": f"{self.steps:,}",
            "simulated time": f"{self.simulated_ms / _MS_PER_HOUR:,.1f} h",
            "real time": f"{seconds / 3_600:,.2f} h ({self.steps / seconds:,.0f} steps/s)",
            "states reached": f"{len(self.states):,}",
            "findings": "none",
        }
        lines = [_PREFACE, "| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items()), ""]
        lines += ["| kind of fault | what happens | fired |", "|---|---|---:|"]
        lines += [f"| {kind} | {self.kinds.get(kind, '')} | {times:,} |" for kind, times in sorted(self.faults.items())]
        return "\n".join(lines) + "\n"


def digest_of_proxy() -> str:
    """Return a digest of all the proxy's modules."""
    digest = hashlib.sha256()
    for room in _ROOMS:
        for path in sorted((_REPOSITORY / room).rglob("*.py")):
            digest.update(str(path.relative_to(_REPOSITORY)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def cpu_model() -> str:
    """Return the name of the processor, as Linux knows it."""
    lines = _CPU_INFO.read_text(encoding="utf-8").splitlines() if _CPU_INFO.exists() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())
