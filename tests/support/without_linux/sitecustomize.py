"""Removes from Python what this program uses and macOS lacks.

Python imports this module at its start if PYTHONPATH names its directory.
"""

import select
import sys
from typing import Any

# The module socket imports selectors, which looks for epoll. So these names go before anything else is imported.
for name in [name for name in vars(select) if name.startswith("EPOLL")] + ["epoll", "POLLRDHUP"]:
    delattr(select, name)

import fcntl  # noqa: E402
import os  # noqa: E402
import resource  # noqa: E402
import socket  # noqa: E402

MOST_OPEN_FILES = 10_240  # OPEN_MAX of macOS

socket.TCP_KEEPALIVE = socket.TCP_KEEPIDLE  # type: ignore[attr-defined] # its name there
for module, names in {
    fcntl: ("F_SETPIPE_SZ",),
    os: (
        "SPLICE_F_MORE",
        "SPLICE_F_MOVE",
        "SPLICE_F_NONBLOCK",
        "eventfd",
        "pidfd_open",
        "pipe2",
        "sched_getaffinity",
        "splice",
    ),
    socket: ("TCP_INFO", "TCP_KEEPIDLE", "TCP_QUICKACK", "TCP_USER_TIMEOUT"),
}.items():
    for name in names:
        delattr(module, name)

set_limit = resource.setrlimit


def setrlimit(kind: int, limits: tuple[int, int]) -> None:
    """Refuse more open files than a process on macOS may ask for."""
    if kind == resource.RLIMIT_NOFILE and limits[0] > MOST_OPEN_FILES:
        raise ValueError("current limit exceeds maximum limit")
    set_limit(kind, limits)


def hide_proc(event: str, arguments: tuple[Any, ...]) -> None:
    """Let nothing be opened below /proc."""
    if event == "open" and str(arguments[0]).startswith("/proc/"):
        raise FileNotFoundError(arguments[0])


resource.setrlimit = setrlimit
sys.addaudithook(hide_proc)
