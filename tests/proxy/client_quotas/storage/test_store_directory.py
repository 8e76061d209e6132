"""A store on a disk: what was acknowledged is there afterwards, whole, whatever happened in between."""

import errno
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from threading import Thread
from typing import Final

import pytest

from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change, apply
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule
from kafka_quota_proxy.proxy.client_quotas.storage import store_directory as directory
from kafka_quota_proxy.proxy.client_quotas.storage.journal import ForeignStoreError, Restored
from kafka_quota_proxy.proxy.client_quotas.storage.record import write_line
from kafka_quota_proxy.proxy.client_quotas.storage.store_directory import NotTakenBackError, StoreDirectory

Rules = dict[Entity, StoredRule]

# Each is two changes, so that half of one would show.
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
def opened(path: Path) -> Iterator[tuple[StoreDirectory, Restored]]:
    store = StoreDirectory(path)
    try:
        yield store, store.open()
    finally:
        store.close()


def names(path: Path) -> list[str]:
    return sorted(each.name for each in path.iterdir() if each.name != "lock")


def name(number: int, kind: str) -> str:
    return f"{number:020}.{kind}"


def fill(path: Path, until: int, *, snapshots: tuple[int, ...] = ()) -> None:
    """Append the first so many of CHANGES, with snapshots behind some of them."""
    with opened(path) as (store, restored):
        for number in range(restored.number, until):
            store.append(CHANGES[number])
            if number + 1 in snapshots:
                store.write_snapshot(store.begin_snapshot(), rules_after(number + 1))


@pytest.fixture
def fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for no disk: for tests in which only what a process has written counts."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def test_what_was_appended_is_there_the_next_time(tmp_path: Path) -> None:
    path = tmp_path / "not" / "there" / "yet"
    for count in (0, 3, 3, 10):
        fill(path, count)

        with opened(path) as (_, restored):
            assert (restored.rules, restored.number) == (rules_after(count), count)
            assert restored.faults == ()
    assert names(path) == [name(0, "journal")]


def test_what_is_acknowledged_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes of a file before it has its name or somebody is told, and its name before it is written to."""
    on_disk: dict[str, int | list[str]] = {}

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        on_disk[path.name] = names(path) if path.is_dir() else path.stat().st_size

    monkeypatch.setattr(os, "fsync", fsync)
    with opened(tmp_path) as (store, _):
        assert on_disk[tmp_path.name] == [name(0, "journal")]
        for number, changes in enumerate(CHANGES[:3]):
            store.append(changes)
            assert on_disk[name(0, "journal")] == (tmp_path / name(0, "journal")).stat().st_size, number
        begun = store.begin_snapshot()
        assert on_disk[tmp_path.name] == names(tmp_path) == [name(0, "journal"), name(3, "journal")]
        store.write_snapshot(begun, rules_after(3))
    assert on_disk[tmp_path.name] == [name(0, "journal"), name(3, "journal"), name(3, "snapshot")]
    for kind in ("journal", "snapshot"):
        assert on_disk[f"{name(3, kind)}.part"] == (tmp_path / name(3, kind)).stat().st_size


def test_the_name_of_a_directory_that_was_made_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_disk: set[Path] = set()
    monkeypatch.setattr(os, "fsync", lambda fd: on_disk.add(Path(f"/proc/self/fd/{fd}").readlink()))
    path = tmp_path / "not" / "there" / "yet"

    with opened(path):
        assert {path, *path.parents[:3]} <= on_disk
    assert path.parents[2] == tmp_path
    assert tmp_path.parent not in on_disk


def test_of_snapshots_the_last_two_are_kept_and_the_journals_behind_them(tmp_path: Path) -> None:
    fill(tmp_path, 40, snapshots=(10,))
    assert names(tmp_path) == [name(0, "journal"), name(10, "journal"), name(10, "snapshot")]

    fill(tmp_path, 60, snapshots=(45, 50))

    assert names(tmp_path) == [name(number, kind) for number in (45, 50) for kind in ("journal", "snapshot")]
    with opened(tmp_path) as (_, restored):
        assert (restored.rules, restored.number, restored.faults) == (rules_after(60), 60, ())


def test_a_snapshot_may_be_written_while_changes_go_on(tmp_path: Path) -> None:
    with opened(tmp_path) as (store, _):
        for number, changes in enumerate(CHANGES[:30]):
            store.append(changes)
            if number == 9:
                begun = store.begin_snapshot()
            if number == 19:
                store.write_snapshot(begun, rules_after(10))

    with opened(tmp_path) as (_, restored):
        assert (restored.rules, restored.number) == (rules_after(30), 30)


def test_who_looks_at_a_store_that_is_written_to_sees_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of which he has seen the names may be gone when he reads them."""
    fill(tmp_path, 30, snapshots=(10, 20))
    read_bytes = Path.read_bytes
    turns = iter((1,))

    def read(path: Path) -> bytes:
        if path.name == name(10, "journal"):
            for _ in turns:
                fill(tmp_path, 40, snapshots=(35,))
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", read)
    restored = StoreDirectory(tmp_path).look()

    assert not (tmp_path / name(10, "journal")).exists()
    assert (restored.rules, restored.number, restored.faults) == (rules_after(40), 40, ())


