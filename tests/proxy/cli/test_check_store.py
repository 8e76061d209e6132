"""Tests what ``check`` reports about the directory of a store."""

import os
from pathlib import Path

import pytest

from kafka_quota_proxy.config.errors import Severity
from kafka_quota_proxy.config.model import QuotasFrom, Store
from kafka_quota_proxy.proxy.cli.check import store_faults
from kafka_quota_proxy.proxy.rules.model import Entity
from tests.support.stores import damage, keep, keep_strange, set_version

ALICE, BOB = Entity(user="alice"), Entity(user="bob")


def faults(path: Path, *, topic: QuotasFrom | None = None) -> list[tuple[str, Severity]]:
    return list(store_faults(Store(directory=str(path), topic=topic), path))


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
    assert faults(tmp_path) == [(f"{tmp_path} cannot be written: {remedy}", Severity.ERROR)]
    assert faults(missing) == [(f"{missing} cannot be created in {tmp_path}: {remedy}", Severity.ERROR)]


def test_a_damaged_or_foreign_store_is_an_error_and_such_a_copy_a_warning(tmp_path: Path) -> None:
    keep(tmp_path, *(Entity(user=f"user-{number:04}") for number in range(1_000)))
    damage(tmp_path)

    (own,), (of_topic,) = faults(tmp_path), faults(tmp_path, topic=QuotasFrom(topic="t"))

    assert own[0].startswith(f"{tmp_path}/quotas.db is damaged: ")
    assert own[0].endswith("; replace it with a backup, or move it away and start without its quotas")
    assert of_topic[0].endswith("; the proxy will set it aside when it starts")

    foreign = tmp_path / "foreign"
    keep(foreign, ALICE)
    set_version(foreign, 2)
    (own,), (of_topic,) = faults(foreign), faults(foreign, topic=QuotasFrom(topic="t"))
    assert (own[1], of_topic[1]) == (Severity.ERROR, Severity.WARNING)
    assert own[0].endswith("start the version that wrote it, or move it away")
    assert of_topic[0].endswith("the proxy will set it aside when it starts")


def test_copy_of_a_topic_is_read_as_the_proxy_reads_it(tmp_path: Path) -> None:
    database = keep_strange(tmp_path, ALICE, BOB)

    (own,), (of_topic,) = faults(tmp_path), faults(tmp_path, topic=QuotasFrom(topic="t"))

    assert own[0].endswith("start the version that wrote it, or move it away")
    assert of_topic[0].startswith(f"{database}, ")
    assert "Mars/Olympus" in of_topic[0]
    assert of_topic[0].endswith("; only that rule is left out")
    assert of_topic[1] is Severity.WARNING


def test_an_unreadable_store_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", fails)

    assert faults(tmp_path) == [(f"{tmp_path} cannot be used: Permission denied", Severity.ERROR)]
