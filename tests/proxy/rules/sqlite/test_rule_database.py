"""Tests a store in SQLite: acknowledged changes survive every failure, and each fault is reported."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest

from kafka_quota_proxy.proxy.rules.model import Change, Entity, StoredRule, apply
from kafka_quota_proxy.proxy.rules.source import UnusableSourceError
from kafka_quota_proxy.proxy.rules.sqlite import rule_database as module
from kafka_quota_proxy.proxy.rules.sqlite.rule_database import (
    RuleDatabase,
    UncertainWriteError,
    read_store,
)
from tests.support.stores import (
    DATABASE,
    damage,
    damage_header,
    keep,
    keep_strange,
    no_room_above,
    set_version,
    write_rules,
)

Rules = dict[Entity, StoredRule]

ALICE, BOB = Entity("alice"), Entity("bob")
RULE = StoredRule(limits={"producer_byte_rate": 5.0})
# Each request changes two entities, so that a request of which only half was stored is noticed.
CHANGES: Final = [
    tuple(
        Change(Entity(user), StoredRule(limits={"producer_byte_rate": number + 1.0}) if number % 7 else None)
        for user in (f"u{number % 5}", "both")
    )
    for number in range(100)
]


def rules_after(count: int) -> Rules:
    rules: Rules = {}
    for changes in CHANGES[:count]:
        apply(rules, changes)
    return rules


@contextmanager
def opened(path: Path) -> Iterator[tuple[RuleDatabase, Rules]]:
    database = RuleDatabase(path)
    try:
        yield database, database.open()
    finally:
        database.close()


def contents(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.iterdir() if each.name != "lock"}


def names(path: Path) -> list[str]:
    return sorted(contents(path))


def test_rules_keep_the_order_in_which_their_entities_were_first_set(tmp_path: Path) -> None:
    zoe = Entity("zoe")
    write_rules(tmp_path, [Change(zoe, RULE), Change(BOB, RULE)], [Change(ALICE, RULE)], [Change(zoe, RULE)])
    assert list(read_store(tmp_path)) == [zoe, BOB, ALICE]

    write_rules(tmp_path, [Change(zoe, None)], [Change(zoe, RULE)])
    assert list(read_store(tmp_path)) == [BOB, ALICE, zoe]


def test_each_change_is_synced_before_it_is_acknowledged(tmp_path: Path) -> None:
    with opened(tmp_path) as (database, _):
        database.write(CHANGES[0])

        assert database._connection is not None
        assert database._connection.execute("PRAGMA synchronous").fetchone() == (2,)  # 2 means FULL
        assert database._connection.execute("PRAGMA journal_mode").fetchone() == (b"wal",)


def test_name_of_a_new_directory_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[Path] = set()
    monkeypatch.setattr(os, "fsync", lambda fd: synced.add(Path(f"/proc/self/fd/{fd}").readlink()))
    path = tmp_path / "not" / "there" / "yet"

    with opened(path):
        assert {path, *path.parents[:3]} <= synced
    assert path.parents[2] == tmp_path


def test_files_are_not_readable_by_everyone(tmp_path: Path) -> None:
    with opened(tmp_path) as (database, _):
        database.write(CHANGES[0])

        assert {name: (tmp_path / name).stat().st_mode & 0o777 for name in names(tmp_path)} == {
            f"{DATABASE}{suffix}": 0o640 & ~_umask() for suffix in ("", "-shm", "-wal")
        }


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


# -- more than one process


def test_second_process_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as (database, _):
        with pytest.raises(OSError, match="another process uses the quota store"):
            RuleDatabase(tmp_path).open()
        database.write(CHANGES[0])
    write_rules(tmp_path, CHANGES[1])


def test_store_of_a_running_proxy_can_be_read_and_is_not_held_up(tmp_path: Path) -> None:
    with opened(tmp_path) as (database, _):
        for count in range(1, 20):
            database.write(CHANGES[count - 1])
            assert read_store(tmp_path) == rules_after(count)
        reader = module._connect(tmp_path / DATABASE, "?mode=ro")
        rows = reader.execute("SELECT entity FROM rules")
        next(rows)
        database.write(CHANGES[19])
        reader.close()


def test_write_while_another_program_writes_is_refused_and_succeeds_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = module._connect

    def impatient(path: Path, options: str = "?mode=rw") -> sqlite3.Connection:
        connection = connect(path, options)
        connection.execute("PRAGMA busy_timeout = 10")
        return connection

    monkeypatch.setattr(module, "_connect", impatient)
    with opened(tmp_path) as (database, _):
        other = connect(tmp_path / DATABASE)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(OSError, match="database is locked"):
            database.write(CHANGES[0])
        other.execute("COMMIT")
        other.close()
        database.write(CHANGES[0])
    assert read_store(tmp_path) == rules_after(1)


# -- databases that cannot be read


def _other_version(path: Path) -> None:
    set_version(path, 2)


def _empty(path: Path) -> None:
    (path / DATABASE).write_bytes(b"")


def _no_database(path: Path) -> None:
    (path / DATABASE).write_bytes(b"quotas: []\n" * 1_000)


def _cut(path: Path) -> None:
    (path / DATABASE).write_bytes((path / DATABASE).read_bytes()[:-4096])


def _other_table(path: Path) -> None:
    connection = sqlite3.connect(path / DATABASE)
    connection.execute("ALTER TABLE rules RENAME TO others")
    connection.close()


@pytest.mark.parametrize("harm", [_no_database, _cut, _other_table, damage, damage_header])
def test_damaged_database_is_refused_and_left_as_it_is(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    keep(tmp_path, *(Entity(f"user-{number}") for number in range(1_000)))
    harm(tmp_path)
    before = contents(tmp_path)

    message = r"quotas\.db is damaged: .*; replace it with a backup, or"
    with pytest.raises(UnusableSourceError, match=message):
        RuleDatabase(tmp_path).open()
    with pytest.raises(UnusableSourceError, match=message):
        read_store(tmp_path)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("harm", [_empty, _other_version])
def test_database_of_another_version_is_refused_and_left_as_it_is(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    keep(tmp_path, ALICE)
    harm(tmp_path)
    before = contents(tmp_path)

    with pytest.raises(UnusableSourceError, match=r"has version [02]; this program knows 1; start the version that"):
        RuleDatabase(tmp_path).open()
    assert contents(tmp_path) == before


def test_rule_that_this_version_does_not_know_is_refused(tmp_path: Path) -> None:
    keep_strange(tmp_path, ALICE)

    with pytest.raises(
        UnusableSourceError, match=r"quotas\.db, .*strange-0.*'Mars/Olympus' is not a known time zone.*; start"
    ):
        RuleDatabase(tmp_path).open()


def test_damage_that_is_found_while_writing_is_reported_and_counted(tmp_path: Path) -> None:
    with opened(tmp_path) as (database, _):
        database.write(CHANGES[0])
        connection = FailingConnection(database._connection, _corrupt)
        database._connection = connection  # type: ignore[assignment]
        with pytest.raises(UncertainWriteError, match="made up"):
            database.write(CHANGES[1])
        assert database.damaged_files == 1


def _corrupt() -> sqlite3.Error:
    return _error(sqlite3.SQLITE_CORRUPT)


def test_log_without_its_database_is_set_aside(tmp_path: Path) -> None:
    """Otherwise SQLite would apply the write-ahead log of the old database to the new one."""
    with opened(tmp_path) as (database, _):
        database.write(CHANGES[0])
        log = (tmp_path / f"{DATABASE}-wal").read_bytes()
    (tmp_path / DATABASE).unlink()
    (tmp_path / f"{DATABASE}-wal").write_bytes(log)

    with opened(tmp_path) as (_, stored):
        assert stored == {}
    assert read_store(tmp_path) == {}
    assert (tmp_path / f"{DATABASE}-wal.damaged").read_bytes() == log


# -- failures and crashes


# The number of changes in a complete store. More changes would only repeat the same calls.
ALL: Final = 4


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """Return a directory in memory if possible. On a disk, these tests would mostly wait for writes."""
    shared = Path("/dev/shm")  # noqa: S108
    with TemporaryDirectory(dir=shared if shared.is_dir() else None) as directory:
        yield Path(directory)


class CrashError(BaseException):
    """Simulates the end of the process."""


def _error(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("made up")
    error.sqlite_errorcode = code
    return error


class FailingConnection:
    """A connection to SQLite. Before each statement it raises the error that ``fails`` returns, if any."""

    def __init__(self, connection: object, fails: Callable[[], BaseException | None]) -> None:
        self._connection: Any = connection
        self._fails = fails

    def execute(self, *arguments: object) -> object:
        return self._call("execute", *arguments)

    def executemany(self, *arguments: object) -> object:
        return self._call("executemany", *arguments)

    def rollback(self) -> object:
        return self._call("rollback")

    def close(self) -> None:
        self._connection.close()

    @property
    def in_transaction(self) -> bool:
        return bool(self._connection.in_transaction)

    def _call(self, name: str, *arguments: object) -> object:
        error = self._fails()
        if error is not None:
            raise error
        return getattr(self._connection, name)(*arguments)


@contextmanager
def failing(fails: Callable[[int], BaseException | None]) -> Iterator[None]:
    """Count SQL statements and system calls. A call raises the error that ``fails`` returns for its number, if any."""
    count = 0

    def fault(*, is_sql: bool) -> BaseException | None:
        nonlocal count
        count += 1
        error = fails(count)
        return _error(sqlite3.SQLITE_IOERR) if is_sql and isinstance(error, OSError) else error

    connect = module._connect

    def connect_to(path: Path, options: str = "?mode=rw") -> object:
        return FailingConnection(connect(path, options), lambda: fault(is_sql=True))

    def patched(original: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **more: object) -> object:
            error = fault(is_sql=False)
            if error is not None:
                raise error
            return original(*arguments, **more)

        return call

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(module, "_connect", connect_to)
        for name in ("fsync", "rename", "unlink"):
            monkeypatch.setattr(os, name, patched(getattr(os, name)))
        yield


def play(path: Path) -> int:
    """Open a store and write changes. Return how many were acknowledged. A failed change is tried twice."""
    acknowledged = 0
    with suppress(OSError, UnusableSourceError, CrashError), opened(path) as (database, stored):
        acknowledged = next(count for count in range(ALL + 1) if rules_after(count) == stored)
        for number in range(acknowledged, ALL):
            for _ in range(2):
                with suppress(OSError):
                    database.write(CHANGES[number])
                    acknowledged = number + 1
                    break
            if acknowledged <= number:
                return acknowledged
    return acknowledged


def number_of_calls(path: Path) -> int:
    calls = 0

    def counting(count: int) -> None:
        nonlocal calls
        calls = count

    with failing(counting):
        assert play(path) == ALL
    return calls


def test_acknowledged_changes_are_there_whichever_call_fails_once(memory_path: Path) -> None:
    for failed in range(1, number_of_calls(memory_path / "first") + 1):
        path = memory_path / f"{failed}"
        with failing(lambda count, failed=failed: OSError(5, "made up") if count == failed else None):  # type: ignore[misc]
            acknowledged = play(path)

        # Either the store could not be opened, or the failed change was written at the second attempt.
        assert acknowledged in (0, ALL), failed
        assert play(path) == ALL, failed


@pytest.mark.parametrize("fault", [OSError(5, "made up"), CrashError()])
def test_acknowledged_changes_are_there_when_the_disk_fails_for_good_or_the_process_ends(
    memory_path: Path, fault: BaseException
) -> None:
    for failed in range(1, number_of_calls(memory_path / "first") + 1):
        path = memory_path / f"{failed}"
        with failing(lambda count, failed=failed: fault if count >= failed else None):  # type: ignore[misc]
            acknowledged = play(path)

        with opened(path) as (_, stored):
            assert stored == rules_after(acknowledged), failed
        assert play(path) == ALL, failed


def test_change_that_a_full_disk_refuses_is_not_there(tmp_path: Path) -> None:
    many = [Change(Entity(f"user-{number}"), RULE) for number in range(1_000)]
    with opened(tmp_path) as (database, _):
        database.write(CHANGES[0])
        assert database._connection is not None
        database._connection.execute("PRAGMA max_page_count = 3")
        with pytest.raises(OSError, match="database or disk is full") as full:
            database.write(many)
        assert not isinstance(full.value, UncertainWriteError)
        database.write(CHANGES[1])
        database._connection.execute("PRAGMA max_page_count = 1000000")
        database.write(many)
    assert read_store(tmp_path) == {**rules_after(2), **dict(many)}


def test_acknowledged_changes_are_there_wherever_a_write_is_cut(memory_path: Path) -> None:
    """The test limits the size of SQLite's log, and copies the store as a crash would leave it."""
    for more_bytes in range(0, 13_000, 900):
        path, crashed = memory_path / f"{more_bytes}", memory_path / f"{more_bytes}-crashed"
        with opened(path) as (database, _):
            for changes in CHANGES[:3]:
                database.write(changes)
            with no_room_above(database.log_bytes + more_bytes):
                acknowledged = 3
                with suppress(OSError):
                    database.write(CHANGES[3])
                    acknowledged = 4
            shutil.copytree(path, crashed)
            database.write(CHANGES[acknowledged])

        assert read_store(crashed) == rules_after(acknowledged), more_bytes
        with opened(crashed) as (_, stored):
            assert stored == rules_after(acknowledged), more_bytes
        assert read_store(path) == rules_after(acknowledged + 1), more_bytes


