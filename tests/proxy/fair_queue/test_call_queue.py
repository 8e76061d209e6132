"""Tests the call queue. tests/oracles compares it with Hadoop's class."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.fair_call_queue_options import settings
from kafka_quota_proxy.proxy.fair_queue.call_queue import CallQueue, Shape, shape_of


@dataclass(eq=False)
class Call:
    level: int = 0
    identity: str = "user"


def queue_of(levels: int = 2, capacity: int = 2, **options: object) -> CallQueue[Call]:
    return CallQueue(shape_of(settings({"levels": levels, "capacity": capacity, **options})))


def drained(queue: CallQueue[Call]) -> list[Call]:
    calls = []
    while (call := queue.poll()) is not None:
        calls.append(call)
    return calls


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    levels = draw(st.integers(1, 5))
    capacities, weights = (st.lists(st.integers(1, 9), min_size=levels, max_size=levels) for _ in range(2))
    return Shape(tuple(draw(capacities)), tuple(draw(weights)), draw(st.booleans()))


# -- room --


def test_a_waiting_element_takes_the_first_free_place_from_its_level_down() -> None:
    queue = queue_of(3, 3)
    running = [Call(level) for level in range(3)]
    low, middle, high = Call(2), Call(1), Call(0)
    for call in (*running, low, middle, high):
        queue.put(call)

    queue.remove(running[0])
    assert queue.sizes[0] == 1
    queue.remove(running[2])
    queue.remove(low)
    assert queue.sizes == (1, 1, 1)
    assert drained(queue) == [high, running[1], middle]


def test_a_free_place_goes_to_the_element_that_waited_longest() -> None:
    queue = queue_of(2, 2)
    running, low, high = [Call(0), Call(1)], Call(1), Call(0)
    for call in (*running, low, high):
        queue.put(call)

    queue.remove(running[1])  # both may enter this level
    assert queue.poll() is running[0]  # and only one the other

    assert (queue.sizes, queue.waiting_for_room) == ((1, 1), 0)


def test_a_removed_waiting_element_does_not_delay_others() -> None:
    queue = queue_of(1, 1)
    first, gone, last = (Call() for _ in range(3))
    for call in (first, gone, last):
        queue.put(call)

    assert queue.remove(gone)

    assert drained(queue) == [first, last]
    assert not queue.remove(gone)


def test_a_removal_uses_no_turn() -> None:
    queue = queue_of(2, 20, multiplexer_weights=(2, 1))
    gone = [Call(0), Call(1)]
    kept = [Call(level) for level in (0, 0, 1, 0, 0, 1)]
    for call in (*gone, *kept):
        queue.put(call)

    assert all(queue.remove(call) for call in gone)

    assert [call.level for call in drained(queue)] == [0, 0, 1, 0, 0, 1]


def test_elements_overflow_into_lower_levels_and_are_counted() -> None:
    """V15 to V17 of Hadoop's own tests."""
    queue = queue_of(3, 6)
    seen = [(queue.add(Call(level)), queue.sizes, list(queue.overflowed)) for level in (0, 1, 0, 0, 1, 0)]
    assert seen == [
        (True, (1, 0, 0), [0, 0, 0]),
        (True, (1, 1, 0), [0, 0, 0]),
        (True, (2, 1, 0), [0, 0, 0]),
        (True, (2, 2, 0), [1, 0, 0]),
        (True, (2, 2, 1), [1, 1, 0]),
        (True, (2, 2, 2), [2, 2, 0]),
    ]

    refused = [(queue.add(Call(level)), list(queue.overflowed)) for level in (0, 1, 2)]
    assert refused == [(False, [3, 3, 1]), (False, [3, 4, 2]), (False, [3, 4, 3])]

    for level in (0, 2):
        queue.put(Call(level))
        assert queue.overflowed == [4, 5, 3], "a put does not count the last level"
    assert queue.waiting_for_room == 2


