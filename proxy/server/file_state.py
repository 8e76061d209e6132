"""The state of a polled file, to detect changes."""

import os
from typing import TypeAlias

# mtime, ctime, inode and size. An unreadable file may become readable without a change of anything but its ctime.
FileState: TypeAlias = tuple[int, int, int, int]


def file_state(path: str | os.PathLike[str]) -> FileState | None:
    """Return the state of the file at ``path``, in about 2 us; None if there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116  # half the time of Path.stat
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size
