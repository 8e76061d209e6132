"""A store on a disk: a directory of its own. Blocks; not for the loop.

    NUMBER.journal, NUMBER.snapshot     as ``journal`` has them; NUMBER: of the last change before
    *.part                              being written
    *.damaged, *.damaged.1 …            set aside when they were read, for people; nothing here reads them again
    lock                                held by the process that has the store

What was appended is on the disk, and stays there, whenever the process or the machine ends from then on.
"""

import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from time import sleep, time
from typing import Final

from kafka_quota_proxy.proxy.background import file_lock
from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule
from kafka_quota_proxy.proxy.client_quotas.storage.journal import (
    Fault,
    Journal,
    Lenience,
    Restored,
    Snapshot,
    begun_journal,
    journal_line,
    read_journal,
    read_snapshot,
    restore,
    snapshot_lines,
)

log = logging.getLogger(__name__)

_NAME: Final = re.compile(r"(\d{20})\.(journal|snapshot)")
_PART: Final = ".part"
_LEFT_PART: Final = re.compile(rf"{_NAME.pattern}\.part")
# A snapshot is due when the journal is longer than the last one, and than this.
_LEAST_JOURNAL_BYTES: Final = 1_048_576
# While this thread computes, the loop waits for the interpreter, half a millisecond each time.
_LINES_BETWEEN_RESTS: Final = 100
_REST_S: Final = 0.0005


class NotTakenBackError(OSError):
    """What could not be written may be there all the same, unless something is written behind it before a restart."""


