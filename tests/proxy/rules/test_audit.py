"""Tests the lines of the audit log, and how many entities may be changed in a second."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.terms import Terms, TermsChange
from kafka_quota_proxy.protocol.client_quotas import Op
from kafka_quota_proxy.proxy.rules.alter import Outcome
from kafka_quota_proxy.proxy.rules.api import Origin
from kafka_quota_proxy.proxy.rules.audit import AuditFile, ChangeLimit, audit_line
from kafka_quota_proxy.proxy.rules.model import StoredRule

P = "producer_byte_rate"
ALICE = (("user", "alice"),)
ADMIN = Origin("admin", "adminclient-1", "10.0.0.5", "clients")
NOW_MS = 1_767_268_800_123
OLD, NEW = StoredRule(limits={P: 1.0}), StoredRule(limits={P: 2.0}, terms=Terms(expires_ms=NOW_MS - 123))
TERMS_CHANGE = TermsChange(given=NEW.terms, removed=frozenset({"ramp"}))
APPLIED = Outcome(ALICE, (Op(P, 2.0), Op("x", None)), TERMS_CHANGE, OLD, NEW, result="applied")
REFUSED = Outcome(ALICE, (Op(P, float("inf")),), None, OLD, OLD, 42, "Quota must be finite", "refused")


def told(outcome: Outcome) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(audit_line(outcome, ADMIN, unix_ms=NOW_MS))
    return found


def test_line_has_client_change_old_and_new_rule_and_time() -> None:
    applied, refused = told(APPLIED), told(REFUSED)

    about = {
        "time": "2026-01-01T12:00:00.123Z",
        "principal": "admin",
        "client_id": "adminclient-1",
        "address": "10.0.0.5",
        "listener": "clients",
        "entity": {"user": "alice"},
    }
    terms = {"expires": "2026-01-01T12:00:00Z"}
    assert applied == {
        **about,
        "asked": {P: 2.0, "x": None, "terms": {**terms, "ramp": None}},
        "old": {P: 1.0},
        "new": {P: 2.0, "terms": terms},
        "result": "applied",
    }
    assert refused == {
        **about,
        "asked": {P: "inf"},
        "old": {P: 1.0},
        "new": {P: 1.0},
        "result": "refused",
        "error": {"code": 42, "name": "INVALID_REQUEST", "message": "Quota must be finite"},
    }
    assert told(APPLIED._replace(result="validated"))["result"] == "validated"


@given(st.text(), st.text(), st.lists(st.tuples(st.text(), st.floats() | st.none()), max_size=3))
def test_any_names_are_written_as_one_line_of_ascii(name: str, key: str, asked: list[tuple[str, float]]) -> None:
    outcome = Outcome(((key, name),), tuple(Op(*one) for one in asked), None, None, None, 42, name)
    line = audit_line(outcome, Origin(name, name, name, name), unix_ms=NOW_MS)

    assert line.count(b"\n") == 1
    assert line.isascii()
    json.loads(line, parse_constant=pytest.fail)


def test_burst_of_ten_seconds_passes_and_then_the_rate() -> None:
    limit = ChangeLimit(100.0)

    assert limit.take(1_000, now_ms=0) == 0
    assert limit.take(50, now_ms=0) == 0  # the limit is not exceeded yet, so one more request of any size passes
    assert [limit.take(now_ms=now_ms) for now_ms in (0, 499, 500, 500)] == [500, 1, 0, 10]
    assert limit.take(1_001, now_ms=60_000) == 0  # no more than ten seconds are saved up
    assert limit.take(now_ms=60_000) == 10
    assert {ChangeLimit(None).take(1_000, now_ms=0) for _ in range(3)} == {0}


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

    assert path.read_bytes() == b"1\n56\n"
    assert file.lost == 6
    assert caplog.text.count("No space left on device") == 2
    assert "quotas are still changed" in caplog.text


def test_file_that_cannot_be_opened_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"cannot be created: .* is not a directory; create it, or use"):
        AuditFile(tmp_path / "none" / "a.jsonl").open()
