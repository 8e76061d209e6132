"""Tests the growth rates of logs that grow evenly, in steps, or not at all, and that retention shortens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.proxy.cli.reassignment.log_growth import growth, rate


def test_an_even_flow_has_its_rate() -> None:
    assert rate([[500.0] * 10], [500 * index for index in range(11)]) == 1_000


@pytest.mark.parametrize("first", [0, 1])
def test_the_phase_of_samples_does_not_change_the_rate(first: int) -> None:
    steps = [8e6 if index % 2 == first else 0.0 for index in range(10)]

    # Ten samples in five seconds have five steps, which are 40 MB. They count as five seconds, not as four or six.
    assert rate([steps], [500 * index for index in range(11)]) == 8e6


def test_an_unusually_long_pause_counts() -> None:
    steps = [1e6] * 5 + [0.0] * 5

    assert rate([steps], [1_000 * index for index in range(11)]) == pytest.approx(4e6 / 9)


def test_a_single_step_is_spread_over_the_whole_time() -> None:
    assert rate([[0.0, 6e6, 0.0]], [0, 1_000, 2_000, 3_000]) == 2e6


@pytest.mark.parametrize(("growths", "times"), [([], [0]), ([], [0, 1_000]), ([[0.0]], [0, 1_000]), ([[]], [0])])
def test_without_growth_the_rate_is_0(growths: list[list[float]], times: list[int]) -> None:
    assert rate(growths, times) == 0


def test_logs_are_added_before_they_are_measured() -> None:
    """Each of ten partitions grows once in ten seconds, so that together they grow evenly."""
    logs = [[1e6 if second == turn else 0.0 for second in range(10)] for turn in range(10)]

    assert rate(logs, [1_000 * index for index in range(11)]) == 1e6


def test_a_step_backwards_counts_as_the_mean_of_the_others() -> None:
    assert growth([100, -5_000, 300, None], [1_000, 1_000, 1_000, 1_000]) == [100, 200, 300, 0]


def test_only_negative_steps_give_no_growth() -> None:
    assert growth([-1, None], [1_000, 1_000]) == [0, 0]


@given(
    st.lists(st.one_of(st.none(), st.integers(-(10**12), 10**12)), min_size=1, max_size=30),
    st.lists(st.integers(1, 60_000), min_size=30, max_size=30),
)
def test_no_rate_is_negative_or_above_the_fastest_step(steps: list[int | None], durations: list[int]) -> None:
    times = [sum(durations[:index]) for index in range(len(steps) + 1)]

    grown = growth(steps, durations[: len(steps)])

    assert all(step >= 0 for step in grown)
    fastest = max(step * 1_000 / ms for step, ms in zip(grown, durations, strict=False))
    assert 0 <= rate([grown], times) <= fastest * (1 + 1e-9)
