"""Tests of ``proxy.admin.clients.rows``."""

from time import monotonic_ns
from typing import Any

import pytest

from kafka_quota_proxy.config.model import DEFAULT, Address, Enforcement, Listener, QuotaRule, Shaping
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.admin.clients.active import ActiveBucket, active_buckets
from kafka_quota_proxy.proxy.admin.clients.rows import SORTS, ClientQuery, ClientTable
from kafka_quota_proxy.proxy.admin.requests import RefusedError
from kafka_quota_proxy.proxy.server.server import Server
from kafka_quota_proxy.proxy.session.blocked_by import BlockedBy
from tests.support.throttled_clients import LISTENER, connect, server_with

NOW_MS = 86_400_000


def test_each_parameter_is_read() -> None:
    assert ClientQuery.parse("") == ClientQuery(None, "throttled", 100, None, None)
    assert ClientQuery.parse("kind=fetch&sort=rate&limit=10000&user=a%26b&client_id=") == ClientQuery(
        QuotaKind.FETCH, "rate", 10_000, "a&b", ""
    )


PARAMETERS = "the parameters are kind, sort, limit, user, client_id"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("kind=Produce", "kind must be one of produce, fetch, request, request_rate, mutation, not 'Produce'"),
        ("sort=name", f"sort must be one of {', '.join(SORTS)}, not 'name'"),
        ("limit=0", "limit must be a whole number from 1 to 10000, not '0'"),
        ("limit=10001", "limit must be a whole number from 1 to 10000, not '10001'"),
        ("limit=²", "limit must be a whole number from 1 to 10000, not '²'"),
        ("client-id=a", f"'client-id' is not a parameter; {PARAMETERS}"),
        ("limit=1&limit=2", f"'limit' is given twice; {PARAMETERS}"),
        ("kind", "the query is not valid: bad query field: 'kind'"),
    ],
)
def test_a_wrong_parameter_is_named_with_the_values_it_may_have(query: str, message: str) -> None:
    with pytest.raises(RefusedError) as refused:
        ClientQuery.parse(query)

    assert (refused.value.status, str(refused.value)) == ("400 Bad Request", message)


async def some_buckets() -> list[ActiveBucket]:
    server = server_with(
        *(QuotaRule(client_id=name, producer_byte_rate=limit) for name, limit in (("b", 2_000.0), ("c", 100_000.0)))
    )
    users = {"a": "zoe", "d": "amy"}
    for name, amount, wait_ms, age_ms in (
        ("a", 50_000, 0, 0),
        ("b", 40_000, 500, 0),
        ("c", 30_000, 900, 0),
        ("d", 1, 30_000, 40_000),
    ):
        bucket = connect(server, name, now_ms=NOW_MS, user=users.get(name, "bob"))
        bucket.charge(amount, now_ms=NOW_MS)
        if wait_ms:
            bucket.throttled(wait_ms, now_ms=NOW_MS - age_ms)
    connect(server, "d", now_ms=NOW_MS, user="amy")
    return list(active_buckets(server, now_ms=NOW_MS + 1_000, rest=lambda: None))


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("throttled", ["c", "b", "d", "a"]),  # d is not throttled now
        ("utilisation", ["b", "c", "a", "d"]),
        ("rate", ["a", "b", "c", "d"]),
        ("connections", ["d", "a", "b", "c"]),
        ("client_id", ["a", "b", "c", "d"]),
        ("user", ["b", "c", "d", "a"]),  # the buckets of b and c are shared by all users
    ],
)
async def test_rows_come_in_the_wanted_order(sort: str, order: list[str]) -> None:
    found = await some_buckets()

    for limit in (4, 2):
        first = ClientQuery(sort=sort, limit=limit).first(found, lambda: None)
        assert [one.bucket.tags.client_id for one in first] == order[:limit]


ETL = QuotaRule(client_id="etl", producer_byte_rate=1_000.0, shaping=Shaping.PACED, source="proxy.yaml:7")
WALL_MS = 1_795_363_200_000  # 2026-11-22T16:00:00Z


def now() -> int:
    return monotonic_ns() // 1_000_000


