"""How much memory this process uses."""

import resource
from pathlib import Path
from typing import Final

_STATM: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = resource.getpagesize()


def resident_bytes() -> int:
    """Return the resident memory, in about 10 us; a huge number where the system does not report it."""
    try:
        return int(_STATM.read_bytes().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 1 << 62
