"""The page of ``capacity``, from values."""

from pipeline.capacity import Suggestion
from pipeline.capacity_report import capacity_page, label
from tests.pipeline.support import START_MS

ONE = Suggestion("produce", "alice", "etl", 1_000_000, 5_000_000, 10, 2_000_000, "raised")
KEY = ("produce", "alice", "etl")


def test_a_name_in_words() -> None:
    assert [label("a", "b"), label("", "b"), label("a", ""), label("", "")] == ["a / b", "b", "a", "(no name)"]


def test_the_page_answers_with_numbers_that_were_given() -> None:
    text = capacity_page(
        suggestions=[ONE],
        top=[{"kind": "produce", "user": "alice", "client_id": "etl", "hour_ms": START_MS, "peak": 4e6}],
        seasons=[{"kind": "produce", "weekday": 0, "hour": 3, "rate": 1e6}],
        brokers=[
            {
                "proxy": "p1",
                "broker": 1,
                "kind": "produce",
                "peak": 3e6,
                "limits": 2e6,
                "capacity": 1e6,
                "oversubscription": 2.0,
            }
        ],
        throttled={KEY: {"silent_ms": 7_200_000, "throttle_time_ms": 9_000_000, "throttled_share": 0.005}},
        growth={KEY: 12.4},
        facts={"bytes": "1 GB"},
        notes=["3 bad lines"],
        percentile=99.0,
    )

    for shown in ("alice / etl", "1 MB/s", "5 MB/s", "2 MB/s", "2.5 h", "0.50%", "+12 %", "3 bad lines", "raised"):
        assert shown in text, shown
    assert "2.00 ×" in text
    assert text.count("<svg") == 4


def test_an_empty_log_is_a_page_too() -> None:
    text = capacity_page(
        suggestions=[], top=[], seasons=[], brokers=[], throttled={}, growth={}, facts={}, notes=[], percentile=99.0
    )

    assert "Nobody." in text
