"""Tests the lines that are written for records."""

import json

from kafka_quota_proxy.proxy.usage.record import Batch, UsageCounts, UsageKey

USED = UsageCounts(
    amount=5_242_880, requests=41, throttled_requests=40, throttle_time_ms=310, is_enforced=True, limit=5_242_880.0,
    rule_user="alice", rule_client_id="<default>", connections=3,
)  # fmt: skip


def a_batch(identity: UsageKey, used: UsageCounts = USED) -> Batch:
    return Batch("p1", 1_767_225_600_000, 1_000, ((identity, used),))


def test_a_line_has_all_fields() -> None:
    (line,) = a_batch(UsageKey(3, "produce", "alice", "etl")).lines()

    assert line == (
        b'{"start_ms":1767225600000,"interval_ms":1000,"proxy":"p1","broker":3,"kind":"produce","user":"alice",'
        b'"client_id":"etl","rule_user":"alice","rule_client_id":"<default>","limit":5242880.0,"amount":5242880,'
        b'"requests":41,"throttled_requests":40,"throttle_time_ms":310,"enforced":true,"connections":3}'
    )


def test_unknown_fields_are_null_and_any_name_is_one_line_of_ascii() -> None:
    used = UsageCounts(amount=1, requests=1, throttled_requests=0, throttle_time_ms=0, is_enforced=True)
    name = 'a"b\\c\n\r\u2028\x00é😀'

    (line,) = a_batch(UsageKey(None, "produce", "ANONYMOUS", name), used).lines()

    assert line.isascii()
    assert b"\n" not in line
    found = json.loads(line)
    assert found["client_id"] == name
    assert [key for key, value in found.items() if value is None] == [
        "broker", "rule_user", "rule_client_id", "limit", "connections",
    ]  # fmt: skip


def test_a_key_identifies_the_bucket() -> None:
    with_listener = a_batch(UsageKey(3, "connection", "", "", "clients"))

    assert list(a_batch(UsageKey(3, "produce", "alice", "etl")).keys()) == [
        b'{"proxy":"p1","broker":3,"kind":"produce","user":"alice","client_id":"etl"}'
    ]
    assert list(with_listener.keys()) == [
        b'{"proxy":"p1","broker":3,"kind":"connection","user":"","client_id":"","listener":"clients"}'
    ]


def test_connections_through_two_listeners_are_added() -> None:
    one, other, unknown = (USED._replace(connections=count) for count in (2, 3, None))

    assert one.plus(other).connections == 5
    assert one.plus(unknown).connections == unknown.plus(one).connections == 2
    assert unknown.plus(unknown).connections is None
