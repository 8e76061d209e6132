"""Tests what is read about clients from texts of the admin port."""

import json

import pytest

from kafka_quota_proxy.proxy.cli.demo.served_clients import (
    Client,
    ServedClient,
    read_on_demand,
    read_snapshot,
    served_clients,
)


def _metrics(**series: dict[str, float]) -> str:
    """Return the text of metrics. A key of ``series`` has a kind, a user and a client-id."""
    lines = []
    for name, values in series.items():
        lines.append(f"# TYPE kafka_quota_proxy_{name} {'counter' if name.endswith('_total') else 'gauge'}")
        for names, value in values.items():
            kind, user, client_id = names.split("/")
            labels = f'kind="{kind}",user="{user}",client_id="{client_id}"'
            lines.append(f"kafka_quota_proxy_{name}{{{labels}}} {value}")
    return "\n".join([*lines, ""])


def test_both_buckets_of_a_client_are_in_its_row() -> None:
    before = _metrics(bytes_total={"produce//my-app": 1_000}, requests_total={"produce//my-app": 1})
    now = _metrics(
        bytes_total={"produce//my-app": 5_000, "fetch/ANONYMOUS/my-app": 600},
        requests_total={"produce//my-app": 2, "fetch/ANONYMOUS/my-app": 1},
        throttle_seconds_total={"produce//my-app": 1.5, "fetch/ANONYMOUS/my-app": 0.25, "produce//other": 9},
        quota_limit={"produce//my-app": 2_000},
    )

    (row,) = served_clients(read_snapshot(before, now_s=10), read_snapshot(now, now_s=12), {})

    assert row.client == ("ANONYMOUS", "my-app")
    assert (row.produce_rate, row.produce_limit) == (2_000, 2_000)
    assert (row.fetch_rate, row.fetch_limit) == (300, None)
    assert row.throttle_time_ms == 1_750


def row_of(**series: dict[str, float]) -> ServedClient:
    snapshot = read_snapshot(_metrics(**series), now_s=1)
    (row,) = served_clients(snapshot, snapshot, {})
    return row


def test_a_client_without_a_rule_is_shown_without_a_limit() -> None:
    row = row_of(requests_total={"produce/ANONYMOUS/free": 1}, quota_limit={"produce//my-app": 2_000})

    assert row.client.client_id == "free"
    assert (row.produce_rate, row.produce_limit, row.fetch_limit, row.other_limits) == (0, None, None, ())
    without_id = {f"fetch/{level}": 5.0 for level in LEVELS if level not in ("ANONYMOUS/", "<default>/")}
    assert row_of(requests_total={"fetch/ANONYMOUS/": 1}, quota_limit=without_id).fetch_limit is None
    others = row_of(
        requests_total={"request/ANONYMOUS/my-app": 1},
        quota_limit={"request//my-app": 50.5, "mutation//my-app": 10.0},
    )
    assert others.other_limits == ("request_percentage 50.5", "controller_mutation_rate 10")


LEVELS = [
    "ANONYMOUS/my-app",
    "ANONYMOUS/<default>",
    "ANONYMOUS/",
    "<default>/my-app",
    "<default>/<default>",
    "<default>/",
    "/my-app",
    "/<default>",
]


@pytest.mark.parametrize("level", range(8))
def test_the_limit_is_that_of_the_first_of_eight_levels(level: int) -> None:
    limits = {f"fetch/{LEVELS[each]}": each + 1.0 for each in range(level, 8)}

    assert row_of(requests_total={"fetch/ANONYMOUS/my-app": 1}, quota_limit=limits).fetch_limit == level + 1


def test_throttles_on_demand_are_summed_by_client_without_those_of_quotas() -> None:
    observed = [
        {"user": "ANONYMOUS", "client_id": client_id, "throttle_time_ms": time_ms, "reason": reason}
        for client_id, time_ms, reason in (
            ("a", 300, "testing"),
            ("a", 200, "testing"),
            ("a", 99, "quota"),
            ("b", 1, "quota"),
        )
    ]

    on_demand = read_on_demand(json.dumps(observed))
    snapshot = read_snapshot("", now_s=1)
    rows = served_clients(snapshot, snapshot, on_demand)

    assert [(row.client, row.on_demand_ms) for row in rows] == [(Client("ANONYMOUS", "a"), 500)]
