"""Sums of use and limits by team."""

from kafka_quota_proxy.pipeline.teams import Use, by_team

SHARED = (("produce", "alice", ""), 500.0)


def test_a_shared_limit_counts_once_and_the_worst_wait_counts() -> None:
    uses = [
        Use("data", "produce", 10, SHARED, (("produce", "alice", "a"), 7.0), 0.2, 900),
        Use("data", "produce", 30, SHARED, (("produce", "alice", "b"), 8.0), 0.1, 4_000),
        Use("data", "fetch", 1),
        Use("web", "produce", 50, (("produce", "bob", ""), 20.0)),
    ]

    found = by_team(uses)

    assert [(one.team, one.kind, one.entities, one.amount, one.current, one.limit) for one in found] == [
        ("web", "produce", 1, 50, 20.0, None),
        ("data", "produce", 2, 40, 500.0, 15.0),
        ("data", "fetch", 1, 1, None, None),
    ]
    assert (found[1].throttled_share, found[1].longest_delay_ms) == (0.2, 4_000)
