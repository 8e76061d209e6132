"""A lock file is one process's at a time."""

import os
from pathlib import Path

import pytest

from kafka_quota_proxy.proxy.background import file_lock


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_who_comes_second_is_told_why_and_may_have_it_when_the_first_has_gone(tmp_path: Path) -> None:
    first = file_lock.take(tmp_path / "lock", taken="never said")
    before = open_files()
    with pytest.raises(OSError, match="another proxy writes there"):
        file_lock.take(tmp_path / "lock", taken="another proxy writes there")
    assert open_files() == before
    os.close(first)

    os.close(file_lock.take(tmp_path / "lock", taken="never said"))


def test_a_file_that_cannot_be_used_is_another_fault(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        file_lock.take(tmp_path / "nowhere" / "lock", taken="never said")
