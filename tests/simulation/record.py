"""Writes RECORD.md, the record of a long run without a finding."""

import datetime
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.simulation.progress import Totals

RECORD: Final = Path(__file__).parent / "RECORD.md"

_CPU_INFO: Final = Path("/proc/cpuinfo")
_PREFACE: Final = """# The last long run of the simulation

Written by `python -m tests.simulation --record`. A *step* is one callback of the event loop. A *seed* is one world from
its start to its end. A fault *fires* when it takes effect, not when it is planned. Earlier runs have found
[these bugs](README.md#what-it-found).
"""


class CannotRecordError(Exception):
    """The run is not one to be recorded."""


def recorded(totals: Totals, fault_kinds: Mapping[str, str], *, command: str, seconds: float, runs: int = 1) -> str:
    """Return the text of the record of one run, or of several that had a log.

    Raises:
        CannotRecordError: Something was found, or a kind of fault never fired.
    """
    if totals.findings:
        raise CannotRecordError(f"there were findings ({totals.findings})")
    if totals.unfired:
        raise CannotRecordError(f"these kinds of faults never fired: {', '.join(totals.unfired)}")
    if not totals.seeds:
        raise CannotRecordError("no seed was run")
    rows = [
        ("date", datetime.datetime.now(datetime.UTC).date().isoformat()),
        ("machine", f"{cpu_model()}, {os.cpu_count()} cores, Python {platform.python_version()}"),
        ("command", f"`{command}`"),
        ("seeds", f"{totals.seeds:,}"),
        ("steps", f"{totals.steps:,}"),
        ("simulated time", f"{totals.simulated_hours:,.1f} h"),
        ("real time", f"{seconds / 3_600:,.2f} h ({totals.steps / seconds:,.0f} steps/s)"),
        ("states reached", f"{len(totals.states):,}"),
        ("findings", "none"),
    ]
    if runs > 1:
        how = "all of the same proxy. What had failed in one was run again in the next."
        rows.insert(3, ("runs", f"{runs}, {how}"))
    lines = [_PREFACE, "| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows), ""]
    lines += ["| kind of fault | what happens | fired |", "|---|---|---:|"]
    lines += [f"| {kind} | {fault_kinds.get(kind, '')} | {times:,} |" for kind, times in sorted(totals.faults.items())]
    return "\n".join(lines) + "\n"


def cpu_model() -> str:
    """Return the name of the processor, as Linux knows it."""
    if _CPU_INFO.exists():
        for line in _CPU_INFO.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
