"""Tests that files have whole lines, also after a full disk, a crash or a removal."""

import errno
import json
import os
import resource
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import UsageFiles
from kafka_quota_proxy.proxy.usage import segments
from kafka_quota_proxy.proxy.usage.record import Batch, UsageCounts, UsageKey
from kafka_quota_proxy.proxy.usage.segments import Segments

START_MS = 1_767_225_600_000


def a_batch(number: int, records: int = 1) -> Batch:
    return Batch(
        "p1",
        START_MS + number * 1_000,
        1_000,
        tuple(
            (UsageKey(1, "produce", "alice", f"c-{index}"), UsageCounts(number, 1, 0, 0, True))
            for index in range(records)
        ),
    )


def opened(directory: Path, proxy: str = "p1", **settings: int | None) -> Segments:
    files = Segments(UsageFiles(directory=str(directory), **settings), proxy)  # type: ignore[arg-type]
    files.begin()
    return files


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if path.suffix != ".lock")


def amounts(directory: Path, pattern: str = "*.jsonl") -> list[int]:
    """Return the amount of each line. Raises an error for an incomplete line."""
    return [
        json.loads(line)["amount"]
        for path in sorted(directory.glob(pattern))
        for line in path.read_bytes().splitlines()
    ]


def test_a_file_has_its_final_name_once_it_is_complete(tmp_path: Path) -> None:
    files = opened(tmp_path)
    assert (names(tmp_path), files.rotate_from_ms) == ([], None)
    files.write(a_batch(1), now_ms=7_000)
    assert names(tmp_path) == [f"usage-p1-{START_MS + 1_000}.jsonl.part"]
    assert amounts(tmp_path, "*.part") == [1]
    assert files.rotate_from_ms == 7_000 + 300_000

    files.complete()

    assert names(tmp_path) == [f"usage-p1-{START_MS + 1_000}.jsonl"]
    assert amounts(tmp_path) == [1]
    assert files.rotate_from_ms is None
    files.end()


def test_the_oldest_files_above_the_bound_are_removed(tmp_path: Path) -> None:
    """Files of one start go in the order that they were written."""
    other = tmp_path / "usage-p2-1.jsonl"
    other.write_bytes(b"x" * 10_000)
    for turn in ("", ".1", ".2", ".10"):
        (tmp_path / f"usage-p1-5{turn}.jsonl").write_bytes(b"x" * 1_000)
    files = opened(tmp_path, rotate_size_bytes=1_024, retention_size_bytes=3_000)
    files.write(a_batch(0), now_ms=0)
    files.complete()
    assert {"usage-p1-5.2.jsonl", "usage-p1-5.10.jsonl"} < set(names(tmp_path))
    assert "usage-p1-5.1.jsonl" not in names(tmp_path)
    for number in range(1, 40):
        files.write(a_batch(number), now_ms=0)
    files.end()

    assert other.exists()
    own = sorted(tmp_path.glob("usage-p1-*"))
    assert sum(path.stat().st_size for path in own) <= 3_000
    assert amounts(tmp_path, "usage-p1-*")[-1] == 39


# -- a crash --


def test_a_leftover_of_a_crash_is_completed_without_its_cut_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    line = next(a_batch(1).lines())
    (tmp_path / "usage-p1-77.jsonl.part").write_bytes(line + b"\n" + line + b"\n" + line[:50])
    (tmp_path / "usage-p1-78.jsonl.part").write_bytes(line[:50])
    (tmp_path / "usage-p2-79.jsonl.part").write_bytes(line[:50])

    opened(tmp_path).end()

    assert names(tmp_path) == ["usage-p1-77.jsonl", "usage-p2-79.jsonl.part"]
    assert amounts(tmp_path) == [1, 1]
    assert f"kept {2 * len(line) + 2} bytes of whole lines, dropped 50 bytes of an incomplete one" in caplog.text
    assert "usage-p1-78.jsonl.part: a crash left it without a whole line (50 bytes)" in caplog.text


@pytest.mark.parametrize("fails", [False, True])
def test_a_leftover_is_on_the_disk_before_it_has_its_final_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    part = tmp_path / "usage-p1-77.jsonl.part"
    line = next(a_batch(1).lines())
    part.write_bytes(line + b"\n" + line[:50])
    synced: list[tuple[str, int]] = []

    def fsync(descriptor: int) -> None:
        if part.exists():
            synced.append((part.name, os.fstat(descriptor).st_size))
        if fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fsync)

    opened(tmp_path).end()

    assert synced == [(part.name, len(line) + 1)]
    assert amounts(tmp_path) == [1]
    assert ("may be incomplete after a crash of the system" in caplog.text) is fails


@given(cut=st.integers(0, 100_000), zeros=st.integers(0, 5_000))
def test_whole_lines_survive_a_cut_anywhere(tmp_path_factory: pytest.TempPathFactory, cut: int, zeros: int) -> None:
    """A crash of the system may leave zeros after the bytes that were written."""
    directory = tmp_path_factory.mktemp("usage")
    whole = b"".join(line + b"\n" for number in range(300) for line in a_batch(number).lines())
    (directory / "usage-p1-77.jsonl.part").write_bytes(whole[:cut] + b"\0" * zeros)

    opened(directory).end()

    left = b"".join(path.read_bytes() for path in directory.glob("*.jsonl"))
    assert left == whole[:cut][: whole[:cut].rfind(b"\n") + 1]
    assert not list(directory.glob("*.part"))