def rows(server: Server, **query: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - as ClientQuery's
    page = ClientTable(server, wall_ms=lambda: WALL_MS).read(ClientQuery(**query), rest=lambda: None)
    assert page.time == "2026-11-22T16:00:00.000Z"
    found = list(page.rows)
    assert page.total >= len(found)
    return found


async def test_a_row_says_who_is_throttled_by_which_rule_and_since_when() -> None:
    server = server_with(ETL, QuotaRule(client_id=DEFAULT, producer_byte_rate=9.0, source="proxy.yaml:8"))
    now_ms = now() - 10_000
    for address in ("10.0.0.6", "10.0.0.5", "10.0.0.5"):
        bucket = connect(server, "etl", now_ms=now_ms, address=address)
    reasons = (BlockedBy.QUOTA, BlockedBy.THROTTLE_TIME, BlockedBy.QUOTA)
    for connection, reason in zip(server.listeners[0].connections, reasons, strict=True):
        connection.state.block(reason)
    for after_ms in range(0, 10_000, 500):
        wait_ms = bucket.charge(1_000, now_ms=now_ms + after_ms)
        bucket.throttled(min(wait_ms, 400), now_ms=now_ms + after_ms)

    (row,) = rows(server)

    # The test takes some ms, so the times are not exact.
    assert 10_000 <= row.pop("throttled_for_ms") < 10_500
    assert "2026-11-22T15:59:49.5" < row.pop("throttled_since") <= "2026-11-22T15:59:50.000Z"
    assert 7.5 <= row.pop("throttle_seconds_last_minute") <= 8.0
    assert 1_900 <= row.pop("rate") <= 2_100
    assert 1.9 <= row.pop("utilisation") <= 2.1
    assert row == {
        "kind": "produce",
        "user": "ANONYMOUS",
        "client_id": "etl",
        "addresses": ["10.0.0.5", "10.0.0.6"],
        "connections": 3,
        "waits_for": {"quota": 2, "throttle_time": 1},
        "listener": "clients",
        "broker": 1,
        "limit": 1_000.0,
        "limit_written": "1kB",
        "rule": {"user": None, "client-id": "etl", "source": "proxy.yaml:7"},
        "level": 7,
        "shaping": "paced",
        "enforcement": "respond",
        "throttled": True,
    }


async def test_clients_that_share_a_bucket_share_a_row_and_each_finds_it() -> None:
    inner = Listener(
        name="inner",
        bind=Address(host="127.0.0.1", port=0),
        upstream=LISTENER.upstream,
        enforcement=Enforcement.DELAY,
    )
    server = server_with(QuotaRule(user=DEFAULT, producer_byte_rate=5.0), ETL, listeners=(LISTENER, inner))
    now_ms = now()
    connect(server, "one", now_ms=now_ms, user="alice").charge(1, now_ms=now_ms)
    connect(server, "two", now_ms=now_ms, user="alice", listener=1)
    connect(server, "one", now_ms=now_ms, user="bob", listener=1).charge(1, now_ms=now_ms)

    alice, bob = rows(server, sort="user")

    assert (alice["user"], alice["client_id"], alice["connections"]) == ("alice", None, 2)
    assert (alice["listener"], alice["rule"]["user"]) == ("clients, inner", "<default>")
    assert (bob["user"], bob["client_id"], bob["listener"], bob["enforcement"]) == ("bob", "one", "inner", "delay")
    assert rows(server, client_id="two") == [alice | {"rate": rows(server, client_id="two")[0]["rate"]}]
    assert [row["user"] for row in rows(server, client_id="one", sort="user")] == ["alice", "bob"]
    assert rows(server, user="bob", client_id="two") == []


def charge(
    server: Server, client_id: str, part: float, *, kind: QuotaKind = QuotaKind.PRODUCE, wait_ms: int = 0
) -> None:
    """Let a client use this part of a limit of 1,000 bytes per second over ten windows of a second."""
    now_ms = now()
    bucket = connect(server, client_id, now_ms=now_ms, kind=kind)
    for ago_ms in range(10_000, 0, -1_000):
        bucket.charge(int(1_000 * part), now_ms=now_ms - ago_ms)
    if wait_ms:
        bucket.throttled(wait_ms, now_ms=now_ms)


async def test_the_overview_has_who_is_throttled_and_who_is_near_a_limit() -> None:
    server = server_with(
        QuotaRule(client_id=DEFAULT, producer_byte_rate=1_000.0, consumer_byte_rate=1_000.0, source="f:1")
    )
    for number in range(3):
        charge(server, f"over-{number}", 2, wait_ms=1_000 * (number + 1))
    charge(server, "over-0", 2, kind=QuotaKind.FETCH, wait_ms=9_000)
    for name, part in (("near-1", 1.0), ("near-2", 0.95), ("far", 0.5)):
        charge(server, name, part)

    overview = ClientTable(server, wall_ms=lambda: WALL_MS).overview(most_throttled=2, most_near=1, rest=lambda: None)

    assert (overview.time, overview.clients, overview.total) == ("2026-11-22T16:00:00.000Z", 6, 7)
    throttled, near = overview.throttled, overview.near
    assert (throttled.clients, throttled.total, near.clients, near.total) == (3, 4, 2, 2)
    assert len(throttled.rows) == 2
    assert all(row["throttled"] for row in throttled.rows)
    assert [row["client_id"] for row in near.rows] == ["near-1"]
    assert 0.8 <= near.rows[0]["utilisation"] <= 1.1
