"""Tests rates over sampled windows. tests/oracles compares them with Kafka's, to the last bit."""

from contextlib import suppress
from copy import copy, deepcopy
from inspect import isdatadescriptor
from typing import NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from kafka_quota_proxy.proxy.quota.rate import Rate

# Clocks that have just started, that have run for days, and that count from 1970.
STARTS_MS = (0, 1, 17, 999, 86_400_000, 1_767_225_600_000)


class Shape(NamedTuple):
    """The number of windows and their length."""

    samples: int
    window_ms: int


RECORD, MEASURE, WINDOW, PEEK = "record", "measure", "window", "peek"
Step = tuple[int, str, int]


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    samples = draw(st.sampled_from([2, 3, 5, 11]))
    return Shape(samples=samples, window_ms=draw(st.sampled_from([1, 2, 10, 1_000, 30_000])))


@st.composite
def histories(draw: st.DrawFn) -> tuple[Shape, int, list[Step]]:
    """Draw a configuration, a start, and steps. A step is a pause in ms, an action and a value."""
    config = draw(shapes())
    window_ms, span_ms = config.window_ms, config.samples * config.window_ms
    edges = [0, 1, window_ms - 1, window_ms, window_ms + 1, span_ms - window_ms, span_ms - 1, span_ms, span_ms + 1]
    pauses = st.one_of(
        st.just(0), st.sampled_from(edges), st.integers(0, window_ms), st.integers(0, span_ms + 3 * window_ms)
    )
    values = st.one_of(st.integers(-1_000, 5_000), st.integers(0, 2**31 - 1))
    actions = st.sampled_from([RECORD, RECORD, RECORD, MEASURE, WINDOW, PEEK])
    steps = draw(st.lists(st.tuples(pauses, actions, values), max_size=60))
    return config, draw(st.sampled_from(STARTS_MS)), steps


def rate_of(config: Shape) -> Rate:
    return Rate(samples=config.samples, window_ms=config.window_ms)


def copied(rate: Rate, other: Rate) -> Rate:
    """Return ``other`` with the state of ``rate``. The copy module cannot copy what is compiled."""
    for name, attribute in vars(Rate).items():
        if isdatadescriptor(attribute):
            with suppress(AttributeError):  # a property
                setattr(other, name, copy(getattr(rate, name)))
    return other


@given(history=histories(), more=st.integers(1, 10_000))
@example(
    # A measurement has reset the slot that the record would reuse. It starts later than the slot that leaves now.
    history=(
        Shape(samples=2, window_ms=1_000),
        0,
        [(0, RECORD, 5), (1_001, RECORD, 5), (999, MEASURE, 0), (1, RECORD, 5), (1_000, PEEK, 0)],
    ),
    more=1,
)
def test_peek_with_more_predicts_the_rate_after_a_record(history: tuple[Shape, int, list[Step]], more: int) -> None:
    config, now_ms, steps = history
    rate = rate_of(config)
    for pause_ms, action, value in steps:
        now_ms += pause_ms
        if action == RECORD:
            rate.record(value, now_ms=now_ms)
        elif action == MEASURE:
            rate.measure(now_ms=now_ms)

        predicted = rate.peek(now_ms=now_ms, more=more)

        recorded = copied(rate, rate_of(config))
        recorded.record(more, now_ms=now_ms)
        assert predicted == recorded.measure(now_ms=now_ms)


@given(history=histories(), amount=st.integers(1, 10**9))
def test_negative_record_at_once_restores_the_total(history: tuple[Shape, int, list[Step]], amount: int) -> None:
    config, now_ms, steps = history
    rate = rate_of(config)
    for pause_ms, _, value in steps:
        now_ms += pause_ms
        rate.record(value, now_ms=now_ms)
    rate.measure(now_ms=now_ms)
    before = rate.total

    rate.record(amount, now_ms=now_ms)
    rate.record(-amount, now_ms=now_ms)

    assert rate.total == before
    # The sum is still zero when the slot with both records has left.
    assert rate.measure(now_ms=now_ms + 2 * config.samples * config.window_ms) == 0


def test_the_origin_of_the_clock_does_not_matter() -> None:
    for start_ms in STARTS_MS:
        rate = Rate(samples=11, window_ms=1_000)
        for second in range(30):
            rate.record(1_000, now_ms=start_ms + second * 1_000)

        now_ms = start_ms + 29_500

        # These are the slots of the seconds 19 to 29.
        assert rate.measure(now_ms=now_ms) == 11_000 / 10.5, start_ms
        assert rate.peek(now_ms=now_ms) == 11_000 / 10.5, start_ms
        assert rate.window_ms(now_ms=now_ms) == 10_500, start_ms


@given(histories(), st.sampled_from([0, 1, 100, 1_000, 100_000]), st.integers(0, 40_000))
def test_over_until_ms_is_the_end_of_the_last_record(
    history: tuple[Shape, int, list[Step]], total: int, later_ms: int
) -> None:
    config, now_ms, steps = history
    rate = rate_of(config)
    last_ms = now_ms
    for pause_ms, _, value in steps:
        now_ms += pause_ms
        last_ms = now_ms
        rate.record(abs(value), now_ms=now_ms)
    now_ms += later_ms
    before = deepcopy((rate._slots, rate.total))

    until_ms = rate.over_until_ms(total, now_ms=now_ms)

    over = rate.peek_sum(now_ms=now_ms) > total
    assert until_ms == (last_ms + config.samples * config.window_ms if over else 0)
    assert (rate._slots, rate.total) == before


@given(history=histories(), moved=st.integers(0, 60))
def test_restored_rate_continues_as_the_original(history: tuple[Shape, int, list[Step]], moved: int) -> None:
    config, now_ms, steps = history
    rate = rate_of(config)
    going_on = rate

    for at, (pause_ms, action, value) in enumerate(steps):
        now_ms += pause_ms
        if at == moved:
            going_on = rate_of(config)
            going_on.record(17, now_ms=now_ms)  # restore replaces this record
            going_on.restore(rate.slots())
        if action == RECORD:
            rate.record(value, now_ms=now_ms)
            going_on.record(value, now_ms=now_ms)
        else:
            assert going_on.peek(now_ms=now_ms, more=value) == rate.peek(now_ms=now_ms, more=value)
            assert going_on.over_until_ms(value, now_ms=now_ms) == rate.over_until_ms(value, now_ms=now_ms)
            assert going_on.measure(now_ms=now_ms) == rate.measure(now_ms=now_ms)
