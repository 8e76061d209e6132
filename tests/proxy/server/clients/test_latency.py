"""Tests the histograms of the time that requests spend in the proxy."""

from itertools import pairwise

import pytest

from kafka_quota_proxy.protocol.api import ApiKey
from kafka_quota_proxy.proxy.server.clients.latency import BOUNDS_NS, OTHER, Latency


def test_the_bounds_are_whole_nanoseconds_and_rise_from_4_us_to_a_second() -> None:
    assert BOUNDS_NS[0] == 4_095
    assert BOUNDS_NS[-1] == 1_073_741_823
    assert all(lower < upper for lower, upper in pairwise(BOUNDS_NS))


@pytest.mark.parametrize(
    ("elapsed_ns", "place"),
    [
        (0, 0),
        (4_095, 0),
        (4_096, 1),
        (8_191, 1),
        (1_073_741_823, len(BOUNDS_NS) - 1),
        (1_073_741_824, len(BOUNDS_NS)),
        (2**63, len(BOUNDS_NS)),
    ],
)
def test_a_time_counts_under_the_first_bound_that_it_does_not_exceed(elapsed_ns: int, place: int) -> None:
    latency = Latency()

    latency.observe(ApiKey.PRODUCE, elapsed_ns)

    assert latency.counts[ApiKey.PRODUCE][place] == 1
    assert sum(latency.counts[ApiKey.PRODUCE]) == 1


def test_each_api_has_a_histogram_and_a_sum_of_its_own() -> None:
    latency = Latency()

    latency.observe(ApiKey.PRODUCE, 7_000)
    latency.observe(ApiKey.PRODUCE, 8_000)
    latency.observe(ApiKey.FETCH, 1)

    assert {key: sum(counts) for key, counts in latency.counts.items()} == {ApiKey.PRODUCE: 2, ApiKey.FETCH: 1}
    assert latency.sums_ns == {ApiKey.PRODUCE: 15_000, ApiKey.FETCH: 1}


def test_unknown_api_keys_share_one_histogram() -> None:
    latency = Latency()

    for api_key in range(1_000, 3_000):
        latency.observe(api_key, 5)
    latency.observe(ApiKey.PRODUCE, 1)

    assert {key: sum(counts) for key, counts in latency.counts.items()} == {OTHER: 2_000, ApiKey.PRODUCE: 1}
    assert latency.sums_ns == {OTHER: 10_000, ApiKey.PRODUCE: 1}
