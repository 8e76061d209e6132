"""Tests turns by weight. V and a number name a case of Hadoop's own tests, with which tests/oracles compares more."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.fair_call_queue_options import settings
from kafka_quota_proxy.proxy.fair_queue.multiplexer import WeightedRoundRobinMultiplexer


@given(weights=st.lists(st.integers(1, 40), min_size=1, max_size=8), cycles=st.integers(1, 5))
def test_each_cycle_gives_each_level_its_weight(weights: list[int], cycles: int) -> None:
    multiplexer = WeightedRoundRobinMultiplexer(weights)

    for _ in range(cycles):
        turns = [multiplexer.next() for _ in range(sum(weights))]

        assert turns == sorted(turns)
        assert Counter(turns) == dict(enumerate(weights))


@pytest.mark.parametrize(
    ("levels", "turns"),
    [
        pytest.param(1, [0] * 10, id="V5"),
        pytest.param(2, [0, 0, 1, 0, 0, 1], id="V6"),
        pytest.param(3, [0, 0, 0, 0, 1, 1, 2, 0], id="V7"),
    ],
)
def test_default_weights_halve_from_level_to_level(levels: int, turns: list[int]) -> None:
    multiplexer = WeightedRoundRobinMultiplexer(settings({"levels": levels}).multiplexer_weights)

    assert [multiplexer.next() for _ in turns] == turns


@pytest.mark.parametrize("weights", [pytest.param((), id="V1"), (2, 0, 1), (1, -1)])
def test_no_level_and_levels_without_a_turn_are_refused(weights: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"there must be a level|weights must be at least 1"):
        WeightedRoundRobinMultiplexer(weights)
