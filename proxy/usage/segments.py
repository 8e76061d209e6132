"""Writes the usage log to files in one directory.

The functions block, so they must not run on the event loop. A file has one of these names::

    usage-PROXY-START_MS.jsonl.part     being written
    usage-PROXY-START_MS.jsonl          complete, never changed again

``START_MS`` is the ``start_ms`` of the file's first record. A complete file has whole lines only. A lock on
``usage-PROXY.lock`` keeps a second process with the same name from completing a file that is still in use.
"""

import json
import logging
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import Final

from kafka_quota_proxy.config.model import UsageFiles
from kafka_quota_proxy.proxy.runtime.disk_access import directory_fault, lock_file
from kafka_quota_proxy.proxy.usage.record import Batch

log = logging.getLogger(__name__)

_PART: Final = ".part"
_CHUNK_BYTES: Final = 256 * 1024
# While this thread computes, the event loop cannot run. So the thread sleeps for ``_REST_S`` after this many lines.
_LINES_BETWEEN_RESTS: Final = 100
_REST_S: Final = 0.0005
_TAIL_BYTES: Final = 64 * 1024  # longer than any line, which has some 3 KB at most


class Segments:
    """Writes the usage log of one proxy to files, one after the other.

    Call ``begin`` before any other method. If a method raises an error, the same call may be repeated.
    """

    name = "files"

    def __init__(self, settings: UsageFiles, proxy: str) -> None:
        self._settings = settings
        self._directory = Path(settings.directory)
        self._prefix = f"usage-{proxy}"
        self._own = re.compile(re.escape(self._prefix) + r"-(\d+)(?:\.(\d+))?\.jsonl(\.part)?")
        self._lock = -1
        self._file = -1  # descriptor of ``_path``
        self._path = Path()
        self._size_bytes = 0  # the size of the whole lines in it
        self._is_torn = False  # whether an incomplete line follows them
        self._rotate_from_ms = 0
        self._batch: Batch | None = None  # the batch that is not completely written
        self._left: list[bytes] = []  # the parts of that batch that are still to be written

    @property
    def rotate_from_ms(self) -> int | None:
        """Return when to complete the open file (ms, monotonic clock), or None if no file is open."""
        return None if self._file < 0 else self._rotate_from_ms

    def begin(self) -> int:
        """Lock the usage log files of this proxy, and give each file that a crash has left unfinished its final name.

        Return the ``start_ms`` of the last record in the files, or 0 if there is none.

        Raises:
            OSError: If the directory cannot be used, or another process has locked the files.
        """
        if fault := directory_fault(self._directory):
            raise OSError(fault)
        self._directory.mkdir(parents=True, exist_ok=True)
        if self._lock < 0:
            taken = (
                f"another process writes {self._prefix}-*.jsonl there; wait, or give each proxy its own usage_log.proxy"
            )
            self._lock = lock_file(self._directory / f"{self._prefix}.lock", taken=taken)
        for path in list(self._files(is_part=True)):
            _complete_leftover(path)
        return max((_last_start_ms(path) for path in list(self._files())[-2:]), default=0)

    def write(self, batch: Batch, *, now_ms: int) -> None:
        """Append all records of a batch. After a failure, call it again with the same batch to append the rest.

        Raises:
            OSError: If the disk is full, or the file or the directory is faulty.
        """
        if batch is not self._batch:
            self._batch, self._left = batch, [*_chunks(batch.lines())]
        while self._left:
            if self._file < 0:
                self._open(batch.start_ms, now_ms)
            self._mend()
            self._append(self._left[0])
            del self._left[0]
            if self._size_bytes >= self._settings.rotate_size_bytes:
                self.complete()
        self._batch = None
        if self._file >= 0 and not os.fstat(self._file).st_nlink:
            log.warning("%s was removed while it was written; its %d bytes are lost", self._path, self._size_bytes)
            self._close()

    def complete(self) -> None:
        """Give the open file its final name, and remove the oldest files if all files together are too large.

        Raises:
            OSError: If the open file cannot be completed.
        """
        if self._file < 0:
            return
        self._mend()
        _sync(self._file, self._path)
        try:
            self._path.rename(self._path.with_suffix(""))
        except FileNotFoundError:
            log.warning("%s was removed while it was written; its %d bytes are lost", self._path, self._size_bytes)
        self._close()
        self._trim()

    def end(self) -> None:
        """Close the open file, give it its final name, and release the lock on this proxy's usage log files."""
        try:
            self.complete()
        finally:
            self._close()
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1

    def _open(self, start_ms: int, now_ms: int) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        name, turn = f"{self._prefix}-{start_ms}", 0
        while (self._directory / f"{name}.jsonl").exists():  # the records of one interval may be divided among files
            turn += 1
            name = f"{self._prefix}-{start_ms}.{turn}"
        self._path = self._directory / f"{name}.jsonl{_PART}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o640)
        self._size_bytes = 0
        self._rotate_from_ms = now_ms + self._settings.rotate_interval_ms

    def _append(self, chunk: bytes) -> None:
        """Append a chunk of whole lines to the open file, either all of them or none."""
        view, written = memoryview(chunk), 0
        try:
            while written < len(chunk):
                written += os.write(self._file, view[written:])
        except OSError:
            self._is_torn = True
            if self._size_bytes:
                self.complete()  # after this, a retry writes to a new file, in case this one became too large
            else:
                self._mend()
            raise
        self._size_bytes += len(chunk)

    def _mend(self) -> None:
        """If a failed write has left an incomplete line at the end of the open file, cut it off."""
        if self._is_torn:
            os.ftruncate(self._file, self._size_bytes)
            self._is_torn = False

    def _files(self, *, is_part: bool = False) -> Iterator[Path]:
        """Return the complete files of this proxy, or its incomplete files if ``is_part``. The oldest come first."""
        found = ((path, self._own.fullmatch(path.name)) for path in self._directory.iterdir())
        named = [
            (int(match[1]), int(match[2] or 0), path) for path, match in found if match and bool(match[3]) == is_part
        ]
        return (path for _, _, path in sorted(named))

    def _trim(self) -> None:
        """Remove the oldest complete files, never the newest, until all together fit ``retention_size_bytes``."""
        most = self._settings.retention_size_bytes
        if most is None:
            return
        with suppress(OSError):
            sizes = [(path, path.stat().st_size) for path in self._files()]
            too_many = sum(size for _, size in sizes) - most
            for path, size in sizes[:-1]:
                if too_many <= 0:
                    break
                path.unlink()
                too_many -= size

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file, self._is_torn = -1, False


