"""Tests the forms and the defaults of Hadoop's keys."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.fair_call_queue import (
    CallQueueImpl,
    CostWeights,
    FairCallQueue,
    SchedulerImpl,
    WithinLevel,
    places,
)
from kafka_quota_proxy.config.fair_call_queue_options import DEFAULTS, MAX_LEVELS, parse_max_in_flight, settings
from tests.support.cases import each_case

# -- how values are written --


@each_case("value, expected", [("adaptive", None), (1, 1), (2**31 - 1, 2**31 - 1)])
def test_requests_in_flight_are_a_number_or_adaptive(value: object, expected: int | None) -> None:
    assert parse_max_in_flight(value) == expected


@each_case("value", [0, -1, True, "8", None, "Adaptive", 2**31, 1.0])
def test_other_numbers_of_requests_in_flight_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="must be adaptive, or a whole number"):
        parse_max_in_flight(value)


# -- defaults --


def test_the_defaults_of_the_model_are_those_of_a_section_without_a_key() -> None:
    assert settings({}) == FairCallQueue() == DEFAULTS


def test_hadoops_defaults_depend_on_the_levels() -> None:
    one, two, three = (settings({"levels": levels}) for levels in (1, 2, 3))

    assert (two.capacity_weights, two.backoff_responsetime_thresholds_ms) == ((1, 1), (10_000, 20_000))
    assert (one.multiplexer_weights, two.multiplexer_weights, three.multiplexer_weights) == ((1,), (2, 1), (4, 2, 1))
    assert (one.thresholds, two.thresholds, three.thresholds) == ((), (0.5,), (0.25, 0.5))


@each_case("levels", [1, MAX_LEVELS])
def test_a_hundred_levels_are_accepted(levels: int) -> None:
    found = settings({"levels": levels})

    assert len(found.thresholds) == levels - 1
    assert list(found.thresholds) == sorted(set(found.thresholds))
    assert all(0 < weight < 2**31 for weight in found.multiplexer_weights)


def test_thresholds_are_per_cents_in_the_file_and_shares_in_the_model() -> None:
    assert settings({"thresholds": (13, 25, 50)}).thresholds == (0.13, 0.25, 0.5)


@each_case(
    "given_, scheduler",
    [
        ({}, SchedulerImpl.DECAY),
        ({"callqueue_impl": CallQueueImpl.FAIR}, SchedulerImpl.DECAY),
        ({"callqueue_impl": CallQueueImpl.FIFO}, SchedulerImpl.DEFAULT),
        ({"callqueue_impl": CallQueueImpl.FIFO, "scheduler_impl": SchedulerImpl.DECAY}, SchedulerImpl.DECAY),
        ({"scheduler_impl": SchedulerImpl.DEFAULT}, SchedulerImpl.DEFAULT),
    ],
)
def test_the_queue_implies_its_scheduler_as_in_hadoop(given_: dict[str, object], scheduler: SchedulerImpl) -> None:
    assert settings(given_).scheduler_impl is scheduler


def test_the_fifo_queue_serves_requests_in_order_of_arrival() -> None:
    assert settings({}).within_level is WithinLevel.ROUND_ROBIN
    assert settings({"callqueue_impl": CallQueueImpl.FIFO}).within_level is WithinLevel.FIFO
    both = {"callqueue_impl": CallQueueImpl.FIFO, "within_level": WithinLevel.ROUND_ROBIN}
    assert settings(both).within_level is WithinLevel.ROUND_ROBIN


def test_weights_of_phases_are_one_value() -> None:
    found = settings({"weight_queue": 5, "weight_lockshared": 0})

    assert found.cost_weights == CostWeights(queue=5, lockshared=0)


# -- room in every level --


@each_case(
    "capacity, weights, expected",
    [
        (4, (1, 1, 1, 1), (1, 1, 1, 1)),
        (3, (1, 1, 1, 1), (1, 1, 1, 0)),
        (199, (50, 50), (100, 99)),
        (1_024, (8, 4, 2, 1), (546, 273, 137, 68)),
        (9, (7, 3), (6, 3)),
        (10, (1, 1, 1), (4, 3, 3)),
        (99, (70, 30), (69, 30)),
        (2, (7, 3), (1, 1)),
        (10, (1_000, 1, 1), (10, 0, 0)),
        (1, (5,), (1,)),
    ],
)
def test_the_remainder_goes_to_the_largest_fractions(
    capacity: int, weights: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert places(capacity, weights) == expected


@given(st.integers(1, 10_000), st.lists(st.integers(1, 100), min_size=1, max_size=8))
def test_the_whole_capacity_is_divided_and_each_level_is_within_one_place_of_its_share(
    capacity: int, weights: list[int]
) -> None:
    sizes = places(capacity, weights)

    assert sum(sizes) == capacity
    for size, weight in zip(sizes, weights, strict=True):
        assert abs(size - Fraction(capacity * weight, sum(weights))) < 1
