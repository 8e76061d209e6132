"""Tests of ``pipeline.arrivals``."""

import math
from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafka_quota_proxy.pipeline.arrivals import LEAST_PARTS, ArrivalQueue, NeighbourRates, Parts
from kafka_quota_proxy.pipeline.arrivals import parts as parts_in_arrays
from tests.pipeline.literal_replay import Demand, arrays, beside, parts, parts_of
from tests.support.cases import A_THIRD

START_MS = 1_000_000
# Rates of neighbour records, in bytes per millisecond.
finite_rates = st.one_of(st.just(0.0), st.floats(0.001, 1_000))
rates = st.one_of(st.just(math.inf), finite_rates)

demands = st.lists(
    st.builds(
        Demand,
        start_ms=st.integers(0, 30_000),
        interval_ms=st.sampled_from([0, 1, 250, 1_000, 90_000]),
        amount=st.integers(0, 10_000),
        requests=st.integers(0, 300),
        before=rates,
        after=rates,
    ),
    min_size=1,
    max_size=20,
).map(lambda found: sorted(found, key=lambda demand: demand.start_ms))


def pairs(found: Parts) -> list[tuple[int, int]]:
    """Return the arrival time and the amount of each part."""
    return list(zip(found.at_ms.tolist(), found.amount.tolist(), strict=True))


def one_by_one(given: list[Demand]) -> list[tuple[int, int]]:
    """Return the same pairs, from records that are cut one by one."""
    return sorted((part for demand in given for part in parts(demand)), key=lambda part: part[0])


@given(
    demand=st.builds(
        Demand,
        start_ms=st.integers(0, 10_000),
        interval_ms=st.integers(0, 90_000),
        amount=st.integers(0, 10_000),
        requests=st.integers(0, 300),
        before=rates,
        after=rates,
    )
)
def test_parts_lie_within_their_interval_in_order_and_add_up(demand: Demand) -> None:
    found = pairs(parts_in_arrays(arrays([demand])))

    assert sum(amount for _, amount in found) == demand.amount
    assert len(found) == parts_of(demand.requests, demand.interval_ms) <= max(LEAST_PARTS, 90)
    times = [at_ms for at_ms, _ in found]
    assert times == sorted(times)
    assert demand.start_ms <= times[0] <= times[-1] <= demand.start_ms + demand.interval_ms


@A_THIRD
@given(given=demands)
def test_many_records_are_cut_as_each_is_by_itself(given: list[Demand]) -> None:
    assert pairs(parts_in_arrays(arrays(given))) == one_by_one(given)


def test_parts_are_exact_when_products_exceed_64_bits() -> None:
    given = [Demand(0, 86_400_000, 10**15, 10**6), Demand(1, 86_400_000, 10**15 + 1, 10**6)]

    for some in (given[:1], given):
        assert pairs(parts_in_arrays(arrays(some))) == one_by_one(some)


@A_THIRD
@given(given=demands, at_once=st.integers(1, 20))
def test_due_parts_come_in_order(given: list[Demand], at_once: int) -> None:
    queue = ArrivalQueue()

    due = [one for first in range(0, len(given), at_once) for one in queue.take(arrays(given[first : first + at_once]))]
    due.append(queue.rest())

    assert list(chain(*map(pairs, due))) == one_by_one(given)
    covered = {ms for demand in given for ms in range(demand.start_ms, demand.start_ms + demand.interval_ms)}
    assert queue.active_ms == len(covered)


def times(demand: Demand) -> list[int]:
    """Return the time from the start of the record to the arrival of each part."""
    return [int(at_ms) - demand.start_ms for at_ms in parts_in_arrays(arrays([demand])).at_ms]


def record(amount: int, *, before: float, after: float, interval_ms: int = 1_000, requests: int = 4) -> Demand:
    """Return a record with the rates of its neighbour records."""
    return Demand(START_MS, interval_ms, amount, requests, before, after)


@pytest.mark.parametrize(
    ("amount", "before", "after", "expected"),
    [
        (
            4_000,
            math.inf,
            math.inf,
            [125, 375, 625, 875],
        ),  # the neighbour rates are unknown, so the parts are spread evenly
        (4_000, 4.0, 4.0, [125, 375, 625, 875]),
        (
            4_000,
            9.0,
            5.0,
            [125, 375, 625, 875],
        ),  # the rate is below both neighbour rates, so the parts are spread evenly
        (4_000, 0.0, 8.0, [562, 687, 812, 937]),  # 8 bytes per millisecond, from the middle on
        (4_000, 8.0, 0.0, [62, 187, 312, 437]),
        (4_000, 2.0, 6.0, [250, 583, 750, 916]),  # 2 bytes per millisecond until the middle, then 6
        (4_000, 0.0, 0.0, [500, 500, 500, 500]),  # a single burst in the middle
        (4_000, 1.0, 0.0, [500, 500, 500, 500]),  # 1 byte per millisecond, and a burst of 3,000
        (4_000, 1.0, 3.0, [166, 500, 500, 833]),  # 3 bytes per millisecond, and a burst of 1,000
    ],
)
def test_arrival_times_follow_from_adjacent_records(
    amount: int, before: float, after: float, expected: list[int]
) -> None:
    assert times(record(amount, before=before, after=after)) == expected