@pytest.mark.parametrize(
    ("capacity", "weights", "sizes"),
    [
        (1_000, (1, 1, 1, 1), (250,) * 4),
        (1_000, (4, 3, 2, 1), (400, 300, 200, 100)),
        (1_025, (7, 6, 5, 4, 3, 2, 1), (256, 220, 183, 146, 110, 73, 37)),
    ],
)
def test_capacity_is_divided_by_weights(capacity: int, weights: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    assert queue_of(len(weights), capacity, capacity_weights=weights).capacities == sizes
    assert sum(sizes) == capacity


def test_a_level_beyond_the_last_is_refused_as_the_last() -> None:
    queue = queue_of(2, 2)

    assert [queue.add(Call(9)) for _ in range(2)] == [True, False]


# -- within a level --


def test_identities_take_turns_with_round_robin() -> None:
    queue = queue_of(1, 20)
    for identity in "aaaabbc":
        queue.put(Call(identity=identity))

    assert "".join(call.identity for call in drained(queue)) == "abcabaa"


# -- properties --


@given(weights=st.lists(st.integers(1, 9), min_size=2, max_size=5), ahead=st.integers(0, 5))
def test_no_level_starves(weights: list[int], ahead: int) -> None:
    """A call behind ``ahead`` others in the lowest level is taken within ``ahead + 1`` cycles."""
    levels = len(weights)
    queue = queue_of(levels, 60 * levels, multiplexer_weights=weights)
    for level in range(levels - 1):
        for _ in range(60):
            queue.add(Call(level))
    lowest = [Call(levels - 1) for _ in range(ahead + 1)]
    for call in lowest:
        queue.add(call)

    for _ in range(sum(weights) * (ahead + 1)):
        taken = queue.poll()
        assert taken is not None
        if taken is lowest[-1]:
            return
        if taken.level < levels - 1:
            queue.add(Call(taken.level))

    pytest.fail("it waits still")


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(("put", "put", "add", "poll", "poll", "remove", "replace")),
        st.integers(0, 4),
        st.integers(0, 3),
    ),
    max_size=120,
)


@given(shape=shapes(), others=st.lists(shapes(), min_size=1, max_size=3), operations=OPERATIONS)
def test_no_element_is_lost_or_doubled(
    shape: Shape, others: list[Shape], operations: list[tuple[str, int, int]]
) -> None:
    queue: CallQueue[Call] = CallQueue(shape)
    inside: list[Call] = []

    for operation, level, number in operations:
        call = Call(level, str(number))
        match operation:
            case "put":
                queue.put(call)
                inside.append(call)
            case "add" if queue.add(call):
                inside.append(call)
            case "poll":
                polled = queue.poll()
                assert (polled is None) == (not inside)
                if polled is not None:
                    inside.remove(polled)
            case "remove" if inside:
                gone = inside.pop(number % len(inside))
                assert queue.remove(gone)
                assert not queue.remove(gone)
            case "replace":
                replacement: CallQueue[Call] = CallQueue(others[number % len(others)])
                replacement.take_over(queue)
                assert len(queue) == 0
                queue = replacement

        assert len(queue) == len(inside)
        assert queue.size == sum(queue.sizes)
        assert all(size <= most for size, most in zip(queue.sizes, queue.capacities, strict=True))
        if queue.waiting_for_room:
            assert queue.sizes[-1] == queue.capacities[-1]

    assert Counter(map(id, drained(queue))) == Counter(map(id, inside))


@given(levels=st.lists(st.integers(0, 4), max_size=80), lowest=st.integers(0, 4), is_round_robin=st.booleans())
def test_a_level_is_first_in_first_out_for_an_identity(levels: list[int], lowest: int, is_round_robin: bool) -> None:
    queue: CallQueue[Call] = CallQueue(Shape((80,) * (lowest + 1), (1,) * (lowest + 1), is_round_robin))
    calls = [Call(level) for level in levels]
    for call in calls:
        queue.put(call)

    places = {id(call): n for n, call in enumerate(calls)}
    taken = drained(queue)
    for level in range(lowest + 1):
        # Elements for a level below the lowest are in the lowest, in the same order.
        own = [places[id(call)] for call in taken if min(call.level, lowest) == level]
        assert all(earlier < later for earlier, later in pairwise(own))


def test_overflow_counts_survive_a_change_of_shape() -> None:
    queue = queue_of(2, 2)
    for _ in range(3):
        queue.add(Call(0))
    assert queue.overflowed == [2, 1]

    wider = queue_of(3, 3)
    wider.take_over(queue)
    narrower = queue_of(1, 1)
    narrower.take_over(wider)

    assert (wider.overflowed, narrower.overflowed) == ([2, 1, 0], [2])
    assert (narrower.size, narrower.waiting_for_room) == (1, 1)
