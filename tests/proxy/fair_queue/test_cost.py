"""Tests the cost of a request. tests/oracles compares it with Hadoop's."""

from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.fair_call_queue import CostWeights
from kafka_quota_proxy.proxy.fair_queue.cost import (
    Phases,
    RequestCount,
    WeightedTimeCost,
    upload_cost,
)

TIMES = st.builds(Phases, *[st.integers(-1_000, 10**9)] * 9)
WEIGHTS = st.builds(CostWeights, **{phase: st.integers(0, 1_000) for phase in Phases._fields})


@given(times=TIMES, weights=WEIGHTS)
def test_a_weighted_cost_is_the_sum_of_times_above_zero(times: Phases, weights: CostWeights) -> None:
    expected = sum(max(0, time_us) * getattr(weights, phase) for phase, time_us in times._asdict().items())

    assert WeightedTimeCost(weights).weigh(times) == expected


def test_an_upload_pays_for_the_time_of_its_slot() -> None:
    assert upload_cost(RequestCount(), 0, 20_000, 4_000.0) == 5
    assert upload_cost(RequestCount(), 0, 20_000, 0.0) == 20
    assert upload_cost(WeightedTimeCost(CostWeights()), 0, 20_000, 4_000.0) == 100 * 20_000
    assert upload_cost(RequestCount(), 0, -1, 4_000.0) == 0  # a clock that went back
