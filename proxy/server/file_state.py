"""The state of a polled file, to detect changes."""

import os
from typing import NamedTuple


class FileState(NamedTuple):
    """What differs between two states of a file."""

    mtime_ns: int
    ctime_ns: int  # an unreadable file may become readable without any other change
    inode: int
    size_bytes: int


def file_state(path: str | os.PathLike[str]) -> FileState | None:
    """Return the state of the file at ``path``, in about 2 us; None if there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116  # half the time of Path.stat
    except OSError:
        return None
    return FileState(found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size)