def test_log_that_lost_its_end_has_only_whole_changes(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with opened(store) as (database, _):
        for changes in CHANGES[:5]:
            database.write(changes)
        log = (store / f"{DATABASE}-wal").read_bytes()
        for size in range(0, len(log) + 1, 500):
            crashed = tmp_path / f"{size}"
            crashed.mkdir()
            shutil.copy(store / DATABASE, crashed)
            (crashed / f"{DATABASE}-wal").write_bytes(log[:size])
            with opened(crashed) as (_, stored):
                assert stored in [rules_after(count) for count in range(6)], size
        assert stored != {}


_WRITES: Final = """
import sys
from pathlib import Path
from kafka_quota_proxy.proxy.rules.sqlite.rule_database import RuleDatabase
from tests.proxy.rules.sqlite.test_rule_database import CHANGES

database = RuleDatabase(Path(sys.argv[1]))
database.open()
for number in range(int(sys.argv[2]), len(CHANGES)):
    database.write(CHANGES[number])
    sys.stdout.write(".")
    sys.stdout.flush()
sys.stdin.read()
"""


def test_killed_process_leaves_each_acknowledged_change_and_no_half_one_and_no_lock(tmp_path: Path) -> None:
    random = Random(7)  # noqa: S311
    known = 0
    while known < 100:
        command = [sys.executable, "-c", _WRITES, str(tmp_path), str(known)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout
        acknowledged = known + len(process.stdout.read(min(random.randrange(25, 60), 100 - known)))
        process.kill()
        acknowledged += len(process.stdout.read())
        process.wait()
        process.stdout.close()
        assert process.stdin
        process.stdin.close()

        looked_at = read_store(tmp_path)
        with opened(tmp_path) as (_, stored):
            assert stored == looked_at
            count = next(count for count in (acknowledged, acknowledged + 1) if rules_after(count) == stored)
        assert count > known
        known = count
