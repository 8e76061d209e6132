"""Writes the file of the audit log. All functions block, so they must not be called on the event loop.

If the file was renamed, for example by logrotate, the next write creates a new one. Lines are appended without a sync
to the disk, because the quotas themselves are safe in the store.
"""

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from kafka_quota_proxy.config.errors import StartError
from kafka_quota_proxy.proxy.background.disk_access import file_fault

log = logging.getLogger(__name__)

_AGAIN_AFTER_MS: Final = 60_000
_MODE: Final = 0o640
_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


class AuditFile:
    """The file of the audit log, for use in one thread. ``lost`` is the number of lines that could not be written."""

    def __init__(self, path: Path) -> None:
        self.lost = 0
        self._path = path
        self._file = -1
        self._is_torn = False  # whether the file ends in the middle of a line
        self._logged_ms = -_AGAIN_AFTER_MS

    def open(self) -> None:
        """Open the file, and create it if it does not exist. Raises StartError if this is impossible."""
        try:
            self._open()
        except OSError as error:
            fault = file_fault(self._path) or f"{self._path} cannot be opened: {error.strerror or error}"
            raise StartError(("store", "audit_log"), fault) from error

    def append(self, lines: Sequence[bytes], *, now_ms: int) -> None:
        """Append lines, each of which ends with a newline. If this fails, count them as lost and log an error."""
        try:
            self._follow_name()
            self._write(b"".join(lines))
        except OSError as error:
            self.lost += len(lines)
            self.close()
            if now_ms - self._logged_ms >= _AGAIN_AFTER_MS:
                self._logged_ms = now_ms
                log.error(  # noqa: TRY400 - a full disk needs no traceback
                    "the audit log %s cannot be written: %s; quotas are still changed, but %d lines are lost",
                    self._path, error.strerror or error, self.lost,
                )  # fmt: skip

    def close(self) -> None:
        """Close the file. This may be called more than once."""
        file, self._file = self._file, -1
        if file >= 0:
            # Even if close fails, the file is closed (see close(2)).
            with suppress(OSError):
                os.close(file)

    def _open(self) -> None:
        self._file = os.open(self._path, _FLAGS, _MODE)
        size_bytes = os.fstat(self._file).st_size
        self._is_torn = size_bytes > 0 and os.pread(self._file, 1, size_bytes - 1) != b"\n"

    def _follow_name(self) -> None:
        """Open the file if it is not open. If it was renamed or removed, create a new one and open that."""
        if self._file >= 0:
            ours = os.fstat(self._file)
            with suppress(FileNotFoundError):
                found = self._path.stat()
                if (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino):
                    return
            self.close()
        self._open()

    def _write(self, data: bytes) -> None:
        # A full disk may have left a part of a line. A newline ends that part.
        view = memoryview(b"\n" + data if self._is_torn else data)
        written = 0
        while written < len(view):
            written += os.write(self._file, view[written:])
        self._is_torn = False
