"""A directory's lock file: only the process that holds the lock writes there."""

import fcntl
import os
from pathlib import Path


def take(path: Path, *, taken: str) -> int:
    """Lock a file, creating it if needed; return its descriptor. Closing that releases the lock.

    Args:
        path: The file.
        taken: The error text if another process holds the lock.

    Raises:
        OSError: Another process holds it, or the file cannot be opened.
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
