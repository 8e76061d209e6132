"""Reads the CPU time and the memory of a process from /proc (Linux)."""

import os
from pathlib import Path
from typing import Final

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_PAGE_SIZE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
# Fields of /proc/PID/stat after the command name (proc(5) counts from 1 and the name is the second): utime, stime.
_UTIME, _STIME = 11, 12


def cpu_seconds(pid: int) -> float:
    """Return user and system time of all threads of a process, in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS_PER_SECOND


def resident_bytes(pid: int) -> int:
    """Return the resident set of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_SIZE_BYTES
