"""Tests the lines of the audit log, and how many entities may be changed in a second."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.terms import Terms, TermsChange
from kafka_quota_proxy.protocol.client_quotas import Op
from kafka_quota_proxy.proxy.rules.audit import ChangeLimit, audit_line
from kafka_quota_proxy.proxy.rules.model import StoredRule
from kafka_quota_proxy.proxy.rules.outcome import Origin, Outcome

P = "producer_byte_rate"
ALICE = (("user", "alice"),)
ADMIN = Origin("admin", "adminclient-1", "10.0.0.5", "clients")
NOW_MS = 1_767_268_800_123
OLD, NEW = StoredRule(limits={P: 1.0}), StoredRule(limits={P: 2.0}, terms=Terms(expires_ms=NOW_MS - 123))
TERMS_CHANGE = TermsChange(given=NEW.terms, removed=frozenset({"ramp"}))
APPLIED = Outcome(ALICE, (Op(P, 2.0), Op("x", None)), TERMS_CHANGE, OLD, NEW, 0, None)
REFUSED = Outcome(ALICE, (Op(P, float("inf")),), None, OLD, OLD, 42, "Quota must be finite")


def line_of(outcome: Outcome, origin: Origin = ADMIN, *, is_dry_run: bool = False) -> bytes:
    return audit_line(outcome, outcome.result(is_dry_run=is_dry_run), origin, unix_ms=NOW_MS)


def told(outcome: Outcome, *, is_dry_run: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(line_of(outcome, is_dry_run=is_dry_run))
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
    assert told(APPLIED, is_dry_run=True)["result"] == "validated"


@given(st.text(), st.text(), st.lists(st.tuples(st.text(), st.floats() | st.none()), max_size=3))
def test_any_names_are_written_as_one_line_of_ascii(name: str, key: str, asked: list[tuple[str, float]]) -> None:
    outcome = Outcome(((key, name),), tuple(Op(*one) for one in asked), None, None, None, 42, name)
    line = line_of(outcome, Origin(name, name, name, name))

    assert line.count(b"\n") == 1
    assert line.isascii()
    json.loads(line, parse_constant=pytest.fail)


def test_burst_of_ten_seconds_passes_and_then_the_rate() -> None:
    limit = ChangeLimit(100.0, now_ms=0)

    limit.record(1_000, now_ms=0)
    assert limit.wait_ms(now_ms=0) == 0  # the limit is not exceeded yet, so one more request of any size passes
    limit.record(50, now_ms=0)
    assert limit.wait_ms(now_ms=0) == 500
    assert limit.wait_ms(now_ms=499) == 1
    assert limit.wait_ms(now_ms=500) == 0


@given(
    rate=st.floats(0.01, 10_000),
    asks=st.lists(st.tuples(st.integers(0, 60_000), st.integers(1, 10_000)), max_size=30),
)
def test_no_more_passes_than_burst_and_rate_and_one_request_allow(rate: float, asks: list[tuple[int, int]]) -> None:
    limit = ChangeLimit(rate, now_ms=0)
    now_ms = passed = largest = 0
    for after_ms, changes in asks:
        now_ms += after_ms
        if limit.wait_ms(now_ms=now_ms) == 0:
            limit.record(changes, now_ms=now_ms)
            passed += changes
            largest = max(largest, changes)

        assert passed <= rate * (10 + now_ms / 1_000) + largest + 1e-6 * passed
