"""How much memory this process has."""

import resource
from pathlib import Path
from typing import Final

_STATM: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = resource.getpagesize()


def resident_bytes() -> int:
    """Return what is resident now, in about 10 us; where the system does not say it, more than anybody has."""
    try:
        return int(_STATM.read_bytes().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 1 << 62
