"""Tests the reason and the remedy that are given for a path that cannot be written."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafka_quota_proxy.proxy.runtime.disk_access import directory_fault, file_fault, lock_file


def test_a_file_where_a_directory_is_needed_is_a_fault_and_the_reverse(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")

    assert (directory_fault(tmp_path), directory_fault(tmp_path / "a" / "b")) == (None, None)
    assert (file_fault(file), file_fault(tmp_path / "other")) == (None, None)
    assert directory_fault(file) == f"{file} is not a directory; name a directory, which may be missing"
    assert directory_fault(file / "a") == f"{file}/a cannot be created: {file} is not a directory; use another path"
    assert file_fault(tmp_path) == f"{tmp_path} is a directory; name a file in it"
    assert file_fault(tmp_path / "a" / "b") == (
        f"{tmp_path}/a/b cannot be created: {tmp_path}/a is not a directory; create it, or use another directory"
    )


@pytest.mark.parametrize("is_read_only", [True, False])
def test_a_path_without_write_permission_is_a_fault_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_read_only: bool
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_RDONLY if is_read_only else 0))

    why = (
        "it is on a read-only file system; mount it writable, or use another file system"
        if is_read_only
        else f"Permission denied for user {os.geteuid()}; give it to the user that runs the proxy"
    )
    assert directory_fault(tmp_path) == f"{tmp_path} cannot be written: {why}"
    assert directory_fault(tmp_path / "a") == f"{tmp_path}/a cannot be created in {tmp_path}: {why}"
    assert file_fault(file) == f"{file} cannot be written: {why}"
    assert file_fault(tmp_path / "a") == f"{tmp_path}/a cannot be created: {why}"


def test_a_path_that_cannot_be_read_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_dir", fails)

    assert directory_fault(tmp_path) == (
        f"{tmp_path} cannot be used: Permission denied; give it to the user that runs the proxy"
    )


def test_a_second_lock_is_refused_until_the_first_is_released(tmp_path: Path) -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    first = lock_file(tmp_path / "lock", taken="never said")
    before = open_files()
    with pytest.raises(OSError, match="another proxy writes there"):
        lock_file(tmp_path / "lock", taken="another proxy writes there")
    assert open_files() == before
    os.close(first)

    os.close(lock_file(tmp_path / "lock", taken="never said"))
    with pytest.raises(FileNotFoundError):
        lock_file(tmp_path / "nowhere" / "lock", taken="never said")
