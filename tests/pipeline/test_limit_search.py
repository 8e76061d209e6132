"""The search for a limit, with a made-up replay in place of the log."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.pipeline.limit_search import Bounds, LimitSearch, Replayed, rounded_up

BOUNDS = Bounds(share=0.01, delay_ms=30_000)
TOP = 1_000_000


def replay(*, share_from: float = 0, delay_from: float = 0) -> Callable[[int], Replayed]:
    """Return a replay in which the bounds are met from these limits on. Both are exceeded far below them."""

    def found(limit: int) -> Replayed:
        return Replayed(0.0 if limit >= share_from else 0.02, 0 if limit >= delay_from else 30_001)

    return found


def searched(
    found: Callable[[int], Replayed], *, percentile: int = 100_000, top: int = TOP, headroom: float = 1.2
) -> LimitSearch:
    """Return the search after its end."""
    search = LimitSearch(percentile, top, headroom=headroom, bounds=BOUNDS)
    search.take({limit: found(limit) for limit in search.to_replay})
    return search


@pytest.mark.parametrize(("rate", "up"), [(0, 0), (0.2, 1), (999, 999), (123_400, 124_000)])
def test_limits_have_three_digits(rate: float, up: int) -> None:
    assert rounded_up(rate) == up


def test_the_percentile_decides_if_it_throttles_little() -> None:
    search = searched(replay())

    assert (search.need, search.limit, search.decided_by) == (100_000, 120_000, "percentile")


@pytest.mark.parametrize(
    ("found", "decided_by"),
    [
        (replay(share_from=400_000, delay_from=200_000), "share"),
        (replay(share_from=200_000, delay_from=400_000), "delay"),
    ],
)
def test_the_stricter_bound_decides(found: Callable[[int], Replayed], decided_by: str) -> None:
    search = searched(found)

    assert search.decided_by == decided_by
    assert 400_000 <= search.need <= 1.06 * 400_000


@given(
    need=st.integers(1_000, 10_000_000),
    percentile=st.integers(0, 1_000_000),
    headroom=st.floats(1, 3),
    top=st.integers(0, 30_000_000),
)
def test_a_limit_is_the_lowest_that_is_needed_times_the_headroom(
    need: int, percentile: int, headroom: float, top: int
) -> None:
    top = rounded_up(max(top, need))
    search = searched(replay(delay_from=need), percentile=percentile, top=top, headroom=headroom)

    first = max(percentile, 1_000 / headroom)
    assert search.limit >= min(need, top)
    assert search.need * 1.1 >= min(need, top)
    step = max(1.05, (top / first) ** (1 / 48))
    # A candidate is rounded to three digits as often as it is a limit for another.
    assert search.need <= max(first, need * step) * 1.03
    assert search.limit == max(1_000, rounded_up(search.need * headroom))


@pytest.mark.parametrize("headroom", [1.0, 1.2, 2.0])
def test_headroom_decides_about_every_limit(headroom: float) -> None:
    first, second = (searched(found, headroom=headroom) for found in (replay(), replay(delay_from=300_000)))
    bare = searched(replay(delay_from=300_000), headroom=1.0)

    assert first.limit == 100_000 * headroom
    assert second.limit == rounded_up(second.need * headroom)
    assert second.need == pytest.approx(bare.limit, rel=0.05)


def test_a_steady_client_needs_no_more_than_the_percentile() -> None:
    """Under a limit of its own rate, it would be throttled now and then."""
    search = searched(replay(share_from=101_000))

    assert (search.limit, search.decided_by) == (120_000, "percentile")
    assert searched(replay(share_from=101_000), headroom=1.0).limit > 100_000


def test_a_limit_is_at_least_one_kilobyte_per_second() -> None:
    search = searched(replay(), percentile=10, top=1_000)

    assert (search.limit, search.decided_by) == (1_000, "minimum")


@given(headroom=st.floats(1, 3), percentile=st.integers(0, 1_000_000), top=st.integers(0, 30_000_000))
def test_few_limits_are_replayed(headroom: float, percentile: int, top: int) -> None:
    search = LimitSearch(percentile, top, headroom=headroom, bounds=BOUNDS)

    assert len(search.to_replay) <= 2 * 50


def test_limits_are_candidates_themselves() -> None:
    search = LimitSearch(100_000, TOP, headroom=1.2, bounds=BOUNDS)

    assert len([limit for limit in search.to_replay if limit < TOP]) <= 51
    assert max(search.to_replay) == 1.2 * TOP


def test_a_need_whose_limit_breaks_a_bound_is_rejected() -> None:
    """A higher limit may delay more, since Kafka's windows begin at other times."""

    def found(limit: int) -> Replayed:
        return Replayed(0.0, 60_000 if limit == 120_000 or limit < 100_000 else 0)

    search = searched(found)

    assert search.need > 100_000
    assert search.limit != 120_000
    assert search.decided_by == "delay"
