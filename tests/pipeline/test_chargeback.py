"""Tests of ``pipeline.chargeback``."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from kafka_quota_proxy.pipeline.chargeback import (
    NOBODY,
    Charge,
    Owner,
    bill,
    charged,
    cost,
    gaps,
    month_of,
    owner_at,
)
from tests.pipeline.support import START_MS, frame, record, rows

GB = 10**9


@pytest.mark.parametrize(
    ("amount", "expected"), [(0, "0.0000"), (10 * GB, "0.5000"), (10 * GB + 1_000, "0.5000"), (-5, "0.0000")]
)
def test_each_byte_has_the_price(amount: int, expected: str) -> None:
    assert cost(amount, Decimal("0.05")) == Decimal(expected)


def test_a_tenth_is_a_tenth() -> None:
    """As a float, 0.1 x 3 would be a little more than 0.3."""
    assert cost(3 * GB, Decimal("0.1")) == Decimal("0.3")


@given(amount=st.integers(0, 10**18), price=st.decimals(0, 10**6, places=6))
def test_the_cost_is_exact_but_for_rounding(amount: int, price: Decimal) -> None:
    assert abs(Fraction(cost(amount, price)) - amount * Fraction(price) / GB) <= Fraction(1, 20_000)


DAY_S = 86_400
DAY_MS = DAY_S * 1_000


def owners_of(spark: SparkSession, records: list[dict[str, Any]], *owners: Owner) -> dict[str, int]:
    """Return the bytes that are charged to each owner."""
    days = charged(frame(spark, records), owners)
    return {row["owner"]: row["bytes"] for row in rows(days.groupBy("owner").sum("bytes").toDF("owner", "bytes"))}


def test_the_more_specific_line_counts_and_sums_equal_the_log(spark: SparkSession) -> None:
    names = [("alice", "etl"), ("alice", "x"), ("bob", "etl"), ("bob", "y")]
    log = [record(user=user, client_id=client, amount=10**at) for at, (user, client) in enumerate(names)]
    log += [record(kind="request", amount=7), record(kind="fetch", user="bob", client_id="y", amount=50_000)]

    found = owners_of(
        spark, log, Owner(None, "etl", "tools"), Owner("alice", None, "team a"), Owner("alice", "etl", "etl of a")
    )

    assert found == {"etl of a": 1, "team a": 10, "tools": 100, NOBODY: 51_000}


def test_a_former_owner_pays_until_the_day_of_the_change(spark: SparkSession) -> None:
    log = [record(at_s=day * DAY_S + second, amount=10**day) for day in range(3) for second in (0, DAY_S - 1)]
    change_ms = START_MS + DAY_MS

    found = owners_of(
        spark, log, Owner("alice", None, "old", until_ms=change_ms), Owner("alice", None, "new", from_ms=change_ms)
    )

    assert found == {"old": 2, "new": 220}


def test_bytes_of_a_month_are_billed(spark: SparkSession) -> None:
    days = charged(frame(spark, [record(amount=1_500_000_000)] * 1 + [record(at_s=DAY_S, amount=500_000_000)]), [])

    assert bill(days, Decimal("0.05")) == [Charge(NOBODY, "produce", 2_000_000_000, Decimal("0.1"))]
    assert [(row["day"], row["bytes"]) for row in rows(days, "day")] == [
        ("2026-09-07", 1_500_000_000),
        ("2026-09-08", 500_000_000),
    ]


@pytest.mark.parametrize(("month", "days"), [("2026-09", 30), ("2026-02", 28), ("2026-12", 31)])
def test_a_month_has_its_days(month: str, days: int) -> None:
    from_ms, until_ms = month_of(month)

    assert until_ms - from_ms == days * DAY_MS


def test_a_missing_hour_is_found_within_the_log_and_at_the_ends_of_a_month(spark: SparkSession) -> None:
    log = [record(at_s=hour * 3_600 + 5, proxy=proxy) for proxy in ("p1", "p2") for hour in range(24)]
    del log[7], log[7]  # two hours of proxy p1 are missing

    records = frame(spark, log)
    within = rows(gaps(records, None))
    month = rows(gaps(records, (START_MS - 2 * 3_600_000, START_MS + DAY_MS)), "proxy", "from_ms")

    assert [(row["proxy"], row["from_ms"] - START_MS, row["until_ms"] - START_MS) for row in within] == [
        ("p1", 7 * 3_600_000, 9 * 3_600_000)
    ]
    assert [(row["proxy"], row["from_ms"] - START_MS) for row in month] == [
        ("p1", -7_200_000),
        ("p1", 7 * 3_600_000),
        ("p2", -7_200_000),
    ]


def test_an_owner_at_a_time_is_that_of_the_most_specific_line() -> None:
    lines = [
        Owner(None, "etl", "client"),
        Owner("alice", None, "user", until_ms=1_000),
        Owner("alice", None, "later", from_ms=1_000),
        Owner("alice", "etl", "both"),
        Owner("carol", None, "carol"),
    ]

    before, after = owner_at(lines, 999), owner_at(lines, 1_000)

    names = [("alice", "etl"), ("alice", "x"), ("carol", "etl"), ("bob", "etl"), ("bob", "x")]
    assert [before(*one) for one in names] == ["both", "user", "carol", "client", NOBODY]
    assert after("alice", "x") == "later"
