"""Tests what ``check`` reports about the directory of a store."""

import os
from pathlib import Path

import pytest

from kafka_quota_proxy.proxy.cli.check import store_faults
from kafka_quota_proxy.proxy.rules.model import Entity
from tests.support.stores import damage, keep, keep_strange, set_version

ALICE, BOB = Entity(user="alice"), Entity(user="bob")


def faults(path: Path) -> list[str]:
    return list(store_faults(path))


def test_a_store_is_read_and_not_touched(tmp_path: Path) -> None:
    keep(tmp_path, ALICE, BOB)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    assert faults(tmp_path) == []
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_store_that_cannot_be_written_or_created_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(tmp_path, BOB)
    missing = tmp_path / "some" / "quotas.d"
    assert faults(missing) == []
    monkeypatch.setattr(os, "access", lambda *_: False)

    remedy = f"Permission denied for user {os.geteuid()}; give it to the user that runs the proxy"
    assert faults(tmp_path) == [f"{tmp_path} cannot be written: {remedy}"]
    assert faults(missing) == [f"{missing} cannot be created in {tmp_path}: {remedy}"]


def test_a_damaged_or_foreign_store_is_an_error(tmp_path: Path) -> None:
    keep(tmp_path, *(Entity(user=f"user-{number:04}") for number in range(1_000)))
    damage(tmp_path)

    (error,) = faults(tmp_path)
    assert error.startswith(f"{tmp_path}/quotas.db is damaged: ")
    assert error.endswith("; replace it with a backup, or move it away and start without its quotas")

    foreign, strange = tmp_path / "foreign", tmp_path / "strange"
    keep(foreign, ALICE)
    set_version(foreign, 2)
    keep_strange(strange, ALICE, BOB)
    for path in (foreign, strange):
        (error,) = faults(path)
        assert error.endswith("start the version that wrote it, or move it away")


def test_an_unreadable_store_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", fails)

    assert faults(tmp_path) == [f"{tmp_path} cannot be used: Permission denied"]
