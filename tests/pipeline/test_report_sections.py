"""Tests of ``pipeline.report_sections``."""

import pytest

from kafka_quota_proxy.pipeline.limit_search import Bounds
from kafka_quota_proxy.pipeline.report_sections import Brokers, Replay, verdict

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