def test_a_snapshot_is_due_when_it_is_shorter_than_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "_LEAST_JOURNAL_BYTES", 500)
    with opened(tmp_path) as (store, _):
        assert not store.is_snapshot_due
        for changes in CHANGES[:10]:
            store.append(changes)
        assert store.is_snapshot_due
        store.write_snapshot(store.begin_snapshot(), rules_after(10))
        assert not store.is_snapshot_due
    with opened(tmp_path) as (store, _):
        large = {Entity(str(number)): StoredRule(limits={"producer_byte_rate": 1.0}) for number in range(200)}
        store.write_snapshot(store.begin_snapshot(), large)
        for changes in CHANGES[:20]:
            store.append(changes)
        assert not store.is_snapshot_due


def test_the_store_is_not_let_go_while_a_snapshot_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = StoreDirectory(tmp_path)
    store.open()
    store.append(CHANGES[0])
    begun = store.begin_snapshot()
    closing = Thread(target=store.close)
    refusals = []

    def fsync(_: int) -> None:
        if not closing.ident:
            closing.start()
            closing.join(0.1)
            with pytest.raises(OSError, match="another process has the quota store") as refused:
                StoreDirectory(tmp_path).open()
            refusals.append(refused)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fsync)
        store.write_snapshot(begun, rules_after(1))
    closing.join()

    assert refusals
    written = names(tmp_path)
    assert name(1, "snapshot") in written
    # One that comes too late touches what may be another's by now no more.
    store.write_snapshot(7, rules_after(1))
    assert names(tmp_path) == written
    fill(tmp_path, 2)


def test_two_processes_do_not_share_a_store(tmp_path: Path) -> None:
    with opened(tmp_path) as (store, _):
        with pytest.raises(OSError, match="another process has the quota store"):
            StoreDirectory(tmp_path).open()
        store.append(CHANGES[0])
    fill(tmp_path, 2)


# -- damage


@pytest.mark.usefixtures("fast_disk")
def test_cut_anywhere_the_store_has_what_was_in_front_of_it_and_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path, 3)
    journal = tmp_path / name(0, "journal")
    data = journal.read_bytes()
    ends = [at + 1 for at, byte in enumerate(data) if byte == ord("\n")]
    for size in range(len(data)):
        for each in tmp_path.iterdir():
            each.unlink()
        journal.write_bytes(data[:size])
        whole = max(sum(end <= size for end in ends) - 1, 0)
        caplog.clear()

        with opened(tmp_path) as (store, restored):
            assert (restored.rules, restored.number) == (rules_after(whole), whole)
            # A line that was being written is none; a first line that is not whole never was.
            assert bool(restored.faults) == (size < ends[0])
            store.append(CHANGES[whole])

        told = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert bool(told) == (size < ends[0])
        with opened(tmp_path) as (_, restored):
            assert (restored.rules, restored.number, restored.faults) == (rules_after(whole + 1), whole + 1, ())


