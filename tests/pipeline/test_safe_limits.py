"""Limits that are safe for clients and brokers, with a made-up replay in place of the log."""

from collections.abc import Iterable, Mapping
from math import inf
from typing import Any

from kafka_quota_proxy.pipeline.broker_capacity import Entity
from kafka_quota_proxy.pipeline.capacity import Suggestion
from kafka_quota_proxy.pipeline.limit_search import Bounds
from kafka_quota_proxy.pipeline.safe_limits import LogReplays, SafeLimits, Safety, safe_limits

BOUNDS = Bounds(share=0.01, delay_ms=30_000)
ONE, TWO, OTHER = (("produce", "alice", name) for name in ("one", "two", "<other>"))


class MadeUpReplays(LogReplays):
    """A limit below 100,000 delays by a minute, and a limit below 200,000 throttles for 5 % of the time.

    With ``max_delay_ms``, a replay that ends early shows another delay than a whole one.
    """

    def __init__(self) -> None:
        self._found = {}
        self.passes: list[dict[Entity, list[int]]] = []

    def run(
        self, limits: Mapping[Entity, Iterable[int]], *, max_delay_ms: float = inf
    ) -> dict[tuple[Entity, int], dict[str, Any]]:
        self.passes.append({names: sorted(of) for names, of in limits.items()})
        found = {}
        for names, of in limits.items():
            for limit in of:
                delay_ms = 0 if limit >= 100_000 else 60_000 if max_delay_ms == inf else 31_000
                share = 0.05 if limit < 200_000 and names == TWO else 0.0
                found[names, limit] = {"throttled_share": share, "longest_delay_ms": delay_ms, "throttle_time_ms": 1}
        self._found |= found
        return found


def found(replays: LogReplays, **given: Any) -> SafeLimits:  # noqa: ANN401  (fields of Safety)
    """Return the limits of two entities that use broker 1, and of one that can have no limit."""
    suggested = [
        Suggestion(*names, percentile, 1_000_000, 0, limit, why)
        for names, percentile, limit, why in (
            (ONE, 150_000, 150_000, "remark"), (TWO, 50_000, 50_000, ""), (OTHER, 9, None, "no"),
        )
    ]  # fmt: skip
    values: dict[str, Any] = {"bounds": BOUNDS, "headroom": 1.0, "capacities": {}}
    users = {(1, "produce"): {ONE: 1, TWO: 1, OTHER: 1}, (2, "produce"): {TWO: 1}}
    return safe_limits(suggested, replays, users, Safety(**(values | given)))


def test_each_limit_is_what_its_client_needs_and_says_what_decided() -> None:
    replays = MadeUpReplays()
    suggestions, outcomes, warnings = found(replays)

    one, two, other = suggestions
    assert (one.limit, one.decided_by, one.why) == (150_000, "percentile", "remark")
    assert two.limit is not None
    assert 200_000 <= two.limit <= 212_000
    assert two.decided_by == "share"
    assert (other.limit, other.decided_by, other.why) == (None, "", "no")
    assert {names: row["throttled_share"] for names, row in outcomes.items()} == {ONE: 0, TWO: 0}
    assert warnings == []
    assert [set(limits) for limits in replays.passes] == [{ONE, TWO}]


def test_a_full_broker_lowers_limits_and_is_named_with_the_delay_that_follows() -> None:
    replays = MadeUpReplays()
    suggestions, outcomes, warnings = found(replays, capacities={(1, "produce"): 160_000.0})

    assert [(one.limit, one.decided_by) for one in suggestions] == [
        (80_000, "capacity"),
        (80_000, "capacity"),
        (None, ""),
    ]
    assert suggestions[0].why == "needs 150 kB/s, remark"
    # The replay under the final limits is a whole one.
    assert outcomes[ONE]["longest_delay_ms"] == 60_000
    assert replays.passes[-1] == {ONE: [80_000], TWO: [80_000]}
    (warning,) = warnings
    assert warning.startswith("Broker 1 (produce) cannot bear what its clients need: limits of 36")
    assert warning.endswith("So 2 limits are too low for their clients, and a request would wait for up to 1 min.")


def test_a_limit_whose_replay_ended_early_is_replayed_as_a_whole() -> None:
    replays = MadeUpReplays()
    suggestions, outcomes, _ = found(replays, capacities={(1, "produce"): 100_000.0})

    # The search began at 50,000 for the second entity.
    assert suggestions[1].limit == 50_000 in replays.passes[0][TWO]
    assert outcomes[TWO]["longest_delay_ms"] == 60_000


def test_limits_may_add_up_to_more_than_a_capacity() -> None:
    suggestions, _, _ = found(MadeUpReplays(), capacities={(1, "produce"): 160_000.0}, oversubscription=10.0)

    assert suggestions[0].limit == 150_000


def test_limits_without_headroom_meet_the_bounds_if_the_broker_can_bear_them() -> None:
    suggestions, _, warnings = found(MadeUpReplays(), headroom=2.0, capacities={(1, "produce"): 400_000.0})

    one, two, _ = suggestions
    assert one.limit is not None
    assert two.limit is not None
    assert one.limit >= 150_000
    assert two.limit >= 200_000
    assert 390_000 <= one.limit + two.limit <= 400_000
    assert (one.decided_by, two.decided_by, warnings) == ("capacity", "capacity", [])


def test_a_broker_of_unknown_capacity_bounds_nothing() -> None:
    suggestions, _, warnings = found(MadeUpReplays(), capacities={(7, "produce"): 1.0, (1, "fetch"): 1.0})

    assert [one.decided_by for one in suggestions] == ["percentile", "share", ""]
    assert warnings == []


def test_a_log_whose_clients_can_have_no_limit_is_not_replayed() -> None:
    replays = MadeUpReplays()
    suggested = [Suggestion(*OTHER, 9, 1_000_000, 0, None, "no")]

    result = safe_limits(suggested, replays, {}, Safety(bounds=BOUNDS, headroom=1.2, capacities={}))

    assert result == (suggested, {}, [])
    assert replays.passes == []