@pytest.mark.parametrize("content", [b"", b"\0\0\n", b"[]\n", b"{}\n", b'{"start_ms":"x"}\n'])
def test_a_faulty_last_line_has_no_start(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "usage-p1-5.jsonl").write_bytes(content)
    files = Segments(UsageFiles(directory=str(tmp_path)), "p1")

    assert files.begin() == 0
    files.end()


def test_second_of_two_processes_with_one_name_waits(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.write(a_batch(1), now_ms=0)
    second = Segments(UsageFiles(directory=str(tmp_path)), "p1")

    with pytest.raises(OSError, match=r"another process writes usage-p1-\*\.jsonl there"):
        second.begin()

    assert names(tmp_path) == [f"usage-p1-{START_MS + 1_000}.jsonl.part"]
    first.end()
    assert second.begin() == START_MS + 1_000
    second.end()


# -- no room --


class Disk:
    """Simulates a disk with ``free_bytes`` left. A write is cut where the disk is full."""

    def __init__(self, free_bytes: int) -> None:
        self.free_bytes = free_bytes
        self._write, self._ftruncate = os.write, os.ftruncate

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        some = memoryview(data)[: self.free_bytes]
        if not some:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.free_bytes -= len(some)
        return self._write(descriptor, some)

    def ftruncate(self, descriptor: int, size_bytes: int) -> None:
        self.free_bytes += os.fstat(descriptor).st_size - size_bytes
        self._ftruncate(descriptor, size_bytes)


@given(free_bytes=st.lists(st.integers(0, 3_000), max_size=10))
def test_on_a_full_disk_no_line_is_cut_lost_or_doubled(
    tmp_path_factory: pytest.TempPathFactory, free_bytes: list[int]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(0)
        patch.setattr(os, "write", disk.write)
        patch.setattr(os, "ftruncate", disk.ftruncate)
        patch.setattr(segments, "_CHUNK_BYTES", 500)
        directory = tmp_path_factory.mktemp("usage")
        files = opened(directory)
        batches = [a_batch(1, records=4), a_batch(2), a_batch(3, records=6)]
        for free in (*free_bytes, 100_000):
            disk.free_bytes = free
            try:
                while batches:
                    files.write(batches[0], now_ms=0)
                    del batches[0]
            except OSError:
                assert sum(len(path.read_bytes().splitlines()) for path in directory.glob("usage*")) == sum(
                    path.read_bytes().count(b"\n") for path in directory.glob("usage*")
                )
        files.end()

        assert batches == []
        assert sorted(amounts(directory)) == [1] * 4 + [2] + [3] * 6


def test_a_full_disk_does_not_create_file_after_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    disk = Disk(100)
    monkeypatch.setattr(os, "write", disk.write)
    monkeypatch.setattr(os, "ftruncate", disk.ftruncate)
    files = opened(tmp_path)
    for _ in range(5):
        with pytest.raises(OSError, match="No space left"):
            files.write(a_batch(1), now_ms=0)

    assert [path.stat().st_size for path in tmp_path.glob("usage-p1-*")] == [0]
    disk.free_bytes = 10_000
    files.write(a_batch(1), now_ms=0)
    files.end()
    assert amounts(tmp_path) == [1]


def test_file_above_the_size_limit_is_followed_by_the_next(tmp_path: Path) -> None:
    """Above RLIMIT_FSIZE a write fails with EFBIG. The file keeps its whole lines."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    files = opened(tmp_path)
    failures: list[int | None] = []
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, before[1]))
    try:
        for number in range(12):
            batch = a_batch(number)
            while True:
                try:
                    files.write(batch, now_ms=0)
                except OSError as error:
                    failures.append(error.errno)
                    continue
                break
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    files.end()

    assert failures == [errno.EFBIG] * 3
    assert amounts(tmp_path) == list(range(12))


def test_an_incomplete_line_is_cut_off_before_the_next_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = opened(tmp_path)
    files.write(a_batch(1), now_ms=0)
    disk = Disk(30)

    def fail(descriptor: int, size_bytes: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", disk.write)
        patch.setattr(os, "ftruncate", fail)
        with pytest.raises(OSError, match="Input/output"):
            files.write(a_batch(2), now_ms=0)
    files.write(a_batch(2), now_ms=0)
    files.end()

    assert amounts(tmp_path) == [1, 2]


@pytest.mark.parametrize("is_at_end", [False, True])
def test_a_removed_file_is_logged_and_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_at_end: bool
) -> None:
    files = opened(tmp_path)
    files.write(a_batch(1), now_ms=0)
    next(tmp_path.glob("*.part")).unlink()
    for number in () if is_at_end else (2, 3):
        files.write(a_batch(number), now_ms=0)
    files.end()

    assert amounts(tmp_path) == ([] if is_at_end else [3])
    assert "was removed while it was written" in caplog.text


def test_a_missing_directory_or_locks_are_retried_without_a_leak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    (tmp_path / "file").write_bytes(b"")
    files = Segments(UsageFiles(directory=str(tmp_path / "file" / "usage")), "p1")
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match=r"cannot be created: .*/file is not a directory"):
        files.begin()
    (tmp_path / "file").unlink()
    with monkeypatch.context() as patch:
        patch.setattr("fcntl.flock", refuse)
        with pytest.raises(OSError, match="No locks available"):
            files.begin()

    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert files.begin() == 0
    files.end()