@pytest.mark.usefixtures("fast_disk")
def test_damaged_anywhere_the_store_says_where_and_keeps_the_file_for_people(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path, 3)
    journal = tmp_path / name(0, "journal")
    data = journal.read_bytes()
    ends = [at + 1 for at, byte in enumerate(data) if byte == ord("\n")]
    for at in (*range(0, len(data) - 1, 7), len(data) - 1):
        for each in tmp_path.iterdir():
            each.unlink()
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        journal.write_bytes(damaged)
        line = sum(end <= at for end in ends)
        whole = max(line - 1, 0)
        caplog.clear()

        with opened(tmp_path) as (store, restored):
            assert (restored.rules, restored.number) == (rules_after(whole), whole)
            assert [fault.offset for fault in restored.faults] == [[0, *ends][line]]
            store.append(CHANGES[whole])

        assert f"{name(0, 'journal')}, byte {[0, *ends][line]}" in caplog.text
        assert (tmp_path / f"{name(0, 'journal')}.damaged").read_bytes() == damaged
        with opened(tmp_path) as (_, restored):
            assert (restored.rules, restored.number, restored.faults) == (rules_after(whole + 1), whole + 1, ())


@pytest.mark.usefixtures("fast_disk")
def test_a_damaged_snapshot_costs_nothing_while_there_is_an_older_one(tmp_path: Path) -> None:
    fill(tmp_path, 30, snapshots=(10, 20))
    snapshot = tmp_path / name(20, "snapshot")
    data = snapshot.read_bytes()
    for size in (0, 10, len(data) - 1):
        snapshot.write_bytes(data[:size])

        with opened(tmp_path) as (_, restored):
            assert (restored.rules, restored.number) == (rules_after(30), 30)
            assert [fault.file for fault in restored.faults] == [snapshot.name]
        # The rules are in a snapshot of their own now; back to how it was.
        for each in tmp_path.iterdir():
            each.unlink()
        fill(tmp_path, 30, snapshots=(10, 20))


@pytest.mark.usefixtures("fast_disk")
def test_a_damaged_snapshot_of_the_last_change_is_kept_and_a_good_one_takes_its_name(tmp_path: Path) -> None:
    fill(tmp_path, 20, snapshots=(10, 20))
    snapshot, older = (tmp_path / name(number, "snapshot") for number in (20, 10))
    damaged = snapshot.read_bytes()[:-9] + b"damaged!\n"
    snapshot.write_bytes(damaged)
    with opened(tmp_path) as (_, restored):
        assert restored.number == 20

    assert (tmp_path / f"{snapshot.name}.damaged").read_bytes() == damaged
    # The new one leads there alone.
    older.write_bytes(b"damaged\n")
    with opened(tmp_path) as (_, restored):
        assert (restored.rules, restored.number, restored.faults) == (rules_after(20), 20, ())


def test_behind_damage_the_store_goes_on_in_files_that_need_none_of_the_old(tmp_path: Path) -> None:
    fill(tmp_path, 10, snapshots=(5,))
    oldest = tmp_path / name(0, "journal")
    oldest.write_bytes(oldest.read_bytes()[:-9] + b"damaged!\n")

    fill(tmp_path, 12)

    kept = [f"{oldest.name}.damaged", *(name(number, kind) for number in (5, 10) for kind in ("journal", "snapshot"))]
    assert names(tmp_path) == kept
    (tmp_path / name(5, "journal")).unlink()
    with opened(tmp_path) as (_, restored):
        assert (restored.rules, restored.number, restored.faults) == (rules_after(12), 12, ())


def test_files_that_are_set_aside_keep_the_earlier_ones(tmp_path: Path) -> None:
    for turn in range(3):
        (tmp_path / name(0, "journal")).write_bytes(b"damaged %d\n" % turn)
        with opened(tmp_path):
            pass
        for number in (0, 1):
            (tmp_path / name(number, "snapshot")).unlink(missing_ok=True)

    aside = [f"{name(0, 'journal')}.damaged{turn}" for turn in ("", ".1", ".2")]
    assert [(tmp_path / each).read_bytes() for each in aside] == [b"damaged %d\n" % turn for turn in range(3)]


def test_what_another_version_wrote_is_left_as_it_is(tmp_path: Path) -> None:
    newer, _ = write_line({"kafka-quota-store": 2, "file": "journal", "after": 0}, 0)
    (tmp_path / name(0, "journal")).write_bytes(newer)

    with pytest.raises(ForeignStoreError, match="version 2"), opened(tmp_path):
        pass

    assert names(tmp_path) == [name(0, "journal")]
    assert (tmp_path / name(0, "journal")).read_bytes() == newer


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    others = ["usage-p1-1.jsonl.part", "7.journal", "notes.txt", f"{name(7, 'journal')}.bak"]
    for other in others:
        (tmp_path / other).write_text("mine")
    (tmp_path / f"{name(7, 'snapshot')}.part").write_text("left by a crash")

    fill(tmp_path, 2)

    assert names(tmp_path) == sorted([*others, name(0, "journal")])


