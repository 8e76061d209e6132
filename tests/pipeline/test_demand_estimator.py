"""The demand of a bucket at each proxy, and the division of its limit by those demands."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.pipeline.demand_estimator import DemandEstimator, ProxyDemand, ProxyUsage, divide_limit

EVEN = 1_000
LIMIT = 3_000


def used(amount: int, **given: int) -> ProxyUsage:
    """Return the use of one second, from records with an interval of one second."""
    every = {"interval_ms": 1_000, "longest_interval_ms": 1_000, "throttled_requests": 0, "throttle_time_ms": 0}
    return ProxyUsage(amount=amount, **every | given)


def throttled(amount: int, wait_ms: int = 0, **given: int) -> ProxyUsage:
    return used(amount, **{"throttled_requests": 2, "throttle_time_ms": wait_ms} | given)


def test_demand_is_a_little_above_the_highest_recent_use() -> None:
    demand = DemandEstimator()
    demand.take(used(500), share=EVEN, now_ms=0)
    demand.take(used(200), share=EVEN, now_ms=1_000)

    assert demand.demand(limit=LIMIT, now_ms=2_999).rate == pytest.approx(525)
    assert demand.demand(limit=LIMIT, now_ms=3_000).rate == pytest.approx(210)
    assert demand.demand(limit=LIMIT, now_ms=4_000) == ProxyDemand(0)


def test_constant_throttling_demands_the_whole_limit() -> None:
    demand = DemandEstimator()
    demand.take(throttled(10), share=10, now_ms=0)
    demand.take(throttled(10), share=10, now_ms=1_000)

    assert demand.demand(limit=LIMIT, now_ms=1_001) == ProxyDemand(LIMIT, is_throttled=True)


def test_occasional_throttling_demands_a_quarter_more() -> None:
    demand = DemandEstimator()
    demand.take(used(90), share=100, now_ms=0)
    demand.take(throttled(100), share=100, now_ms=1_000)

    assert demand.demand(limit=LIMIT, now_ms=1_001) == ProxyDemand(125, is_throttled=True)


def test_a_throttled_burst_below_the_share_demands_no_more() -> None:
    demand = DemandEstimator()
    demand.take(throttled(790), share=1_000, now_ms=0)

    assert demand.demand(limit=LIMIT, now_ms=1).rate == pytest.approx(829.5)


@pytest.mark.parametrize("throttled_requests", [1, 30])
def test_a_silent_throttled_bucket_is_remembered(throttled_requests: int) -> None:
    demand = DemandEstimator()
    demand.take(throttled(256_000, wait_ms=25_000, throttled_requests=throttled_requests), share=10_000, now_ms=0)

    assert demand.demand(limit=LIMIT, now_ms=26_999).is_throttled
    assert demand.demand(limit=LIMIT, now_ms=27_000) == ProxyDemand(0)


def test_rates_are_over_at_least_a_second() -> None:
    long, short = DemandEstimator(), DemandEstimator()
    long.take(used(60_000, interval_ms=60_000, longest_interval_ms=10_000), share=EVEN, now_ms=0)
    short.take(used(100, interval_ms=3), share=EVEN, now_ms=0)

    # With intervals of 10 s, the next record may be as late as two intervals.
    assert long.demand(limit=LIMIT, now_ms=20_999).rate == pytest.approx(1_050)
    assert long.demand(limit=LIMIT, now_ms=21_000) == ProxyDemand(0)
    assert short.demand(limit=LIMIT, now_ms=0).rate == pytest.approx(105)


def test_a_negative_amount_counts_as_0() -> None:
    demand = DemandEstimator()
    demand.take(used(-5), share=EVEN, now_ms=0)

    assert demand.demand(limit=LIMIT, now_ms=1) == ProxyDemand(0)


WANTED = st.builds(ProxyDemand, st.floats(0, 1e13), st.booleans())


@given(
    limit=st.integers(1_000, 10**12),
    wants=st.lists(WANTED, min_size=1, max_size=6),
    floor=st.floats(0, 1),
)
def test_shares_sum_to_the_limit_and_respect_the_floor(limit: int, wants: list[ProxyDemand], floor: float) -> None:
    found = divide_limit(limit, {str(number): want for number, want in enumerate(wants)}, floor=floor)

    # The sum differs from the limit by remainders of divisions, and by shares of 1 in place of 0.
    assert limit - len(wants) * 3 <= sum(found.values()) <= limit + list(found.values()).count(1)
    assert min(found.values()) >= max(1, int(limit * floor) // len(wants))


@given(limit=st.integers(1_000, 10**12), wants=st.lists(WANTED, min_size=2, max_size=6))
def test_a_proxy_below_its_demand_has_the_highest_share(limit: int, wants: list[ProxyDemand]) -> None:
    found = divide_limit(limit, {str(number): want for number, want in enumerate(wants)}, floor=0)

    for number, want in enumerate(wants):
        if found[str(number)] < int(want.rate):
            assert found[str(number)] >= max(found.values()) - 1


@pytest.mark.parametrize(
    ("wants", "shares"),
    [
        # No demand.
        ([ProxyDemand(), ProxyDemand(), ProxyDemand()], [1_000, 1_000, 1_000]),
        # One proxy gets everything except the floors of the others, 30 bytes each.
        ([ProxyDemand(2_500, is_throttled=True), ProxyDemand(), ProxyDemand()], [2_940, 30, 30]),
        # Two proxies that want more than the limit get equal shares.
        (
            [ProxyDemand(9_000, is_throttled=True), ProxyDemand(1_500, is_throttled=True), ProxyDemand()],
            [1_485, 1_485, 30],
        ),
        # A small demand is met, and the rest goes to throttled proxies.
        ([ProxyDemand(1_000, is_throttled=True), ProxyDemand(500), ProxyDemand()], [2_470, 500, 30]),
        # Without throttling, the rest is divided among all proxies.
        ([ProxyDemand(900), ProxyDemand(), ProxyDemand()], [1_580, 710, 710]),
    ],
)
def test_a_limit_of_3000_and_a_floor_of_3_percent(wants: list[ProxyDemand], shares: list[int]) -> None:
    found = divide_limit(3_000, dict(zip("abc", wants, strict=True)), floor=0.03)

    assert [found[proxy] for proxy in "abc"] == pytest.approx(shares, abs=10)
    assert sum(found.values()) <= 3_000


def test_least_shares_do_not_exceed_a_small_limit() -> None:
    wants = {"a": ProxyDemand(10.0, is_throttled=True), "b": ProxyDemand(), "c": ProxyDemand()}

    assert divide_limit(10, wants, floor=0.03) == {"a": 8, "b": 1, "c": 1}