def test_parts_of_long_intervals_are_spread_evenly() -> None:
    assert times(record(4_000, before=0.0, after=0.0, interval_ms=2_000)) == [1_000] * 4
    assert times(record(4_000, before=0.0, after=0.0, interval_ms=2_001)) == [250, 750, 1_250, 1_750]


def test_a_load_is_reconstructed_wherever_it_begins_and_ends() -> None:
    # 600 bytes per millisecond, from 300 ms after the start of the first second until 200 ms after that of the last.
    amounts = [420_000, 600_000, 600_000, 120_000]
    log = [Demand(START_MS + at * 1_000, 1_000, amount, 50) for at, amount in enumerate(amounts)]

    found = parts_in_arrays(arrays(beside(log)))

    assert len(found.at_ms) == 4 * LEAST_PARTS
    came = 0
    for at_ms, amount in zip(found.at_ms.tolist(), found.amount.tolist(), strict=True):
        assert at_ms - START_MS == pytest.approx(300 + (came + amount / 2) / 600, abs=1)
        came += amount
    assert came == sum(amounts)


@given(amount=st.integers(1, 10**6), before=finite_rates, after=finite_rates, requests=st.integers(1, 60))
@example(amount=126, before=0.0, after=0.125, requests=2)
def test_parts_are_no_faster_than_adjacent_records_except_for_a_burst(
    amount: int, before: float, after: float, requests: int
) -> None:
    demand = record(amount, before=before, after=after, requests=requests)

    found = times(demand)

    rate = max(before, after, amount / demand.interval_ms)
    size = amount / len(found)
    for at_ms, following_ms in pairwise(found):
        # Parts on opposite sides of a burst may lie closer together. Times are whole milliseconds.
        assert at_ms <= 500 <= following_ms or (following_ms - at_ms + 1) * rate >= size * 0.999


SECOND = (1_000, 2_000, 1)  # interval, amount, requests


def told(given: list[tuple[int, Demand]], at_once: int = 1_000) -> list[Demand]:
    """Return the records with their neighbour rates. Each given record comes with its client's number."""
    found, ones = list[Demand](), NeighbourRates()
    for first in range(0, len(given), at_once):
        some = given[first : first + at_once]
        columns = [np.array([demand[at] for _, demand in some], np.int64) for at in range(4)]
        who = np.array([number for number, _ in some], np.int64)
        found += map(Demand._make, zip(*(c.tolist() for c in ones.take(columns[0], who, *columns[1:])), strict=True))
    return found + [Demand._make(one) for one in zip(*(column.tolist() for column in ones.rest()), strict=True)]


def test_a_record_is_held_until_its_successor_arrives_or_is_too_late() -> None:
    ones = NeighbourRates()
    column = [np.array([at], np.int64) for at in SECOND]

    assert len(ones.take(np.array([0]), np.array([1]), *column).start_ms) == 0
    assert len(ones.take(np.array([1_000]), np.array([2]), *column).start_ms) == 0
    assert ones.take(np.array([1_499]), np.array([1]), *column).after.tolist() == [2.0]
    assert ones.take(np.array([2_500]), np.array([3]), *column).start_ms.tolist() == [1_000]


@pytest.mark.parametrize(("gap_ms", "rate"), [(0, 2.0), (-3, 2.0), (499, 2.0), (500, 0.0), (-500, 0.0)])
def test_records_do_not_adjoin_across_half_an_interval(gap_ms: int, rate: float) -> None:
    first, second = told([(1, Demand(0, *SECOND)), (1, Demand(1_000 + gap_ms, *SECOND))])

    assert (first.before, first.after) == (0.0, rate)
    assert (second.before, second.after) == (rate, 0.0)


records = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.builds(
            Demand,
            start_ms=st.integers(0, 60).map(lambda tick: tick * 250),
            interval_ms=st.sampled_from([1, 250, 500, 1_000, 2_000, 2_001, 10_000]),
            amount=st.integers(-10, 10_000),
            requests=st.integers(0, 5),
            before=st.just(0.0),
            after=st.just(0.0),
        ),
    ),
    max_size=30,
).map(lambda found: sorted(found, key=lambda one: one[1].start_ms))


@A_THIRD
@given(given=records, at_once=st.integers(1, 30))
def test_rates_do_not_depend_on_batches_or_other_clients(given: list[tuple[int, Demand]], at_once: int) -> None:
    expected = {
        who: beside([demand for number, demand in given if number == who]) for who in {number for number, _ in given}
    }
    all_known = [expected[who].pop(0) for who, _ in given]

    found = told(given, at_once)

    # A record of more than two seconds is spread evenly, so its neighbour rates are neither kept nor waited for.
    assert [shaped(one) for one in found] == [shaped(one) for one in all_known]


def shaped(demand: Demand) -> Demand:
    """Return a record, without the neighbour rates if it are too long for them to be used."""
    return demand._replace(before=0.0, after=0.0) if demand.interval_ms > 2_000 else demand