class StoreDirectory:
    """The files of a store. ``open`` comes first, but for ``look``. All but ``write_snapshot`` are for one thread.

    Attributes:
        journal_bytes: Of the journal that is being written, its whole lines.
        snapshot_bytes: Of the newest snapshot.
        snapshot_at_s: When that was written, Unix time; None: there is none.
        damaged_files: How many were set aside when the store was opened.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = -1
        self._writing = Lock()  # of a snapshot: who has it is not closed
        self._file = -1  # the journal's; below 0: a new one is begun with the next change
        self._number = 0  # of the last change
        self._checksum = 0
        self.journal_bytes = 0
        self.snapshot_bytes = 0
        self.snapshot_at_s: float | None = None
        self.damaged_files = 0

    def open(self, *, is_lenient: bool = False) -> Restored:
        """Take possession of the store and read it. What is damaged is set aside, and told.

        ``is_lenient``: what is whole and not understood is set aside, too: see ``Lenience``.

        Raises:
            OSError: The directory cannot be used, or another process does.
            ForeignStoreError: It is of a program that writes what this one does not know; nothing was touched.
        """
        _make(self._directory)
        self._take_lock()
        for part in [path for path in self._directory.iterdir() if _LEFT_PART.fullmatch(path.name)]:
            part.unlink()
        restored = self._read(Lenience() if is_lenient else None)
        self._number = restored.number
        for fault in restored.faults:
            log.error("the quota store is damaged: %s/%s; what follows there is not used", self._directory, fault)
        if restored.damaged:
            # A damaged snapshot is of no use, and may have the name of the next one.
            self._set_aside(name for name in restored.damaged if _kind(name) == "snapshot")
            # What there is on its own before any journal goes, so that a crash in between leaves no less.
            self._put_snapshot(restored.number, restored.rules)
            self._set_aside(name for name in restored.damaged if _kind(name) == "journal")
            self.damaged_files = len(restored.damaged)
        if restored.last is None or restored.damaged:
            self._begin_journal()
        else:
            self._go_on(restored.last)
        return restored

    def begin_anew(self) -> None:
        """Set aside all that there is, and begin with nothing: after ``open`` has raised ``ForeignStoreError``.

        Raises:
            OSError: As of ``append``.
        """
        names = [_name(number, kind) for kind in ("journal", "snapshot") for number in self._numbers(kind)]
        self._set_aside(names)
        self.damaged_files = len(names)
        self.snapshot_bytes, self.snapshot_at_s = 0, None
        self._begin_journal()

    def look(self, *, is_lenient: bool = False) -> Restored:
        """Read the store as it is, and touch nothing; another process may have it. ``is_lenient``: as of ``open``.

        Raises:
            OSError: The directory cannot be read.
            ForeignStoreError: As of ``open``.
        """
        try:
            return self._read(Lenience() if is_lenient else None)
        except FileNotFoundError:
            # Whoever has it has written a snapshot, and removed what nobody needs any more.
            return self._read(Lenience() if is_lenient else None)

    def append(self, changes: Iterable[Change]) -> None:
        """Write down what is changed at once. After a failure it may be called again; nothing of it is there then.

        Raises:
            OSError: There is no room, or something else is wrong with the file or the directory.
            NotTakenBackError: Likewise, and nothing more can be written there at all: after a restart it may be there.
        """
        if self._file < 0:
            self._begin_journal()
        line, checksum = journal_line(self._number + 1, changes, self._checksum)
        try:
            _write_all(self._file, line)
            os.fsync(self._file)
        except OSError:
            # Whatever of it is there, a next journal begins before it: after a failed fsync nobody knows.
            with suppress(OSError):
                os.ftruncate(self._file, self.journal_bytes)
            self._close_journal()
            try:
                self._begin_journal()
            except OSError as error:
                raise NotTakenBackError(error.errno, error.strerror) from error
            raise
        self._number += 1
        self._checksum = checksum
        self.journal_bytes += len(line)

    @property
    def is_snapshot_due(self) -> bool:
        """Whether the journal is so long that a snapshot would be the shorter one to read."""
        return self.journal_bytes > max(_LEAST_JOURNAL_BYTES, self.snapshot_bytes)

    def begin_snapshot(self) -> int:
        """Go on in a new journal; return the number of the change as of which a snapshot is to be written.

        Raises:
            OSError: As of ``append``.
        """
        self._close_journal()
        self._begin_journal()
        return self._number

    def write_snapshot(self, number: int, rules: Mapping[Entity, StoredRule]) -> None:
        """Write a snapshot, and remove the files that nobody needs any more. May run in a thread of its own.

        Nothing is written once the store is closed: it may be another's.

        Args:
            number: What ``begin_snapshot`` returned.
            rules: As of then. They must not change meanwhile.

        Raises:
            OSError: As of ``append``; the files that there were are still there.
        """
        with self._writing:
            if self._lock >= 0:
                self._put_snapshot(number, rules)
                self._remove_old()

    def close(self) -> None:
        """Let go of everything, when the snapshot that is being written is."""
        self._close_journal()
        with self._writing:
            lock, self._lock = self._lock, -1
            _close(lock)

    # -- reading

    def _take_lock(self) -> None:
        told = f"another process has the quota store in {self._directory}; give each proxy a directory of its own"
        self._lock = file_lock.take(self._directory / "lock", taken=told)

    def _read(self, lenience: Lenience | None = None) -> Restored:
        snapshots: list[Snapshot | Fault] = []
        for number in reversed(self._numbers("snapshot")):
            name = _name(number, "snapshot")
            data = (self._directory / name).read_bytes()
            snapshots.append(read_snapshot(name, data, number, lenience))
            if isinstance(snapshots[-1], Snapshot):
                self.snapshot_bytes = len(data)
                self.snapshot_at_s = (self._directory / name).stat().st_mtime
                break
        journals = []
        for number in self._numbers("journal"):
            name = _name(number, "journal")
            journals.append(read_journal(name, (self._directory / name).read_bytes(), number, lenience))
        return restore(snapshots, journals) if lenience is None else lenience.restore(snapshots, journals)

    def _numbers(self, kind: str) -> Sequence[int]:
        found = (_NAME.fullmatch(path.name) for path in self._directory.iterdir())
        return sorted(int(match[1]) for match in found if match and match[2] == kind)

    def _set_aside(self, names: Iterable[str]) -> None:
        for name in names:
            aside, turn = self._directory / f"{name}.damaged", 0
            while aside.exists():
                turn += 1
                aside = self._directory / f"{name}.damaged.{turn}"
            (self._directory / name).rename(aside)
            log.error("%s is kept as %s", self._directory / name, aside.name)
            _sync(self._directory)

    def _go_on(self, journal: Journal) -> None:
        """Go on behind the last whole line of a journal."""
        if journal.after + len(journal.changes) != self._number:
            self._begin_journal()
            return
        self._file = os.open(self._directory / journal.file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        if journal.fault is not None:
            log.info("%s: the end of a change that nobody was told of is cut off", self._directory / journal.file)
            os.ftruncate(self._file, journal.size_bytes)
            os.fsync(self._file)
        self.journal_bytes, self._checksum = journal.size_bytes, journal.checksum

    # -- writing

    def _begin_journal(self) -> None:
        name = _name(self._number, "journal")
        line, checksum = begun_journal(self._number)
        self._put(name, [line])
        self._file = os.open(self._directory / name, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self.journal_bytes, self._checksum = len(line), checksum

    def _close_journal(self) -> None:
        file, self._file = self._file, -1
        _close(file)

    def _put_snapshot(self, number: int, rules: Mapping[Entity, StoredRule]) -> None:
        self.snapshot_bytes = self._put(_name(number, "snapshot"), snapshot_lines(number, rules))
        self.snapshot_at_s = time()

    def _put(self, name: str, lines: Iterable[bytes]) -> int:
        """Put a whole file there, on the disk before it has its name; return its size."""
        part = self._directory / f"{name}{_PART}"
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        try:
            size_bytes = 0
            for chunk in _chunks(lines):
                _write_all(descriptor, chunk)
                size_bytes += len(chunk)
            os.fsync(descriptor)
            part.rename(self._directory / name)
        except OSError:
            part.unlink(missing_ok=True)
            raise
        finally:
            _close(descriptor)
        _sync(self._directory)
        return size_bytes

    def _remove_old(self) -> None:
        """Remove what is older than the last snapshot but one."""
        kept = self._numbers("snapshot")[-2:]
        # One snapshot alone is as good as the first journal, which begins where there is nothing.
        oldest = kept[0] if len(kept) > 1 else 0
        for kind in ("journal", "snapshot"):
            for number in self._numbers(kind):
                if number < oldest:
                    (self._directory / _name(number, kind)).unlink(missing_ok=True)


def _name(number: int, kind: str) -> str:
    return f"{number:020}.{kind}"


def _kind(name: str) -> str:
    return name.rpartition(".")[2]


def _make(directory: Path) -> None:
    """Make a directory where there is none, with its name on the disk."""
    made = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    for path in made:
        _sync(path.parent)


def _sync(directory: Path) -> None:
    """Have the names in a directory on the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        _close(descriptor)


def _close(descriptor: int) -> None:
    """Close a file, if there is one. Its bytes are on the disk, and it is closed whatever is said: see close(2)."""
    if descriptor >= 0:
        with suppress(OSError):
            os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    view, written = memoryview(data), 0
    while written < len(data):
        written += os.write(descriptor, view[written:])


def _chunks(lines: Iterable[bytes]) -> Iterable[bytes]:
    """Join lines to pieces of some size, so that a call of the system is for many of them."""
    some: list[bytes] = []
    for line in lines:
        some.append(line)
        if len(some) == _LINES_BETWEEN_RESTS:
            yield b"".join(some)
            some = []
            sleep(_REST_S)
    yield b"".join(some)
