"""Chooses free ports on 127.0.0.1. Another process may take one before it is used, so the caller has to try again."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from typing import Final

# Below the ports that systems give to connections by themselves.
_LOWEST: Final = 15_000
_HIGHEST: Final = 32_000
# One for the clients to begin with, and one for each broker of the cluster.
_ADJACENT: Final = 33
_TRIES: Final = 200


def free_ports(count: int) -> list[int]:
    """Return ``count`` free ports."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def adjacent_ports() -> tuple[int, int]:
    """Return the first and the last of some free ports in a row.

    Raises:
        OSError: If there are none.
    """
    chosen = random.SystemRandom()  # a test may seed the other generator, in each of its processes
    for _ in range(_TRIES):
        first = chosen.randrange(_LOWEST, _HIGHEST - _ADJACENT)
        if all(_is_free(port) for port in range(first, first + _ADJACENT)):
            return first, first + _ADJACENT - 1
    raise OSError(f"no {_ADJACENT} free ports in a row on 127.0.0.1, from {_LOWEST} to {_HIGHEST}")


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
