"""Stores the quotas that clients set in an SQLite database. All calls block, so do not call them on the event loop.

    quotas.db        one table of rules, in the format of ``formats.stored_rule``
    quotas.db-wal    SQLite's log, with the changes that are not in quotas.db yet
    quotas.db-shm    SQLite's index of that log
    lock             a file that a running proxy keeps locked
    *.damaged        logs of a database that was removed, which are not used any more

A change is on the disk when ``write`` returns, because SQLite syncs its log before a transaction ends
(synchronous=FULL). The commands ``check`` and ``explain`` can read the database while a proxy uses it.
"""

import errno
import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from kafka_quota_proxy.proxy.rules.codec import (
    JsonFormError,
    decode_entity,
    decode_rule,
    encode_entity,
    encode_rule,
)
from kafka_quota_proxy.proxy.rules.model import Change, Entity, StoredRule
from kafka_quota_proxy.proxy.rules.source import UnusableSourceError
from kafka_quota_proxy.proxy.runtime.disk_access import lock_file

log = logging.getLogger(__name__)

VERSION: Final = 1
FILE: Final = "quotas.db"

_PART: Final = f"{FILE}.part"  # a new database that is being written
# The number keeps rules in the order in which their entities were first set.
_TABLE: Final = "CREATE TABLE rules (number INTEGER PRIMARY KEY, entity TEXT NOT NULL UNIQUE, rule TEXT NOT NULL)"
_UPSERT: Final = (
    "INSERT INTO rules (entity, rule) VALUES (?, ?) ON CONFLICT (entity) DO UPDATE SET rule = excluded.rule"
)
_THEN: Final = "start the version that wrote it, or move it away"
_RESTORE: Final = "replace it with a backup, or move it away and start without its quotas"
# SQLite's errors for a file that is damaged, or that another program wrote.
_DAMAGE: Final = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)
_ERRNO: Final = {
    sqlite3.SQLITE_BUSY: errno.EAGAIN,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_READONLY: errno.EROFS,
}


class UncertainWriteError(OSError):
    """Raised if changes of quotas could not be written, but may still appear in the database after a restart."""


def read_store(directory: Path) -> dict[Entity, StoredRule]:
    """Return the stored quotas of a directory without changing any file. A running proxy may be using the directory.

    Raises:
        OSError: The files cannot be read.
        UnusableSourceError: The files are damaged, or this version does not understand them.
    """
    path = directory / FILE
    if not path.exists():
        return {}
    # If there is no log, no process changes the database. As "immutable" SQLite then reads it without creating a log.
    mode = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    with _errors_translated(path), closing(_connect(path, f"?{mode}")) as connection:
        return _read(connection, path)


