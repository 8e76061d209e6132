"""The disk under a store of quotas: real SQLite files, and what becomes of them when writes fail or machines do.

Two things differ from real files. A process that is killed leaves SQLite's log behind, as it is. And the disk of a
machine without power has only what SQLite had synced, which is what it has at the end of a transaction.
"""

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

# How a write fails. BEFORE: nothing was written. AFTER: all was written to the log, and only the sync has failed, so
# that the next process finds it there unless something overwrites it.
FULL: Final = "full"
BEFORE: Final = "before"
AFTER: Final = "after"

_FULL_SYNC: Final = 2
_SUFFIXES: Final = ("", "-wal")
_INDEX: Final = "-shm"
_ERRORS: Final = {
    FULL: (sqlite3.SQLITE_FULL, "database or disk is full"),
    BEFORE: (sqlite3.SQLITE_IOERR_WRITE, "disk I/O error"),
    AFTER: (sqlite3.SQLITE_IOERR_FSYNC, "disk I/O error"),
}
# The content of a database and of its log. None: there is no such file.
Image: TypeAlias = tuple[bytes | None, ...]
Statement: TypeAlias = tuple[str, Any, bool]
Connect: TypeAlias = Callable[[Path, str], sqlite3.Connection]


class StoreDisk:
    """The database files of one machine.

    Attributes:
        fault: How the next writes fail: FULL, BEFORE, AFTER, or "" if they do not.
        failures_left: How many further writes fail.
        slow_ms: How long a write takes now. 0: as fast as usual.
        synced: What of each database a loss of power leaves.
    """

    def __init__(self, random: Random) -> None:
        self.fault = ""
        self.failures_left = 0
        self.slow_ms = 0.0
        self.synced: dict[Path, Image] = {}
        self.random = random
        self._open: dict[StoreConnection, None] = {}
        # The databases with a transaction that has failed and is in their log nevertheless.
        self._ghosts: dict[Path, Image] = {}
        self._had_ghosts: dict[Path, None] = {}

    def heal(self) -> None:
        """Let all writes succeed at once."""
        self.fault, self.failures_left, self.slow_ms = "", 0, 0.0

    def take_failure(self) -> str:
        """Return how the write that is made now fails, or an empty string."""
        if not self.fault or not self.failures_left:
            return ""
        self.failures_left -= 1
        return self.fault

    def connect(self, path: Path, options: str, connect: Connect) -> "StoreConnection":
        """Open a database."""
        opened = StoreConnection(self, path, connect(path, options), is_writable="mode=rw" in options)
        self._open[opened] = None
        return opened

    def committed(self, connection: "StoreConnection") -> None:
        """A transaction is in the log, over all that has failed before."""
        self._ghosts.pop(connection.path, None)
        if connection.syncs():
            self.synced[connection.path] = _read(connection.path)

    def failed_to_sync(self, connection: "StoreConnection", statements: Sequence[Statement]) -> None:
        """A transaction was rolled back, and its end is in the log."""
        path = connection.path
        if path in self._ghosts and self.random.random() < 0.5:
            return  # the log has still what failed before
        ghost = path.with_name(f"{path.name}.ghost")
        _write(ghost, _read(path))
        copy = sqlite3.connect(ghost, isolation_level=None)
        copy.execute("BEGIN IMMEDIATE")
        for sql, values, is_many in statements:
            (copy.executemany if is_many else copy.execute)(sql, values)
        copy.execute("COMMIT")
        copy.close()
        self._ghosts[path] = _read(ghost)
        _remove(ghost)

    def closed(self, connection: "StoreConnection", close: Callable[[], None]) -> None:
        """Close a database in order, which moves the log into the database, unless the disk fails."""
        del self._open[connection]
        path = connection.path
        if not self.fault or not self.failures_left:
            close()
            if connection.is_writable:
                self._ghosts.pop(path, None)
                self.synced[path] = _read(path)
            return
        image = self._ghosts.pop(path, None) or _read(path)
        close()
        _write(path, image)

    def process_ended(self) -> None:
        """Leave the files as a killed process does."""
        self._had_ghosts.clear()
        for connection in tuple(self._open):
            path = connection.path
            if path in self._ghosts:
                self._had_ghosts[path] = None
            image = self._ghosts.pop(path, None) or _read(path)
            connection.abandon()
            _write(path, image)
        self._open.clear()

    def lose_power(self) -> None:
        """Leave only what was synced. Of a transaction that failed to sync, all or nothing may be there."""
        for path, image in self.synced.items():
            if path.exists() and not (path in self._had_ghosts and self.random.random() < 0.5):
                _write(path, image)


class StoreConnection:
    """A connection to a database, with the faults of its disk."""

    def __init__(self, disk: StoreDisk, path: Path, connection: sqlite3.Connection, *, is_writable: bool) -> None:
        self.path = path
        self.is_writable = is_writable
        self._disk = disk
        self._connection = connection
        self._statements: list[Statement] = []

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun."""
        return self._connection.in_transaction

    def syncs(self) -> bool:
        """Return whether the log is synced when a transaction ends."""
        ((level,),) = self._connection.execute("PRAGMA synchronous")
        return int(level) >= _FULL_SYNC

    def execute(self, sql: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        """Execute a statement.

        Raises:
            sqlite3.OperationalError: If it ends a transaction and the disk fails.
        """
        if sql == "COMMIT":
            return self._commit()
        if self.in_transaction:
            self._statements.append((sql, values, False))
        elif sql.startswith("BEGIN"):
            self._statements = []
        return self._connection.execute(sql, values)

    def executemany(self, sql: str, rows: Sequence[Sequence[object]]) -> sqlite3.Cursor:
        """Execute a statement for each row."""
        self._statements.append((sql, rows, True))
        return self._connection.executemany(sql, rows)

    def _commit(self) -> sqlite3.Cursor:
        failure = self._disk.take_failure()
        if not failure:
            cursor = self._connection.execute("COMMIT")
            self._disk.committed(self)
            return cursor
        if failure == AFTER:
            self._connection.rollback()
            self._disk.failed_to_sync(self, self._statements)
        elif self._disk.random.random() < 0.5:
            self._connection.rollback()  # SQLite does so by itself after some errors
        code, text = _ERRORS[failure]
        error = sqlite3.OperationalError(text)
        error.sqlite_errorcode = code
        raise error

    def rollback(self) -> None:
        """Take the transaction back."""
        self._connection.rollback()

    def close(self) -> None:
        """Close the connection."""
        self._disk.closed(self, self._connection.close)

    def abandon(self) -> None:
        """Give back what this process of the simulation has open."""
        self._connection.close()


def _read(path: Path) -> Image:
    files = (path.with_name(f"{path.name}{suffix}") for suffix in _SUFFIXES)
    return tuple(file.read_bytes() if file.exists() else None for file in files)


def _write(path: Path, image: Image) -> None:
    _remove(path)
    for suffix, content in zip(_SUFFIXES, image, strict=True):
        if content is not None:
            path.with_name(f"{path.name}{suffix}").write_bytes(content)


def _remove(path: Path) -> None:
    for suffix in (*_SUFFIXES, _INDEX):
        path.with_name(f"{path.name}{suffix}").unlink(missing_ok=True)
