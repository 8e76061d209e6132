"""Tests the parameters of ``/clients``, and the orders of its rows."""

import pytest

from kafka_quota_proxy.config.model import QuotaRule
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.admin.clients.active import ActiveBucket, active_buckets
from kafka_quota_proxy.proxy.admin.clients.query import SORTS, ClientQuery
from kafka_quota_proxy.proxy.admin.requests import RefusedError
from tests.support.throttled_clients import connect, server_with

NOW_MS = 86_400_000


def test_each_parameter_is_read() -> None:
    assert ClientQuery.parse("") == ClientQuery(None, "throttled", 100, None, None, details=False)
    assert ClientQuery.parse("kind=fetch&sort=rate&limit=10000&user=a%26b&client_id=&details=true") == ClientQuery(
        QuotaKind.FETCH, "rate", 10_000, "a&b", "", details=True
    )


PARAMETERS = "the parameters are kind, sort, limit, user, client_id, details"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("kind=Produce", "kind must be one of produce, fetch, request, request_rate, mutation, not 'Produce'"),
        ("sort=name", f"sort must be one of {', '.join(SORTS)}, not 'name'"),
        ("limit=0", "limit must be a whole number from 1 to 10000, not '0'"),
        ("limit=10001", "limit must be a whole number from 1 to 10000, not '10001'"),
        ("limit=²", "limit must be a whole number from 1 to 10000, not '²'"),
        ("details=yes", "details must be one of true, false, not 'yes'"),
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


async def test_many_rows_are_sorted_in_steps() -> None:
    server = server_with()
    for number in range(1_200):
        connect(server, f"client-{number}", now_ms=NOW_MS).charge(number * 7_919 % 1_200 + 1, now_ms=NOW_MS)
    found = list(active_buckets(server, now_ms=NOW_MS, rest=lambda: None))
    rests: list[None] = []

    first = ClientQuery(sort="rate", limit=1_200).first(found, lambda: rests.append(None))

    assert [one.bucket.usage.amount for one in first] == list(range(1_200, 0, -1))
    assert len(rests) >= 3
