"""Tests turns by weight. ``test_vectors`` has the sequences of Hadoop's own tests."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.proxy.fair_queue.multiplexer import WeightedRoundRobinMultiplexer


@given(weights=st.lists(st.integers(1, 40), min_size=1, max_size=8), cycles=st.integers(1, 5))
def test_each_cycle_gives_each_level_its_weight(weights: list[int], cycles: int) -> None:
    multiplexer = WeightedRoundRobinMultiplexer(weights)

    for _ in range(cycles):
        turns = [multiplexer.next() for _ in range(sum(weights))]

        assert turns == sorted(turns)
        assert Counter(turns) == dict(enumerate(weights))
