"""Tests how the memory of this process is read. ``test_server`` tests the rest of ``sweeps``."""

from pathlib import Path

import pytest

from kafka_quota_proxy.proxy.server import sweeps
from kafka_quota_proxy.proxy.server.sweeps import resident_bytes

MIB = 1024 * 1024


def test_resident_bytes_grow_with_allocations() -> None:
    before = resident_bytes()

    held = b"x" * (64 * MIB)

    assert 60 * MIB < resident_bytes() - before < 80 * MIB
    assert len(held) == 64 * MIB


@pytest.mark.parametrize("text", ["", "12", "12 x"])
def test_resident_bytes_are_huge_if_the_system_does_not_report_them(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statm = tmp_path / "statm"
    monkeypatch.setattr(sweeps, "_STATM", statm)
    assert resident_bytes() > 2**60
    statm.write_text(text)

    assert resident_bytes() > 2**60
