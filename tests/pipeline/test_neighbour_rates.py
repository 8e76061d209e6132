"""The rates of a client's neighbour records, for any mix of clients and any number of rows in a batch."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.pipeline.neighbour_rates import NeighbourRates
from tests.pipeline.literal_replay import Demand, beside

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
