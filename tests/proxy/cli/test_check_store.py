"""What ``check`` says of the directory of a store."""

import os
from pathlib import Path

import pytest

from kafka_quota_proxy.config.model import IpRule, ProxyConfig, QuotaRule, QuotasFrom, Store
from kafka_quota_proxy.proxy.cli.check import StoreReport, report_on
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity
from kafka_quota_proxy.proxy.client_quotas.storage.record import write_line
from tests.support.stores import break_snapshot, keep, keep_strange

FILE = ProxyConfig(
    listeners=(),
    quotas=(QuotaRule(user="alice", producer_byte_rate=1.0, source="f:3"),),
    ip_quotas=(IpRule(ip="10.0.0.7", connection_creation_rate=1.0, source="f:4"),),
)
ALICE, BOB, ADDRESS = Entity(user="alice"), Entity(user="bob"), Entity(ip="10.0.0.7")


def report(path: Path, *, topic: QuotasFrom | None = None) -> StoreReport:
    return report_on(Store(directory=str(path), topic=topic), path, FILE)


def test_its_quotas_are_counted_and_those_that_the_file_has_too_are_told(tmp_path: Path) -> None:
    keep(tmp_path, ALICE, BOB, ADDRESS)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    told = f"has quotas in {tmp_path}, too; those of the file hold"
    assert report(tmp_path) == StoreReport(3, (f"f:3: user alice {told}", f"f:4: ip 10.0.0.7 {told}"))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before, "it is touched"


def test_one_that_is_not_there_has_none_and_can_be_made_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "some" / "quotas.d"
    assert report(path) == StoreReport(0, is_there=False)

    monkeypatch.setattr(os, "access", lambda *_: False)

    told = f"{path} is not there, and cannot be made in {tmp_path}: Permission denied for user {os.geteuid()}; give it"
    assert report(path) == StoreReport(0, errors=(f"{told} to the user that runs the proxy",), is_there=False)


def test_one_that_may_not_be_written_is_told_with_what_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(tmp_path, BOB)
    monkeypatch.setattr(os, "access", lambda *_: False)

    told = f"{tmp_path} cannot be written: Permission denied for user {os.geteuid()}; give it"
    assert report(tmp_path) == StoreReport(1, errors=(f"{told} to the user that runs the proxy",))


def test_what_is_damaged_is_told(tmp_path: Path) -> None:
    keep(tmp_path, ALICE, BOB)
    (journal,) = tmp_path.glob("*.journal")
    data = journal.read_bytes()
    journal.write_bytes(data[:-40] + b"?" + data[-39:])

    found = report(tmp_path)

    assert found.quotas == 1
    (warning,) = found.warnings
    assert warning.startswith(f"{journal}, byte ")
    assert warning.endswith("a line does not have its checksum; what follows there is set aside at the start")


def test_one_of_another_version_cannot_be_read(tmp_path: Path) -> None:
    other, _ = write_line({"kafka-quota-store": 2, "file": "journal", "after": 0}, 0)
    (tmp_path / f"{0:020}.journal").write_bytes(other)

    found, of_topic = report(tmp_path), report(tmp_path, topic=QuotasFrom(topic="t"))

    assert (found.quotas, of_topic.quotas) == (None, None)
    assert found.errors[0].endswith("start the version that wrote it, or move it away")
    assert (found.warnings, of_topic.errors) == ((), ())
    assert of_topic.warnings[0].endswith("it is set aside at the start")


def test_of_a_topic_what_was_known_last_is_read_as_the_proxy_reads_it(tmp_path: Path) -> None:
    journal = keep_strange(tmp_path, ALICE, BOB)

    own, of_topic = report(tmp_path), report(tmp_path, topic=QuotasFrom(topic="t"))

    assert own.quotas is None
    assert own.errors[0].endswith("start the version that wrote it, or move it away")
    assert (of_topic.quotas, len(of_topic.shadowed)) == (2, 1)
    (warning,) = of_topic.warnings
    assert warning.startswith(f"{journal}, byte ")
    assert "Mars/Olympus" in warning
    assert warning.endswith("; that rule alone is left out")
    for count, others in ((2, "is 1 other"), (3, "are 2 others")):
        keep_strange(tmp_path, ALICE, count=count)
        (warning,) = report(tmp_path, topic=QuotasFrom(topic="t")).warnings
        assert warning.endswith(f"; that rule alone is left out, and so {others}")


def test_of_a_damaged_snapshot_of_a_topic_the_part_before_the_fault_is_read(tmp_path: Path) -> None:
    break_snapshot(tmp_path, ALICE, BOB)

    own, of_topic = report(tmp_path), report(tmp_path, topic=QuotasFrom(topic="t"))

    assert (own.quotas, of_topic.quotas) == (0, 1)
    assert of_topic.warnings[0].endswith("what follows there is set aside at the start")


def test_one_that_may_not_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    keep(tmp_path, BOB)
    monkeypatch.setattr(Path, "iterdir", fails)

    assert report(tmp_path) == StoreReport(None, errors=(f"{tmp_path} cannot be used: Permission denied",))
