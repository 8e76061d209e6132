"""Tests of ``pipeline.report_sections``."""

import re

import pytest

from kafka_quota_proxy.pipeline.limit_search import Bounds
from kafka_quota_proxy.pipeline.report_sections import Brokers, Replay, teams_section, verdict


def test_a_shared_limit_counts_once_and_the_worst_wait_counts() -> None:
    names = "team kind amount current_of current_limit proposed_of proposed_limit throttled_share longest_delay_ms"
    alice = ("alice", "")
    rows = [
        ("data", "produce", 10, alice, 500.0, ("alice", "a"), 7.0, 0.2, 900),
        ("data", "produce", 30, alice, 500.0, ("alice", "b"), 8.0, 0.1, 4_000),
        ("data", "fetch", 1, None, None, None, None, None, None),
        ("web", "produce", 50, ("bob", ""), 20.0, None, None, None, None),
    ]

    body = teams_section([dict(zip(names.split(), row, strict=True)) for row in rows], limits="proposed").body

    assert [re.findall("<td.*?>(.*?)</td>", row) for row in re.findall("<tr>(<td.*?)</tr>", body)] == [
        ["web", "produce", "1", "50 B", "20 B/s", "", "0 %", "0 ms"],
        ["data", "produce", "2", "40 B", "500 B/s", "15 B/s", "20 %", "4 s"],
        ["data", "fetch", "1", "1 B", "", "", "0 %", "0 ms"],
    ]


BOUNDS = Bounds(0.01, 30_000)
CALM = Replay("a, produce", 0.0, 0)
SHORT = Replay("b, fetch", 0.01, 13_600)
EDGE = Replay("c, fetch", 0.0, 30_000)
LATE = Replay("d, produce", 0.002, 40_000)
LATER = Replay("e, produce", 0.9, 840_000)
SILENT = Replay("f, fetch", 0.35, 9_000)


@pytest.mark.parametrize(
    ("limits", "brokers", "words"),
    [
        ([CALM, SHORT], None, "2 limits can be switched on: no client waits longer than 13.6 s."),
        ([CALM], None, "1 limit can be switched on: no client waits."),
        ([EDGE] * 1_200, None, "1,200 limits can be switched on: no client waits longer than 30 s."),
        (
            [SHORT],
            Brokers(fullest=1.0),
            "1 limit can be switched on: no client waits longer than 13.6 s, and every broker bears them all at once.",
        ),
        (
            [SHORT],
            Brokers(fullest=0.5, unknown=3),
            "1 limit can be switched on: no client waits longer than 13.6 s, and every broker with a known capacity "
            "bears them all at once.",
        ),
        (
            [SHORT],
            Brokers(fullest=2.41),
            "1 limit can be switched on: no client waits longer than 13.6 s, but all at once they are 2.41 times what "
            "a broker can bear.",
        ),
        (
            [CALM],
            Brokers(unknown=3),
            "1 limit can be switched on: no client waits; what the brokers can bear is unknown.",
        ),
    ],
)
def test_limits_can_be_switched_on(limits: list[Replay], brokers: Brokers | None, words: str) -> None:
    assert verdict(limits, BOUNDS, brokers) == (words, True)


@pytest.mark.parametrize(
    ("limits", "brokers", "words"),
    [
        ([], None, "There is nothing to switch on: no client in the log has a limit."),
        (
            [CALM, LATE, SILENT, LATER],
            None,
            "Do not switch these on: 2 of 4 limits delay data by more than 30 s; the worst is e, produce, 14 min.",
        ),
        (
            [CALM, LATE],
            Brokers(overfull=1),
            "Do not switch these on: 1 of 2 limits delays data by more than 30 s; the worst is d, produce, 40 s.",
        ),
        (
            [LATE],
            None,
            "Do not switch these on: the limit delays data by more than 30 s; the worst is d, produce, 40 s.",
        ),
        (
            [SILENT, SHORT],
            None,
            "Do not switch these on: 1 of 2 limits throttles clients for more than 1 % of their time; the worst is "
            "f, fetch, 35 %.",
        ),
        ([CALM], Brokers(overfull=1), "Do not switch these on: one broker cannot bear what clients need."),
        ([CALM], Brokers(overfull=2), "Do not switch these on: 2 brokers cannot bear what clients need."),
    ],
)
def test_limits_must_not_be_switched_on(limits: list[Replay], brokers: Brokers | None, words: str) -> None:
    assert verdict(limits, BOUNDS, brokers) == (words, False)
