"""Reads the state of a file, so that a caller that polls the file can detect changes."""

import os
from typing import TypeAlias

# mtime, ctime, inode and size. If an unreadable file becomes readable, perhaps only its ctime changes.
FileState: TypeAlias = tuple[int, int, int, int]


def file_state(path: str | os.PathLike[str]) -> FileState | None:
    """Return the modification and change times, inode and size of a file; None if they cannot be read."""
    try:
        found = os.stat(path)  # noqa: PTH116  # half the time of Path.stat
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size
