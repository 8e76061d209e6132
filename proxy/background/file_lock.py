"""A directory's lock file: whoever has it locked is the one process that writes there."""

import fcntl
import os
from pathlib import Path


def take(path: Path, *, taken: str) -> int:
    """Lock a file, which is made if it is not there; return its descriptor, until whose end it is locked.

    Args:
        path: The file.
        taken: What to say where another process has it locked.

    Raises:
        OSError: One has; or the file cannot be used.
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
