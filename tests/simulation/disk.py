"""The disk of a proxy's machine: real files in a folder of their own, and the faults of a disk.

What was written and not synced may be lost when the machine loses its power, and not when a process is killed.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from tests.simulation.store_disk import StoreDisk


class Disk:
    """The files below ``folder``.

    Attributes:
        is_full: Whether a write fails, after a part of it.
        fails_to_sync: Whether a sync fails.
        store: The files of the store of quotas, which have faults of their own.
        torn: The files with a final name of which a loss of power has taken a part, because they could not be synced.
    """

    def __init__(self, folder: Path, random: Random) -> None:
        self.folder = folder
        self.is_full = self.fails_to_sync = False
        self.store = StoreDisk(random)
        self.torn: dict[Path, None] = {}
        self._random = random
        self._synced_bytes: dict[int, int] = {}  # by inode
        self._unsynced: dict[int, None] = {}  # the inodes of files that could not be synced
        self._open: dict[int, None] = {}

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        """Open a file and return its descriptor."""
        descriptor = os.open(path, flags, mode)
        self._open[descriptor] = None
        return descriptor

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""
        self._open.pop(descriptor, None)
        os.close(descriptor)

    def write(self, descriptor: int, data: memoryview) -> int:
        """Write some of ``data``, and return how many bytes.

        Raises:
            OSError: If the disk is full.
        """
        if not self.is_full:
            return os.write(descriptor, data)
        size = self._random.randrange(len(data)) if self._random.random() < 0.5 else 0
        if not size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(descriptor, data[:size])

    def fsync(self, descriptor: int) -> None:
        """Make sure that a file is on the disk.

        Raises:
            OSError: If the disk is faulty.
        """
        found = os.fstat(descriptor)
        if self.fails_to_sync:
            self._unsynced[found.st_ino] = None
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._synced_bytes[found.st_ino] = found.st_size

    def process_ended(self) -> None:
        """Close the descriptors that a killed process had, which gives back its locks."""
        for descriptor in self._open:
            os.close(descriptor)
        self._open.clear()
        self.store.process_ended()

    def lose_power(self) -> int:
        """Lose what was not synced, from any byte on. Return how many bytes are lost."""
        self.store.lose_power()
        lost = 0
        for path in sorted(self.folder.rglob("*.jsonl*")):
            found = path.stat()
            synced = min(self._synced_bytes.get(found.st_ino, 0), found.st_size)
            kept = self._random.randint(synced, found.st_size)
            lost += found.st_size - kept
            if kept < found.st_size and path.suffix == ".jsonl" and found.st_ino in self._unsynced:
                self.torn[path] = None
            os.truncate(path, kept)
        return lost


class DiskModule:
    """Stands for the module ``os`` where the proxy writes files. ``current`` returns the disk of whoever calls."""

    def __init__(self, current: Callable[[], Disk]) -> None:
        self._current = current

    def __getattr__(self, name: str) -> Any:
        if name in ("open", "close", "write", "fsync"):
            return getattr(self._current(), name)
        return getattr(os, name)
