"""Tests the forms and the defaults of Hadoop's keys."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.fair_call_queue import (
    CallQueueImpl,
    CostProvider,
    CostWeights,
    FairCallQueue,
    IdentityProvider,
    SchedulerImpl,
    WithinLevel,
    places,
)
from kafka_quota_proxy.config.fair_call_queue_options import (
    DEFAULTS,
    MAX_LEVELS,
    parse_durations_ms,
    parse_implementation,
    parse_max_in_flight,
    parse_names,
    parse_per_cents,
    parse_turns,
    parse_whole_numbers,
    settings,
)
from tests.support.cases import each_case

IPC = "org.apache.hadoop.ipc"
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


# -- how values are written --


@each_case(
    "value, expected",
    [
        ("8,4,2,1", (8, 4, 2, 1)),
        (" 99 , 1", (99, 1)),
        ([7, 3], (7, 3)),
        (["7", 3], (7, 3)),
        (90, (90,)),
        ("90", (90,)),
        (2**31 - 1, (2**31 - 1,)),
        ("8,4 ,\n2\n1,", (8, 4, 2, 1)),
        ("+8,4", (8, 4)),
        ("", ()),
        (" ", ()),
        ([], ()),
    ],
)
def test_a_list_of_numbers_is_text_as_in_hadoop_or_a_list_of_yaml(value: object, expected: tuple[int, ...]) -> None:
    assert parse_whole_numbers(value) == expected


@each_case(
    "value",
    [
        "8,,1",
        ",8",
        "8;4",
        "0.125",
        "0",
        "-1",
        "+-1",
        [0],
        [1.5],
        [True],
        [None],
        None,
        {},
        12.5,
        2**31,
        "2147483648",
        "²",
    ],
)
def test_a_list_with_other_than_numbers_above_0_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="whole number"):
        parse_whole_numbers(value)


def test_thresholds_ascend() -> None:
    assert parse_per_cents("1,50,99") == (1, 50, 99)
    for descending in ("50,25", "13,13"):
        with pytest.raises(ValueError, match="must ascend"):
            parse_per_cents(descending)


@each_case("value", ["8,0,2,1", [8, -4, 2, 1]])
def test_turns_that_make_hadoop_loop_for_ever_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="Hadoop takes it, and then serves one level for ever"):
        parse_turns(value)


@each_case(
    "value, expected",
    [
        ("10s,20s", (10_000, 20_000)),
        ("500ms, 1m", (500, 60_000)),
        (["0.5s", 700, "800"], (500, 700, 800)),
        (2_000, (2_000,)),
        ("1h", (3_600_000,)),
        ("600H", (2_160_000_000,)),
        ("2d", (172_800_000,)),
        ("10S,1500us,2999999ns", (10_000, 1, 2)),
        ("10s,", (10_000,)),
        ("", ()),
        ([], ()),
    ],
)
def test_a_bare_duration_is_milliseconds_as_in_hadoop(value: object, expected: tuple[int, ...]) -> None:
    assert parse_durations_ms(value) == expected


@each_case("value", [0, "0s", "999us", "1.5us", ",10s", [True], [None], {}, None, "-1s", ".5s", [1e-9]])
def test_a_list_with_other_than_durations_above_0_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"duration|above 0|milliseconds"):
        parse_durations_ms(value)


@each_case(
    "value, expected",
    [("", set()), ([], set()), ("hdfs, hive", {"hdfs", "hive"}), (["a", "b"], {"a", "b"}), ("a,,b,", {"a", "b"})],
)
def test_names_are_trimmed_unlike_in_hadoop(value: object, expected: set[str]) -> None:
    assert parse_names(value) == expected


@each_case("value", [None, 7, [7], {"a": 1}, True])
def test_a_value_that_is_no_name_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="must be names"):
        parse_names(value)


@each_case(
    "name, expected",
    [
        ("fair", CallQueueImpl.FAIR),
        ("fifo", CallQueueImpl.FIFO),
        (f"{IPC}.FairCallQueue", CallQueueImpl.FAIR),
        ("java.util.concurrent.LinkedBlockingQueue", CallQueueImpl.FIFO),
        ("decay", SchedulerImpl.DECAY),
        (f"{IPC}.DecayRpcScheduler", SchedulerImpl.DECAY),
        (f"{IPC}.DefaultRpcScheduler", SchedulerImpl.DEFAULT),
        ("user-client-id", IdentityProvider.USER_CLIENT_ID),
        (f"{IPC}.UserIdentityProvider", IdentityProvider.USER),
        (f"{IPC}.DefaultCostProvider", CostProvider.DEFAULT),
        (f"{IPC}.WeightedTimeCostProvider", CostProvider.WEIGHTED),
        ("traffic", CostProvider.TRAFFIC),
    ],
)
def test_an_implementation_has_a_word_or_the_name_of_hadoops_class(name: str, expected: CallQueueImpl) -> None:
    assert parse_implementation(name, type(expected)) is expected


@each_case("value", ["FairCallQueue", f"{IPC}.DecayRpcScheduler", "", None, 1, ["fair"]])
def test_an_unknown_class_is_refused_with_the_known_ones(value: object) -> None:
    with pytest.raises(ValueError, match=r"must be fair or fifo, or of Hadoop's classes org\.apache"):
        parse_implementation(value, CallQueueImpl)


@each_case("value, expected", [("adaptive", None), (1, 1), (2**31 - 1, 2**31 - 1)])
def test_requests_in_flight_are_a_number_or_adaptive(value: object, expected: int | None) -> None:
    assert parse_max_in_flight(value) == expected


@each_case("value", [0, -1, True, "8", None, "Adaptive", 2**31, 1.0])
def test_other_numbers_of_requests_in_flight_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="must be adaptive, or a whole number"):
        parse_max_in_flight(value)


@given(ANYTHING)
def test_any_value_is_parsed_or_a_value_error(value: object) -> None:
    for parse in (parse_whole_numbers, parse_durations_ms, parse_names, parse_max_in_flight):
        try:
            parse(value)
        except ValueError as error:
            assert len(str(error)) < 400  # noqa: PT017


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


def test_an_older_key_wins_if_it_is_set() -> None:
    new = {"levels": 4, "period_ms": 1_000, "decay_factor": 0.1, "thresholds": (1, 2, 3)}
    old = {"deprecated_levels": 2, "deprecated_period_ms": 9, "deprecated_decay_factor": 0.9}

    found = settings(new | old | {"deprecated_thresholds": (90,)})
    unset = settings(new | {"deprecated_levels": 0, "deprecated_period_ms": 0, "deprecated_decay_factor": 0})

    assert (found.levels, found.period_ms, found.decay_factor, found.thresholds) == (2, 9, 0.9, (0.9,))
    assert found.multiplexer_weights == (2, 1)
    assert (unset.levels, unset.period_ms, unset.decay_factor) == (4, 1_000, 0.1)
    assert unset.thresholds == (0.01, 0.02, 0.03)


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
