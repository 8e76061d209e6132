"""What bytes cost: exact decimals, by kind and tier."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.pipeline.prices import Tier, cost, flat

GB = 10**9
TIERS = (Tier(10 * GB, Decimal("0.05")), Tier(100 * GB, Decimal("0.03")), Tier(None, Decimal("0.01")))


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        (0, "0.0000"),
        (10 * GB, "0.5000"),
        (11 * GB, "0.5300"),
        (100 * GB, "3.2000"),
        (300 * GB, "5.2000"),
        (-5, "0.0000"),
    ],
)
def test_each_byte_has_the_price_of_its_tier(amount: int, expected: str) -> None:
    assert cost(amount, TIERS) == Decimal(expected)


def test_a_tenth_is_a_tenth() -> None:
    """As a float, 0.1 x 3 would be a little more than 0.3."""
    assert cost(3 * GB, flat(Decimal("0.1"))["fetch"]) == Decimal("0.3")


@given(
    amount=st.integers(0, 10**18),
    ends=st.lists(st.integers(1, 10**18), max_size=4, unique=True).map(sorted),
    prices=st.lists(st.decimals(0, 10**6, places=6), min_size=5, max_size=5),
)
def test_the_cost_is_the_sum_over_all_bytes(amount: int, ends: list[int], prices: list[Decimal]) -> None:
    tiers = [Tier(end, price) for end, price in zip([*ends, None], prices, strict=False)]

    exact, begin = Fraction(0), 0
    for end, price in tiers:
        until = amount if end is None else min(amount, end)
        exact += max(0, until - begin) * Fraction(price) / GB
        begin = max(begin, until)

    assert abs(Fraction(cost(amount, tiers)) - exact) <= Fraction(1, 20_000)
