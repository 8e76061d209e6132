"""Tests what ``check`` reports about the directory of a store."""

import os
from pathlib import Path

import pytest

from kafka_quota_proxy.config.model import IpRule, ProxyConfig, QuotaRule, QuotasFrom, Store
from kafka_quota_proxy.proxy.cli.check import StoreReport, report_on
from kafka_quota_proxy.proxy.rules.model import Entity
from tests.support.stores import damage, keep, keep_strange, set_version

FILE = ProxyConfig(
    listeners=(),
    quotas=(QuotaRule(user="alice", producer_byte_rate=1.0, source="f:3"),),
    ip_quotas=(IpRule(ip="10.0.0.7", connection_creation_rate=1.0, source="f:4"),),
)
ALICE, BOB, ADDRESS = Entity(user="alice"), Entity(user="bob"), Entity(ip="10.0.0.7")


def report(path: Path, *, topic: QuotasFrom | None = None) -> StoreReport:
    return report_on(Store(directory=str(path), topic=topic), path, FILE)


def test_a_store_is_read_and_not_touched(tmp_path: Path) -> None:
    keep(tmp_path, ALICE, BOB, ADDRESS)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    message = f"has quotas in {tmp_path}, too; those of the file apply"
    assert report(tmp_path) == StoreReport(3, (f"f:3: user alice {message}", f"f:4: ip 10.0.0.7 {message}"))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_store_that_cannot_be_written_or_created_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(tmp_path, BOB)
    missing = tmp_path / "some" / "quotas.d"
    assert report(missing) == StoreReport(0, is_there=False)
    monkeypatch.setattr(os, "access", lambda *_: False)

    remedy = f"Permission denied for user {os.geteuid()}; give it to the user that runs the proxy"
    assert report(tmp_path) == StoreReport(1, errors=(f"{tmp_path} cannot be written: {remedy}",))
    message = f"{missing} cannot be created in {tmp_path}: {remedy}"
    assert report(missing) == StoreReport(0, errors=(message,), is_there=False)


def test_a_damaged_or_foreign_store_is_an_error_and_such_a_copy_a_warning(tmp_path: Path) -> None:
    keep(tmp_path, *(Entity(user=f"user-{number:04}") for number in range(1_000)))
    damage(tmp_path)

    own, of_topic = report(tmp_path), report(tmp_path, topic=QuotasFrom(topic="t"))

    (error,), (warning,) = own.errors, of_topic.warnings
    assert error.startswith(f"{tmp_path}/quotas.db is damaged: ")
    assert error.endswith("; replace it with a backup, or move it away and start without its quotas")
    assert warning.endswith("; the proxy will set it aside when it starts")
    assert own.quotas is None
    assert of_topic.quotas is not None
    assert 0 < of_topic.quotas < 1_000

    foreign = tmp_path / "foreign"
    keep(foreign, ALICE)
    set_version(foreign, 2)
    own, of_topic = report(foreign), report(foreign, topic=QuotasFrom(topic="t"))
    assert (own.quotas, own.warnings, of_topic.quotas, of_topic.errors) == (None, (), 0, ())
    assert own.errors[0].endswith("start the version that wrote it, or move it away")
    assert of_topic.warnings[0].endswith("the proxy will set it aside when it starts")


def test_copy_of_a_topic_is_read_as_the_proxy_reads_it(tmp_path: Path) -> None:
    database = keep_strange(tmp_path, ALICE, BOB)

    own, of_topic = report(tmp_path), report(tmp_path, topic=QuotasFrom(topic="t"))

    assert own.quotas is None
    assert own.errors[0].endswith("start the version that wrote it, or move it away")
    assert (of_topic.quotas, len(of_topic.shadowed)) == (2, 1)
    (warning,) = of_topic.warnings
    assert warning.startswith(f"{database}, ")
    assert "Mars/Olympus" in warning
    assert warning.endswith("; only that rule is left out")


def test_an_unreadable_store_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", fails)

    assert report(tmp_path) == StoreReport(None, errors=(f"{tmp_path} cannot be used: Permission denied",))
