"""What the system says of this process's memory."""

from pathlib import Path

import pytest

from kafka_quota_proxy.proxy.server import memory
from kafka_quota_proxy.proxy.server.memory import resident_bytes

MIB = 1024 * 1024


def test_resident_bytes_grow_with_allocations() -> None:
    before = resident_bytes()

    held = b"x" * (64 * MIB)

    assert 60 * MIB < resident_bytes() - before < 80 * MIB
    assert len(held) == 64 * MIB


@pytest.mark.parametrize("text", ["", "12", "12 x"])
def test_where_the_system_says_nothing_it_is_more_than_anybody_has(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statm = tmp_path / "statm"
    monkeypatch.setattr(memory, "_STATM", statm)
    assert resident_bytes() > 2**60
    statm.write_text(text)

    assert resident_bytes() > 2**60
