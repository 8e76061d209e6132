"""Tests the audit log file: lines are appended, a renamed file is replaced, and faults refuse no change."""

import os
from pathlib import Path

import pytest

from kafka_quota_proxy.proxy.rules.audit import AuditFile


def test_lines_are_appended_and_go_to_a_new_file_after_a_rename(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"1\n")
    file = AuditFile(path)
    file.open()

    file.append([b"2\n", b"3\n"], now_ms=0)
    path.rename(tmp_path / "a.jsonl.1")
    file.append([b"4\n"], now_ms=0)
    path.unlink()
    file.append([b"5\n"], now_ms=0)
    path.rename(tmp_path / "a.jsonl.2")
    path.write_bytes(b"made by who renamed it\n")
    file.append([b"6\n"], now_ms=0)
    file.close()

    assert (tmp_path / "a.jsonl.1").read_bytes() == b"1\n2\n3\n"
    assert (tmp_path / "a.jsonl.2").read_bytes() == b"5\n"
    assert path.read_bytes() == b"made by who renamed it\n6\n"
    assert (tmp_path / "a.jsonl.2").stat().st_mode & 0o777 == 0o640 & ~_umask()
    assert file.lost == 0


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_torn_line_stays_and_the_next_is_a_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"to')
    file = AuditFile(path)
    file.open()

    file.append([b"1\n"], now_ms=0)
    file.append([b"2\n"], now_ms=0)
    file.close()

    assert path.read_bytes() == b'{"to\n1\n2\n'


def test_full_disk_is_counted_and_logged_once_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, write = tmp_path / "a.jsonl", os.write

    def has_room_for_one(descriptor: int, data: bytes) -> int:
        if os.fstat(descriptor).st_size:
            raise OSError(28, "No space left on device")
        return write(descriptor, bytes(data[:1]))

    file = AuditFile(path)
    file.open()
    with monkeypatch.context() as full:
        full.setattr(os, "write", has_room_for_one)
        for now_ms in (0, 59_999, 60_000):
            file.append([b"12\n", b"34\n"], now_ms=now_ms)
    file.append([b"56\n"], now_ms=60_001)
    file.close()

    assert path.read_bytes() == b"1\n56\n"
    assert file.lost == 6
    assert caplog.text.count("No space left on device") == 2
    assert "quotas are still changed" in caplog.text


def test_error_of_close_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failed close, the descriptor may belong to another file, so it must not be closed again."""
    path, other, close = tmp_path / "a.jsonl", tmp_path / "other", os.close
    file = AuditFile(path)
    file.open()

    def fails(*_: object) -> int:
        raise OSError(28, "No space left on device")

    def failing_close(descriptor: int) -> None:
        close(descriptor)
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", fails)
        patched.setattr(os, "close", failing_close)
        file.append([b"1\n"], now_ms=0)
    descriptor = os.open(other, os.O_RDWR | os.O_CREAT)
    file.append([b"2\n"], now_ms=0)
    close(descriptor)
    file.close()

    assert (path.read_bytes(), other.read_bytes()) == (b"2\n", b"")
    assert file.lost == 1


def test_file_that_cannot_be_opened_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"cannot be created: .* is not a directory; create it, or use"):
        AuditFile(tmp_path / "none" / "a.jsonl").open()
