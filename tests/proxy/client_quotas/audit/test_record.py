"""Tests the lines of the audit log."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.terms import Terms, TermsChange
from kafka_quota_proxy.protocol.client_quotas import Op
from kafka_quota_proxy.proxy.client_quotas.audit.record import MAX_ASKED, MAX_TEXT, audit_lines
from kafka_quota_proxy.proxy.client_quotas.rules.entity import StoredRule
from kafka_quota_proxy.proxy.client_quotas.rules.outcome import Origin, Outcome

P = "producer_byte_rate"
ALICE = (("user", "alice"),)
ADMIN = Origin("admin", "adminclient-1", "10.0.0.5", "clients")
NOW_MS = 1_767_268_800_123
OLD, NEW = StoredRule(limits={P: 1.0}), StoredRule(limits={P: 2.0}, terms=Terms(expires_ms=NOW_MS - 123))
TERMS_CHANGE = TermsChange(given=NEW.terms, removed=frozenset({"ramp"}))
APPLIED = Outcome(ALICE, (Op(P, 2.0), Op("x", None)), TERMS_CHANGE, OLD, NEW, 0, None)
REFUSED = Outcome(ALICE, (Op(P, float("inf")),), None, OLD, OLD, 42, "Quota must be finite")


def lines(
    some: Sequence[Outcome],
    origin: Origin = ADMIN,
    *,
    is_dry_run: bool = False,
    is_refused_whole: bool = False,
    may_write: Callable[[], bool] = lambda: True,
) -> list[bytes]:
    return list(
        audit_lines(
            some,
            origin,
            may_write,
            is_dry_run=is_dry_run,
            is_refused_whole=is_refused_whole,
            unix_ms=NOW_MS,
        )
    )


def told(*some: Outcome, is_dry_run: bool = False, is_refused_whole: bool = False) -> list[Any]:
    written = lines(some, is_dry_run=is_dry_run, is_refused_whole=is_refused_whole)
    return [json.loads(line) for line in b"".join(written).splitlines()]


def test_line_has_client_change_old_and_new_rule_and_time() -> None:
    applied, refused = told(APPLIED, REFUSED)

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
    assert told(APPLIED, is_dry_run=True)[0]["result"] == "validated"


def test_request_refused_as_a_whole_has_one_line() -> None:
    (line,) = told(*[REFUSED] * 5_000, is_refused_whole=True)

    assert (line["entities"], line["result"], line["error"]["code"]) == (5_000, "refused", 42)
    assert "entity" not in line


@given(st.text(), st.text(), st.lists(st.tuples(st.text(), st.floats() | st.none()), max_size=3))
def test_any_names_are_written_as_one_line_of_ascii(name: str, key: str, asked: list[tuple[str, float]]) -> None:
    outcome = Outcome(((key, name),), tuple(Op(*one) for one in asked), None, None, None, 42, name)
    (line,) = lines([outcome], Origin(name, name, name, name))

    assert line.count(b"\n") == 1
    assert line.isascii()
    json.loads(line, parse_constant=pytest.fail)


def test_a_line_has_a_bound() -> None:
    long = "é" * 100_000
    ops = tuple(Op(f"{number}{long}", 1.0) for number in range(1_000))
    outcome = Outcome(((long, long),) * 1_000, ops, None, None, None, 42, long)

    (line,) = lines([outcome], Origin(long, long, long, long))

    # A character takes at most six bytes, such as \u00e9.
    assert len(line) < 6 * MAX_TEXT * (MAX_ASKED + 10) + 1_000


def test_an_entity_that_comes_twice_has_an_error_and_is_changed_as_in_kafka() -> None:
    (line,) = told(APPLIED._replace(error_code=42, error_message="Ignoring duplicate entity"))

    assert (line["result"], line["error"]["code"]) == ("applied", 42)


def test_attempts_above_the_limit_have_no_lines_and_each_change_has_its_own() -> None:
    unknown = APPLIED._replace(error_code=7, is_unknown=True)
    unchanged = APPLIED._replace(new=OLD)
    granted = iter([True, False, True, False])

    written = lines([REFUSED, REFUSED, APPLIED, unknown, unchanged, REFUSED], may_write=lambda: next(granted))

    assert [json.loads(line)["result"] for line in written] == ["refused", "applied", "unknown", "refused"]
    assert lines([REFUSED], is_refused_whole=True, may_write=lambda: False) == []
    assert lines([APPLIED], is_dry_run=True, may_write=lambda: False) == []