class RuleDatabase:
    """The SQLite database in which one proxy stores rules.

    Call ``open`` first and ``close`` last, all in the same thread.

    Attributes:
        damaged_files: The number of files that were found damaged, for metrics.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / FILE
        self._lock = -1
        self._connection: sqlite3.Connection | None = None
        self.damaged_files = 0

    def open(self) -> dict[Entity, StoredRule]:
        """Lock the directory, create the database if there is none, and return all stored rules.

        Raises:
            OSError: The directory or its files cannot be used, or another process has locked the directory.
            UnusableSourceError: The files are damaged, or this version does not understand them.
        """
        _make(self._directory)
        taken = f"another process uses the quota store in {self._directory}; give each proxy its own directory"
        self._lock = lock_file(self._directory / "lock", taken=taken)
        rules = read_store(self._directory)
        if not self._path.exists():
            # An old log must not stay, because SQLite would use it for the new database.
            self._set_aside(_files_of(self._path))
            with _errors_translated(self._path):
                self._create()
        return rules

    @property
    def log_bytes(self) -> int:
        """The size of SQLite's log, for metrics. 0 if there is none."""
        try:
            return self._path.with_name(f"{FILE}-wal").stat().st_size
        except OSError:
            return 0

    def write(self, changes: Iterable[Change]) -> None:
        """Write all of ``changes``, or none of them. After an error, ``write`` may be called again.

        Raises:
            OSError: No change is written.
            UncertainWriteError: The write failed, but the changes may be in the database after a restart.
        """
        rules = dict(changes)
        try:
            if self._connection is None:
                # Only now and not in ``open``, so that a proxy can also start on a full disk.
                self._connection = _connect(self._path)
            _write(self._connection, rules)
        except sqlite3.Error as error:
            self._take_back(error)

    def close(self) -> None:
        """Close the database and unlock its directory."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def _create(self) -> None:
        """Create a database file without rules.

        The file is written under another name, and gets its own once it is complete.
        """
        part = self._directory / _PART
        for left_by_a_crash in _files_of(part):
            left_by_a_crash.unlink()
        os.close(os.open(part, os.O_CREAT | os.O_CLOEXEC, 0o640))  # SQLite gives its other files the same mode
        with closing(_connect(part)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(_TABLE)
            _write(connection, {})
        part.rename(self._path)
        _sync(self._directory)

    def _take_back(self, error: sqlite3.Error) -> None:
        """Undo a failed write. Without this, SQLite could find the changes in its log after a restart and apply them.

        Raise ``error`` as an ``OSError``, or as an ``UncertainWriteError`` if the write cannot be undone.
        """
        code = _primary_code(error)
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            self.damaged_files = 1
        connection, failure = self._connection, _as_os_error(error)
        if connection is None:
            raise failure from error
        try:
            if connection.in_transaction:
                connection.rollback()
            # If only the sync failed, the change is in the log and would be found after a restart. An empty transaction
            # overwrites it. This is not needed on a full disk, which has not stored the end of the change.
            if code != sqlite3.SQLITE_FULL:
                _write(connection, {})
        except sqlite3.Error:
            raise UncertainWriteError(failure.errno, failure.strerror) from error
        raise failure from error

    def _set_aside(self, paths: Iterable[Path]) -> None:
        for path in sorted(paths):
            aside, turn = path.with_name(f"{path.name}.damaged"), 0
            while aside.exists():
                turn += 1
                aside = path.with_name(f"{path.name}.damaged.{turn}")
            path.rename(aside)
            log.warning("%s is kept as %s", path, aside.name)
            _sync(self._directory)


# -- SQL


def _connect(path: Path, options: str = "?mode=rw") -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}{options}", uri=True, isolation_level=None, check_same_thread=False
    )
    connection.text_factory = bytes  # because damaged text may not be UTF-8
    return connection


def _read(connection: sqlite3.Connection, path: Path) -> dict[Entity, StoredRule]:
    ((version,),) = connection.execute("PRAGMA user_version")
    if version != VERSION:
        raise UnusableSourceError(f"{path} has version {version}; this program knows {VERSION}; {_THEN}")
    ((found,),) = connection.execute("PRAGMA quick_check(1)")
    if found != b"ok":
        error = sqlite3.DatabaseError(found.decode(errors="replace").rpartition("\n")[2])
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error
    rules: dict[Entity, StoredRule] = {}
    for entity, rule in connection.execute("SELECT entity, rule FROM rules ORDER BY number"):
        try:
            key = decode_entity(entity)
            rules[key] = decode_rule(key, rule)
        except JsonFormError as error:
            shown = entity.decode(errors="backslashreplace")
            raise UnusableSourceError(f"{path}, {shown}: {error}; {_THEN}") from None
    return rules


def _write(connection: sqlite3.Connection, rules: Mapping[Entity, StoredRule | None]) -> None:
    """Write rules in one transaction. A value of None deletes the rule of an entity. The transaction may be empty."""
    kept: list[tuple[str, str]] = []
    removed: list[tuple[str]] = []
    for entity, rule in rules.items():
        if rule is None:
            removed.append((encode_entity(entity),))
        else:
            kept.append((encode_entity(entity), encode_rule(rule)))
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.executemany(_UPSERT, kept)
    connection.executemany("DELETE FROM rules WHERE entity = ?", removed)
    connection.execute("COMMIT")


@contextmanager
def _errors_translated(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if _primary_code(error) in _DAMAGE:
            raise UnusableSourceError(f"{path} is damaged: {error}; {_RESTORE}") from error
        raise _as_os_error(error) from error


def _primary_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _as_os_error(error: sqlite3.Error) -> OSError:
    return OSError(_ERRNO.get(_primary_code(error), errno.EIO), str(error))


# -- files


def _files_of(database: Path) -> list[Path]:
    """Return the existing files that belong to an SQLite database: the database itself and SQLite's logs."""
    names = (database.with_name(f"{database.name}{suffix}") for suffix in ("", "-wal", "-shm", "-journal"))
    return [path for path in names if path.exists()]


def _make(directory: Path) -> None:
    """Create a directory and its missing parents, and sync the new directory entries to the disk."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    for path in missing:
        _sync(path.parent)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