def _chunks(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Join lines into large chunks, so that one system call writes many lines."""
    some: list[bytes] = []
    size_bytes = 0
    for count, line in enumerate(lines, start=1):
        if count % _LINES_BETWEEN_RESTS == 0:
            sleep(_REST_S)
        some.append(line)
        size_bytes += len(line) + 1
        if size_bytes >= _CHUNK_BYTES:
            yield b"\n".join((*some, b""))
            some, size_bytes = [], 0
    if some:
        yield b"\n".join((*some, b""))


def _complete_leftover(path: Path) -> None:
    """Give a usage log file that a crash has left unfinished its final name, without an incomplete last line.

    A file without a whole line is removed.
    """
    size_bytes = path.stat().st_size
    whole_bytes = _end_of_last_line(path, size_bytes)
    if not whole_bytes:
        path.unlink()
        log.warning("removed %s: a crash left it without a whole line (%d bytes)", path, size_bytes)
        return
    file = os.open(path, os.O_WRONLY)
    try:
        os.ftruncate(file, whole_bytes)
        _sync(file, path)  # the process that has crashed may not have done so
    finally:
        os.close(file)
    final = path.with_suffix("")
    path.rename(final)
    log.warning("recovered %s after a crash: kept %d bytes of whole lines, dropped %d bytes of an incomplete one",
                final, whole_bytes, size_bytes - whole_bytes)  # fmt: skip


def _sync(file: int, path: Path) -> None:
    """Sync an open file, so that a power loss cannot cut a file that has its final name.

    If the sync fails, a warning is logged. The data is then in the page cache only.
    """
    try:
        os.fsync(file)
    except OSError as error:
        log.warning("%s may be incomplete after a crash of the system: %s", path, error)


def _end_of_last_line(path: Path, size_bytes: int) -> int:
    with path.open("rb") as file:
        end = size_bytes
        while end > 0:
            start = max(0, end - _TAIL_BYTES)
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
    return 0


def _last_start_ms(path: Path) -> int:
    """Return the ``start_ms`` of the file's last line, or 0 if that line cannot be parsed."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        lines = file.read().splitlines()
    try:
        return int(json.loads(lines[-1])["start_ms"])
    except (IndexError, KeyError, TypeError, ValueError):
        return 0
