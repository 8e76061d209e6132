"""Explains why this process cannot write to a path that the operator configured, and locks files."""

import errno
import fcntl
import os
from pathlib import Path
from typing import Final

_GIVE_IT: Final = "give it to the user that runs the proxy"
_MOUNT: Final = "a read-only file system; mount it writable, or use another file system"


def directory_fault(path: Path) -> str | None:
    """Return why files cannot be written in a directory, with a remedy, or None if they can.

    If the directory does not exist, return why it cannot be created, or None if it can.
    """
    try:
        if path.is_dir():
            return None if _may_write(path) else f"{path} cannot be written: {_why(path)}"
        if path.exists():
            return f"{path} is not a directory; name a directory, which may be missing"
    except OSError as error:
        return f"{path} cannot be used: {error.strerror or error}; {_GIVE_IT}"
    parent = next(one for one in path.absolute().parents if one.exists())
    if not parent.is_dir():
        return f"{path} cannot be created: {parent} is not a directory; use another path"
    return None if _may_write(parent) else f"{path} cannot be created in {parent}: {_why(parent)}"


def file_fault(path: Path) -> str | None:
    """Return why a file cannot be written or created, with a remedy, or None if it can."""
    if path.is_dir():
        return f"{path} is a directory; name a file in it"
    if path.exists():
        return None if os.access(path, os.W_OK) else f"{path} cannot be written: {_why(path)}"
    if not path.parent.is_dir():
        return f"{path} cannot be created: {path.parent} is not a directory; create it, or use another directory"
    return None if _may_write(path.parent) else f"{path} cannot be created: {_why(path.parent)}"


def _may_write(directory: Path) -> bool:
    return os.access(directory, os.R_OK | os.W_OK | os.X_OK)


def _why(path: Path) -> str:
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return f"it is on {_MOUNT}"
    return f"{os.strerror(errno.EACCES)} for user {os.geteuid()}; {_GIVE_IT}"


def lock_file(path: Path, *, taken: str) -> int:
    """Lock a file, and create it if needed. Return its descriptor; closing the descriptor releases the lock.

    Raises:
        OSError: The file cannot be opened, or another process holds the lock. In the second case, ``taken`` is the
            message of the error.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if not isinstance(error, BlockingIOError):
            raise
        raise OSError(error.errno, taken) from error
    return descriptor
