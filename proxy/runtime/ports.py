"""Chooses free ports on 127.0.0.1. Another process may take one before it is used, so the caller has to try again."""

from __future__ import annotations

import random
import socket
from typing import Final

# Below the ports that systems give to connections by themselves.
_LOWEST: Final = 15_000
_HIGHEST: Final = 32_000
_TRIES: Final = 200


def adjacent_ports(count: int) -> range:
    """Return ``count`` free ports in a row.

    Raises:
        OSError: If there are none.
    """
    chosen = random.SystemRandom()  # a test may seed the other generator, in each of its processes
    for _ in range(_TRIES):
        first = chosen.randrange(_LOWEST, _HIGHEST - count)
        ports = range(first, first + count)
        if all(map(_is_free, ports)):
            return ports
    raise OSError(f"no {count} free ports in a row on 127.0.0.1, from {_LOWEST} to {_HIGHEST}")


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