# -- failures and crashes


class CrashError(BaseException):
    """The process ends here."""


def play(path: Path) -> int:
    """Go through all that a store does; return how many changes were acknowledged. Failed ones are tried again once."""
    acknowledged = 0
    with suppress(OSError, CrashError), opened(path) as (store, restored):
        acknowledged = restored.number
        for number in range(restored.number, 12):
            for _ in range(2):
                with suppress(OSError):
                    store.append(CHANGES[number])
                    acknowledged = number + 1
                    break
            if acknowledged <= number:
                return acknowledged
            if number in (3, 7):
                with suppress(OSError):
                    store.write_snapshot(store.begin_snapshot(), rules_after(number + 1))
    return acknowledged


CALLS: Final = ("write", "fsync", "ftruncate", "open", "rename")


def failing(monkeypatch: pytest.MonkeyPatch, fails: Callable[[int], BaseException | None], *, half: bool) -> None:
    """Have calls of the system fail, by their number; with ``half`` a write does half of its work before.

    A descriptor is gone whatever its closing says, as in Linux. Where the process ends by it, nobody is told.
    """
    count = 0

    def patched(original: Callable[..., object], *, each: str) -> Callable[..., object]:
        def call(*arguments: object, **more: object) -> object:
            nonlocal count
            count += 1
            error = fails(count)
            if error is None:
                return original(*arguments, **more)
            if each == "write" and half:
                descriptor, data = arguments
                assert isinstance(data, memoryview)
                original(descriptor, data[: len(data) // 2])
            if each == "close":
                original(*arguments)
                if not isinstance(error, OSError):
                    return None
            raise error

        return call

    for each in (*CALLS, "close"):
        monkeypatch.setattr(os, each, patched(getattr(os, each), each=each))


def number_of_calls(path: Path) -> int:
    calls = 0

    def counting(count: int) -> None:
        nonlocal calls
        calls = count

    with pytest.MonkeyPatch.context() as monkeypatch:
        failing(monkeypatch, counting, half=False)
        assert play(path) == 12
    return calls


def full() -> OSError:
    return OSError(errno.ENOSPC, "no space left on device")


@pytest.mark.usefixtures("fast_disk")
@pytest.mark.parametrize("half", [False, True])
def test_whichever_call_of_the_system_fails_what_was_acknowledged_is_there(tmp_path: Path, half: bool) -> None:
    calls = number_of_calls(tmp_path / "first")
    for failed in range(1, calls + 1):
        path = tmp_path / f"{failed}"
        with pytest.MonkeyPatch.context() as monkeypatch:
            failing(monkeypatch, lambda count, failed=failed: full() if count == failed else None, half=half)  # type: ignore[misc]
            acknowledged = play(path)

        # The one that failed was tried again.
        assert acknowledged in (0, 12)
        with opened(path) as (_, restored):
            assert (restored.rules, restored.number, restored.faults) == (rules_after(acknowledged), acknowledged, ())


@pytest.mark.usefixtures("fast_disk")
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("fault", [full, CrashError])
def test_wherever_the_disk_fails_for_good_or_the_process_ends_what_was_acknowledged_is_there(
    tmp_path: Path, fault: Callable[[], BaseException], half: bool
) -> None:
    for failed in range(1, number_of_calls(tmp_path / "first") + 1):
        path = tmp_path / f"{failed}"
        with pytest.MonkeyPatch.context() as monkeypatch:
            failing(monkeypatch, lambda count, failed=failed: fault() if count >= failed else None, half=half)  # type: ignore[misc]
            acknowledged = play(path)

        with opened(path) as (_, restored):
            # One of which nobody was told may be there, whole: it could not be taken back.
            assert restored.number in (acknowledged, acknowledged + 1)
            assert (restored.rules, restored.faults) == (rules_after(restored.number), ())
        assert play(path) == 12
        with opened(path) as (_, restored):
            assert restored.rules == rules_after(12)


def test_a_change_that_failed_is_not_there_even_if_it_was_written_whole(tmp_path: Path) -> None:
    """After an fsync that failed nobody knows what is on the disk; the next change is the next one all the same."""
    with opened(tmp_path) as (store, _):
        store.append(CHANGES[0])
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(full()))
            monkeypatch.setattr(os, "ftruncate", lambda *_: (_ for _ in ()).throw(full()))
            with pytest.raises(OSError, match="no space"):
                store.append((Change(Entity("untold"), StoredRule(limits={"producer_byte_rate": 1.0})),))
        store.append(CHANGES[1])

    assert b"untold" in (tmp_path / name(0, "journal")).read_bytes()
    with opened(tmp_path) as (_, restored):
        assert (restored.rules, restored.number, restored.faults) == (rules_after(2), 2, ())


def test_what_the_closing_of_a_journal_says_is_of_no_concern(tmp_path: Path) -> None:
    """Its descriptor is gone all the same, and may be another file's by now."""
    other = tmp_path / "other"
    with opened(tmp_path / "store") as (store, _):
        store.append(CHANGES[0])
        close = os.close

        def failing_close(descriptor: int) -> None:
            close(descriptor)
            raise OSError(errno.EIO, "input/output error")

        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(os, "close", failing_close)
            with suppress(OSError):
                store.begin_snapshot()
        taken = [os.open(other, os.O_RDWR | os.O_CREAT) for _ in range(3)]
        store.append(CHANGES[1])
        for descriptor in taken:
            close(descriptor)

    assert other.read_bytes() == b""
    with opened(tmp_path / "store") as (_, restored):
        assert (restored.rules, restored.number) == (rules_after(2), 2)


def test_a_change_that_cannot_be_taken_back_is_told_as_such_whatever_its_journals_closing_says(tmp_path: Path) -> None:
    with opened(tmp_path) as (store, _):
        store.append(CHANGES[0])
        with pytest.MonkeyPatch.context() as monkeypatch:
            # Written whole, and everything behind that fails.
            failing(monkeypatch, lambda count: full() if count > 1 else None, half=False)
            with pytest.raises(NotTakenBackError):
                store.append(CHANGES[1])
    with opened(tmp_path) as (_, restored):
        assert (restored.rules, restored.number) == (rules_after(2), 2)


def test_a_change_that_failed_is_not_there_after_a_restart_either(tmp_path: Path) -> None:
    """What could be neither kept nor taken back has the next journal behind it at once, not with the next change."""
    with opened(tmp_path) as (store, _):
        store.append(CHANGES[0])
        failures = iter((full(),))

        def fsync(_: int) -> None:
            for failure in failures:
                raise failure

        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(os, "fsync", fsync)
            monkeypatch.setattr(os, "ftruncate", lambda *_: (_ for _ in ()).throw(full()))
            with pytest.raises(OSError, match="no space"):
                store.append((Change(Entity("untold"), StoredRule(limits={"producer_byte_rate": 1.0})),))

    assert b"untold" in (tmp_path / name(0, "journal")).read_bytes()
    with opened(tmp_path) as (_, restored):
        assert (restored.rules, restored.number, restored.faults) == (rules_after(1), 1, ())


_APPENDS_A_HUNDRED: Final = """
import sys
from pathlib import Path
from kafka_quota_proxy.proxy.client_quotas.storage.store_directory import NotTakenBackError, StoreDirectory
from tests.proxy.client_quotas.storage.test_store_directory import CHANGES, rules_after

store = StoreDirectory(Path(sys.argv[1]))
for number in range(store.open().number, 100):
    store.append(CHANGES[number])
    sys.stdout.write(".")
    sys.stdout.flush()
    if number % 10 == 9:
        store.write_snapshot(store.begin_snapshot(), rules_after(number + 1))
sys.stdin.read()
"""


def test_killed_in_a_hundred_changes_each_that_was_acknowledged_is_there_and_none_half(tmp_path: Path) -> None:
    random = Random(7)  # noqa: S311
    known = 0
    while known < 100:
        command = [sys.executable, "-c", _APPENDS_A_HUNDRED, str(tmp_path)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout
        acknowledged = known + len(process.stdout.read(min(random.randrange(10, 40), 100 - known)))
        process.kill()
        acknowledged += len(process.stdout.read())
        process.wait()
        process.stdout.close()
        assert process.stdin
        process.stdin.close()

        with opened(tmp_path) as (_, restored):
            assert restored.faults == ()
            assert acknowledged <= restored.number <= acknowledged + 1
            assert restored.rules == rules_after(restored.number)
        assert restored.number > known
        known = restored.number
