"""The files of a usage log, in one directory: written to, completed, kept within bounds. Blocks; not for the loop.

    usage-PROXY-START_MS.jsonl.part     being written
    usage-PROXY-START_MS.jsonl          complete, and never changed again

``START_MS`` is that of the first record. A file holds whole lines at any time, whatever fails: what was written of a
batch that did not fit is cut off again before the batch is tried anew. Of two processes with one name the second waits
until the first has ended (``usage-PROXY.lock``), so that it does not take a file in use for one that a crash has left.
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
from kafka_quota_proxy.proxy.background import file_lock
from kafka_quota_proxy.proxy.background.disk_access import directory_fault
from kafka_quota_proxy.proxy.usage.record import Batch

log = logging.getLogger(__name__)

_PART: Final = ".part"
_CHUNK_BYTES: Final = 256 * 1024
# While this thread computes, the loop waits for the interpreter, half a millisecond each time.
_LINES_BETWEEN_RESTS: Final = 100
_REST_S: Final = 0.0005
_TAIL_BYTES: Final = 64 * 1024  # a line has at most some 3 KB


class Segments:
    """The files of one proxy. ``begin`` comes first; each method may be called again after it has failed."""

    name = "files"

    def __init__(self, settings: UsageFiles, proxy: str) -> None:
        self._settings = settings
        self._directory = Path(settings.directory)
        self._prefix = f"usage-{proxy}"
        self._own = re.compile(re.escape(self._prefix) + r"-(\d+)(?:\.(\d+))?\.jsonl(\.part)?")
        self._lock = -1
        self._file = -1  # the descriptor of ``_path``
        self._path = Path()
        self._size_bytes = 0  # of whole lines in it
        self._is_torn = False  # behind these there is half a line
        self._rotate_from_ms = 0
        self._batch: Batch | None = None  # that did not fit
        self._left: list[bytes] = []  # what of it is still to be written

    @property
    def rotate_from_ms(self) -> int | None:
        """When the file that is open will have been so for long enough; None: there is none."""
        return None if self._file < 0 else self._rotate_from_ms

    def begin(self) -> int:
        """Take possession of the files, and complete those that a crash has left.

        Returns:
            The last ``start_ms`` in them; 0 where there are none.

        Raises:
            OSError: The directory cannot be used, or another process does.
        """
        if fault := directory_fault(self._directory):
            raise OSError(fault)
        self._directory.mkdir(parents=True, exist_ok=True)
        if self._lock < 0:
            told = f"another process writes {self._prefix}-*.jsonl there; wait, or give each its own usage_log.proxy"
            self._lock = file_lock.take(self._directory / f"{self._prefix}.lock", taken=told)
        for path in list(self._files(is_part=True)):
            _complete_leftover(path)
        return max((_last_start_ms(path) for path in list(self._files())[-2:]), default=0)

    def write(self, batch: Batch, *, now_ms: int) -> None:
        """Append all records of a batch. After a failure it goes on where it was, with the same batch.

        Args:
            batch: At least one record.
            now_ms: On a clock that does not step.

        Raises:
            OSError: There is no room, or something else is wrong with the file or the directory.
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
            log.warning("%s was removed while it was written; its %d bytes are gone", self._path, self._size_bytes)
            self._close()

    def complete(self) -> None:
        """Give the file that is open its final name, and remove the oldest where there are too many.

        Raises:
            OSError: It cannot be completed.
        """
        if self._file < 0:
            return
        self._mend()
        try:
            os.fsync(self._file)
        except OSError as error:  # whoever reads it now does so from memory
            log.warning("%s may not be whole after a crash of the system: %s", self._path, error)
        try:
            self._path.rename(self._path.with_suffix(""))
        except FileNotFoundError:
            log.warning("%s was removed while it was written; its %d bytes are gone", self._path, self._size_bytes)
        self._close()
        self._trim()

    def end(self) -> None:
        """Let go of everything."""
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
        while (self._directory / f"{name}.jsonl").exists():  # of an interval that is divided each file has this start
            turn += 1
            name = f"{self._prefix}-{start_ms}.{turn}"
        self._path = self._directory / f"{name}.jsonl{_PART}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o640)
        self._size_bytes = 0
        self._rotate_from_ms = now_ms + self._settings.rotate_interval_ms

    def _append(self, chunk: bytes) -> None:
        """Write whole lines, all of them or none."""
        view, written = memoryview(chunk), 0
        try:
            while written < len(chunk):
                written += os.write(self._file, view[written:])
        except OSError:
            self._is_torn = True
            if self._size_bytes:
                self.complete()  # what there is of it is whole; a next one has room where this one was too large
            else:
                self._mend()
            raise
        self._size_bytes += len(chunk)

    def _mend(self) -> None:
        """Cut off what was written of lines that did not fit."""
        if self._is_torn:
            os.ftruncate(self._file, self._size_bytes)
            self._is_torn = False

    def _files(self, *, is_part: bool = False) -> Iterator[Path]:
        """Return the files of this proxy, complete or not, the oldest first."""
        found = ((path, self._own.fullmatch(path.name)) for path in self._directory.iterdir())
        named = [
            (int(match[1]), int(match[2] or 0), path) for path, match in found if match and bool(match[3]) == is_part
        ]
        return (path for _, _, path in sorted(named))

    def _trim(self) -> None:
        """Remove the oldest complete files above the bound. One that cannot be removed is tried again later."""
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
    """Join lines to pieces of some size, so that a call of the system is for many of them."""
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
    """Complete a file that a crash has left: a line that is cut goes, whole ones stay."""
    size_bytes = path.stat().st_size
    whole_bytes = _end_of_last_line(path, size_bytes)
    if not whole_bytes:
        path.unlink()
        log.warning("%s was left by a crash without a whole line (%d bytes), and is removed", path, size_bytes)
        return
    os.truncate(path, whole_bytes)
    final = path.with_suffix("")
    path.rename(final)
    log.warning("%s was left by a crash: its %d bytes of whole lines are kept, %d bytes of a line that was cut are not",
                final, whole_bytes, size_bytes - whole_bytes)  # fmt: skip


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
    """Return the ``start_ms`` of the last line; 0 where that cannot be read."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        lines = file.read().splitlines()
    try:
        return int(json.loads(lines[-1])["start_ms"])
    except (IndexError, KeyError, TypeError, ValueError):
        return 0
