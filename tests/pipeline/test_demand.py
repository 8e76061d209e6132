"""Records become parts, in arrays: as they are cut one by one."""

from itertools import chain

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipeline.demand import Line, Parts
from pipeline.demand import parts as parts_in_arrays
from tests.pipeline.literal_replay import Demand, arrays, parts, parts_of

demands = st.lists(
    st.builds(
        Demand,
        start_ms=st.integers(0, 30_000),
        interval_ms=st.sampled_from([0, 1, 250, 1_000, 90_000]),
        amount=st.integers(0, 10_000),
        requests=st.integers(0, 300),
        connections=st.integers(1, 9),
    ),
    min_size=1,
    max_size=20,
).map(lambda found: sorted(found, key=lambda demand: demand.start_ms))


def pairs(found: Parts) -> list[tuple[int, int]]:
    """Return when each part comes, and how much it is."""
    return list(zip(found.at_ms.tolist(), found.amount.tolist(), strict=True))


def one_by_one(given: list[Demand]) -> list[tuple[int, int]]:
    """Return the same, cut one by one."""
    return sorted((part for demand in given for part in parts(demand)), key=lambda part: part[0])


@given(
    demand=st.builds(
        Demand,
        start_ms=st.integers(0, 10_000),
        interval_ms=st.integers(0, 90_000),
        amount=st.integers(0, 10_000),
        requests=st.integers(0, 300),
        connections=st.just(1),
    )
)
def test_parts_lie_within_their_interval_in_order_and_add_up(demand: Demand) -> None:
    found = pairs(parts_in_arrays(arrays([demand])))

    assert sum(amount for _, amount in found) == demand.amount
    assert len(found) == parts_of(demand.requests, demand.interval_ms) <= max(10, 90)
    times = [at_ms for at_ms, _ in found]
    assert times == sorted(times)
    assert demand.start_ms <= times[0] <= times[-1] <= demand.start_ms + demand.interval_ms


@given(given=demands)
def test_many_records_are_cut_as_each_is_by_itself(given: list[Demand]) -> None:
    assert pairs(parts_in_arrays(arrays(given))) == one_by_one(given)


def test_parts_are_right_where_products_of_whole_numbers_have_no_room() -> None:
    given = [Demand(0, 86_400_000, 10**15, 10**6, 1), Demand(1, 86_400_000, 10**15 + 1, 10**6, 1)]

    for some in (given[:1], given):
        assert pairs(parts_in_arrays(arrays(some))) == one_by_one(some)


@given(given=demands, at_once=st.integers(1, 20))
def test_what_is_due_comes_in_order_and_knows_its_connections(given: list[Demand], at_once: int) -> None:
    line = Line()

    due = [one for first in range(0, len(given), at_once) for one in line.take(arrays(given[first : first + at_once]))]
    due.append(line.rest())

    assert list(chain(*(pairs(one.parts) for one in due))) == one_by_one(given)
    for one in due:
        for at_ms in one.parts.at_ms.tolist():
            begun = int(np.searchsorted(one.since_ms, at_ms, "right"))
            *_, last = (demand for demand in given if demand.start_ms <= at_ms)
            assert one.connections[begun - 1] == last.connections
    assert line.amount == sum(demand.amount for demand in given)
    covered = {ms for demand in given for ms in range(demand.start_ms, demand.start_ms + demand.interval_ms)}
    assert (line.first_ms, line.active_ms) == (given[0].start_ms, len(covered))
