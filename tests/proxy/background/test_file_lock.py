"""A lock file is one process's at a time."""

import os
from pathlib import Path

import pytest

from kafka_quota_proxy.proxy.background import file_lock


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_second_lock_is_refused_until_the_first_is_released(tmp_path: Path) -> None:
    first = file_lock.take(tmp_path / "lock", taken="never said")
    before = open_files()
    with pytest.raises(OSError, match="another proxy writes there"):
        file_lock.take(tmp_path / "lock", taken="another proxy writes there")
    assert open_files() == before
    os.close(first)

    os.close(file_lock.take(tmp_path / "lock", taken="never said"))


def test_a_lock_file_that_cannot_be_opened_is_another_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        file_lock.take(tmp_path / "nowhere" / "lock", taken="never said")
