"""Proxies with leases never exceed a limit together, even if publications of shares are late or lost."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from kafka_quota_proxy.pipeline.leases import Leases, even_share

LEASE_MS = 8_000
DELAY_MS = 1_000


class Step(NamedTuple):
    """A publication of shares, ``gap_ms`` after the previous one. The shares move towards ``weights``.

    ``delays_ms`` is the delay for each proxy, or None if the proxy never receives the publication.
    """

    gap_ms: int
    weights: tuple[int, ...]
    delays_ms: tuple[int | None, ...]


class Proxy:
    """A simulated proxy. Its share is in force while the lease lasts, and an even share otherwise."""

    def __init__(self, name: str, even: int) -> None:
        self.name = name
        self.heard: list[tuple[int, int]] = []  # the time and the share of each publication that arrived
        self._even = even

    def hear(self, at_ms: int, share: int) -> None:
        """Receive a share. Shares arrive in the order of the topic."""
        self.heard.append((max(at_ms, self.heard[-1][0]) if self.heard else at_ms, share))

    def has_lease(self, at_ms: int) -> bool:
        return any(heard_ms <= at_ms < heard_ms + LEASE_MS for heard_ms, _ in self.heard)

    def in_force(self, at_ms: int) -> int:
        if not self.has_lease(at_ms):
            return self._even
        return [share for heard_ms, share in self.heard if heard_ms <= at_ms][-1]


def goal_of(weights: Sequence[int], limit: int) -> dict[str, int]:
    total = sum(weights)
    return {f"p{number}": max(1, limit * weight // total) for number, weight in enumerate(weights)}


def check(limit: int, steps: Sequence[Step]) -> None:
    """Play the steps, and check the sum of the shares whenever a proxy changes its share."""
    names = [f"p{number}" for number in range(len(steps[0].weights))]
    leases = Leases(limit, names, hold_ms=LEASE_MS + DELAY_MS)
    even = even_share(limit, len(names))
    proxies = [Proxy(name, even) for name in names]
    now_ms = 0
    for step in steps:
        now_ms += step.gap_ms
        leases.move(goal_of(step.weights, limit), now_ms=now_ms)
        for proxy, delay_ms in zip(proxies, step.delays_ms, strict=True):
            if delay_ms is not None:
                proxy.hear(now_ms + delay_ms, leases.shares[proxy.name])
    heard = {at_ms for proxy in proxies for at_ms, _ in proxy.heard}
    for at_ms in sorted(heard | {one + LEASE_MS for one in heard}):
        without = sum(not proxy.has_lease(at_ms) for proxy in proxies)
        assert sum(proxy.in_force(at_ms) for proxy in proxies) <= limit + without * even


def steps(delays_ms: st.SearchStrategy[int | None], gaps_ms: st.SearchStrategy[int]) -> st.SearchStrategy[list[Step]]:
    def of(count: int) -> st.SearchStrategy[list[Step]]:
        weights = st.tuples(*[st.integers(1, 100)] * count) | st.permutations([1] * (count - 1) + [98]).map(tuple)
        step = st.builds(Step, gaps_ms, weights, st.tuples(*[delays_ms] * count))
        return st.lists(step, min_size=1, max_size=40)

    return st.integers(2, 4).flatmap(of)


LIMITS = st.integers(1_000, 10**12)
# Publications come every second or two, and some of them are late.
GAPS_MS = st.integers(500, 2_000) | st.integers(0, 2 * LEASE_MS)


@given(limit=LIMITS, played=steps(st.integers(0, LEASE_MS // 2 - 1), st.integers(0, LEASE_MS // 2)))
def test_shares_of_connected_proxies_sum_to_at_most_the_limit(limit: int, played: list[Step]) -> None:
    leases = [Proxy(name, 0) for name in "ab"]
    now_ms = 0
    for step in played:
        now_ms += step.gap_ms
        for proxy, delay_ms in zip(leases, step.delays_ms, strict=False):
            proxy.hear(now_ms + (delay_ms or 0), 0)
    # No lease ends before the last publication, so that the bound in ``check`` is the limit alone.
    for proxy in leases:
        assert all(later - earlier < LEASE_MS for (earlier, _), (later, _) in pairwise(proxy.heard))

    check(limit, played)


@given(limit=LIMITS, played=steps(st.integers(0, LEASE_MS - 1), GAPS_MS))
def test_a_late_proxy_adds_at_most_an_even_share(limit: int, played: list[Step]) -> None:
    check(limit, played)


@given(limit=LIMITS, played=steps(st.integers(0, DELAY_MS) | st.none(), GAPS_MS))
@example(
    limit=3_000,
    played=[
        *(Step(500, (98, 1, 1), (DELAY_MS, 0, 0)) for _ in range(20)),
        # The first proxy is cut off while it has nearly the whole limit, which moves to the second proxy.
        *(Step(500, (1, 98, 1), (None, 0, 0)) for _ in range(20)),
    ],
)
def test_a_disconnected_proxy_adds_at_most_an_even_share(limit: int, played: list[Step]) -> None:
    check(limit, played)


@given(limit=LIMITS, played=steps(st.just(0), GAPS_MS), weights=st.tuples(*[st.integers(1, 100)] * 4))
def test_shares_reach_a_constant_goal_after_a_lease_and_a_publication(
    limit: int, played: list[Step], weights: tuple[int, ...]
) -> None:
    count = len(played[0].weights)
    leases = Leases(limit, [f"p{number}" for number in range(count)], hold_ms=LEASE_MS + DELAY_MS)
    now_ms = 0
    for step in played:
        now_ms += step.gap_ms
        leases.move(goal_of(step.weights, limit), now_ms=now_ms)
    goal = goal_of(weights[:count], limit)

    leases.move(goal, now_ms=now_ms)
    leases.move(goal, now_ms=now_ms + LEASE_MS + DELAY_MS)

    assert leases.shares == goal
    assert not leases.move(goal, now_ms=now_ms + LEASE_MS + DELAY_MS + 1)


def test_a_lowered_share_is_held_for_a_lease_and_a_delay() -> None:
    leases = Leases(3_000, ["a", "b", "c"], hold_ms=9_000)
    goal = {"a": 2_400, "b": 300, "c": 300}

    seen = []
    for now_ms in (0, 1_000, 8_999, 9_000):
        leases.move(goal, now_ms=now_ms)
        seen.append(leases.shares["a"])

    assert seen == [1_000, 1_000, 1_000, 2_400]


def test_free_amounts_go_to_proxies_in_proportion_to_their_need() -> None:
    leases = Leases(3_000, ["a", "b", "c"], hold_ms=9_000)
    leases.move({"a": 100, "b": 1_000, "c": 1_000}, now_ms=0)
    leases.move({"a": 100, "b": 700, "c": 1_000}, now_ms=5_000)

    leases.move({"a": 100, "b": 1_900, "c": 1_000}, now_ms=9_000)
    first = dict(leases.shares)
    leases.move({"a": 100, "b": 700, "c": 2_200}, now_ms=9_000)

    # The old share of b, 1,000, counts until 14 s. So 900 are free, and b gets them in addition.
    assert first == {"a": 100, "b": 1_900, "c": 1_000}
    assert leases.shares == {"a": 100, "b": 700, "c": 1_000}


def test_a_share_may_return_to_its_proxy_at_once() -> None:
    leases = Leases(3_000, ["a", "b", "c"], hold_ms=9_000)
    leases.move({"a": 100, "b": 1_000, "c": 1_000}, now_ms=0)

    leases.move({"a": 1_000, "b": 1_000, "c": 1_000}, now_ms=1_000)

    assert leases.shares == {"a": 1_000, "b": 1_000, "c": 1_000}
    assert leases.is_even(now_ms=1_000)


def test_shares_are_even_when_no_proxy_can_have_more() -> None:
    leases = Leases(3_000, ["a", "b", "c"], hold_ms=9_000)
    leases.move({"a": 2_800, "b": 100, "c": 100}, now_ms=0)
    leases.move({"a": 2_800, "b": 100, "c": 100}, now_ms=9_000)
    leases.move({"a": 1_000, "b": 1_000, "c": 1_000}, now_ms=10_000)

    assert not leases.is_even(now_ms=18_999)
    assert leases.is_even(now_ms=19_000)


def test_a_limit_below_the_number_of_proxies_is_one_byte_each() -> None:
    leases = Leases(2, ["a", "b", "c"], hold_ms=9_000)

    leases.move({"a": 1, "b": 1, "c": 1}, now_ms=0)

    assert leases.shares == {"a": 1, "b": 1, "c": 1}
