"""Tests the lines of the audit log."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.terms import Terms, TermsChange
from kafka_quota_proxy.protocol.client_quotas import Op
from kafka_quota_proxy.proxy.client_quotas.audit.record import MAX_ASKED, MAX_TEXT, audit_lines, summary_lines
from kafka_quota_proxy.proxy.client_quotas.audit.summary import MOST_KEYS, AttemptSummaries
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
    sums: AttemptSummaries | None = None,
    *,
    is_dry_run: bool = False,
    is_refused_whole: bool = False,
    now_ms: int = 0,
) -> list[bytes]:
    return list(
        audit_lines(
            some,
            origin,
            sums or AttemptSummaries(),
            is_dry_run=is_dry_run,
            is_refused_whole=is_refused_whole,
            now_ms=now_ms,
            unix_ms=NOW_MS + now_ms,
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


def test_flood_without_changes_has_a_line_a_second_and_each_change_its_own() -> None:
    sums = AttemptSummaries()
    flood = [REFUSED] * 5_000

    first = lines([*flood, APPLIED], sums=sums)
    later = [line for turn in range(1, 10) for line in lines(flood, sums=sums, now_ms=turn * 100)]
    dry_run = lines([APPLIED] * 5_000, sums=sums, is_dry_run=True, now_ms=950)
    then = lines(flood, sums=sums, now_ms=1_000)

    refused, applied = map(json.loads, first)
    assert (refused["result"], refused["entity"], applied["result"]) == ("refused", {"user": "alice"}, "applied")
    assert later == []
    assert [json.loads(line)["result"] for line in dry_run] == ["validated"]
    about = {"principal": "admin", "client_id": "adminclient-1", "address": "10.0.0.5", "listener": "clients"}
    assert [json.loads(line) for line in then] == [
        {
            "time": "2026-01-01T12:00:01.023Z",
            "since": "2026-01-01T12:00:00.123Z",
            **about,
            "entities": 49_999,
            "result": "refused",
            "error": {"code": 42, "name": "INVALID_REQUEST", "message": "Quota must be finite"},
        },
        {
            "time": "2026-01-01T12:00:01.073Z",
            "since": "2026-01-01T12:00:01.073Z",
            **about,
            "entities": 4_999,
            "result": "validated",
        },
    ]


def test_line_for_too_many_principals_names_none() -> None:
    sums = AttemptSummaries()
    for number in range(MOST_KEYS + 5):
        lines([REFUSED], Origin(f"token@10.0.0.{number}"), sums)

    (line,) = summary_lines(sums.take(now_ms=1_000))

    assert (json.loads(line)["principal"], json.loads(line)["entities"]) == (None, 5)


def test_unknown_outcomes_are_never_summed_up() -> None:
    unknown = APPLIED._replace(error_code=7, is_unknown=True)

    assert [line["result"] for line in told(*[unknown] * 3, *[APPLIED] * 3)] == ["unknown"] * 3 + ["applied"] * 3
