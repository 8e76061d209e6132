"""Limits that are safe for clients, with a made-up replay in place of the log, and brokers that are too full."""

from collections.abc import Iterable, Mapping

import pandas as pd

from kafka_quota_proxy.pipeline.capacity import Suggestion
from kafka_quota_proxy.pipeline.limit_search import Bounds, Entity
from kafka_quota_proxy.pipeline.safe_limits import Outcomes, full_brokers, safe_limits

BOUNDS = Bounds(share=0.01, delay_ms=30_000)
ONE, TWO, OTHER = (("produce", "alice", name) for name in ("one", "two", "<other>"))
SUGGESTED = [
    Suggestion(*names, percentile, 1_000_000, 0, limit, why)
    for names, percentile, limit, why in (
        (ONE, 150_000, 150_000, "remark"), (TWO, 50_000, 50_000, ""), (OTHER, 9, None, "no"),
    )
]  # fmt: skip


def made_up_replays(limits: Mapping[Entity, Iterable[int]]) -> Outcomes:
    """A limit below 100,000 delays by 31 s, and one of TWO below 200,000 throttles for 5 % of the time."""
    return {
        (names, limit): {
            "throttled_share": 0.05 if limit < 200_000 and names == TWO else 0.0,
            "longest_delay_ms": 0 if limit >= 100_000 else 31_000,
        }
        for names, of in limits.items()
        for limit in of
    }


def test_each_limit_is_what_its_client_needs_and_says_what_decided() -> None:
    (one, two, other), outcomes = safe_limits(SUGGESTED, made_up_replays, BOUNDS, headroom=1.0)

    assert (one.limit, one.decided_by, one.why) == (150_000, "percentile", "remark")
    assert two.limit is not None
    assert 200_000 <= two.limit <= 212_000
    assert two.decided_by == "share"
    assert (other.limit, other.decided_by, other.why) == (None, "", "no")
    assert {names: row["throttled_share"] for names, row in outcomes.items()} == {ONE: 0, TWO: 0}


def test_a_log_whose_clients_can_have_no_limit_is_not_replayed() -> None:
    def fail(_: object) -> Outcomes:
        raise AssertionError

    assert safe_limits(SUGGESTED[2:], fail, BOUNDS, headroom=1.2) == (SUGGESTED[2:], {})


def test_a_full_broker_is_named_with_the_sum_of_what_its_clients_need() -> None:
    """Two proxies are in front of broker 1, and each limits the first entity."""
    needing = [one._replace(need=one.limit) for one in SUGGESTED]
    places = [(1, "p", ONE), (1, "q", ONE), (1, "p", TWO), (2, "r", TWO), (2, "r", OTHER), (3, "s", ONE)]
    buckets = pd.DataFrame(
        [(broker, proxy, *names) for broker, proxy, names in places],
        columns=["broker", "proxy", "kind", "user", "client_id"],
    )
    capacities = {(1, "produce"): 175_000.0, (2, "produce"): 10_000.0, (7, "produce"): 1.0, (1, "fetch"): 1.0}

    assert full_brokers(needing, buckets, capacities) == [
        "Broker 2 (produce) cannot bear what its clients need: 50 kB/s, 5 times its capacity.",
        "Broker 1 (produce) cannot bear what its clients need: 350 kB/s, 2 times its capacity.",
    ]
