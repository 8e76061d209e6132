"""The HTML page that ``capacity`` writes."""

from typing import Any

from kafka_quota_proxy.pipeline.capacity import Suggestion
from kafka_quota_proxy.pipeline.capacity_report import busy_and_quiet, capacity_page, label
from tests.pipeline.support import START_MS

ONE = Suggestion("produce", "alice", "etl", 1_000_000, 5_000_000, 10, 2_000_000, "was throttled", "delay")
KEY = ("produce", "alice", "etl")
BROKER = {
    "proxy": "p1",
    "broker": 1,
    "kind": "produce",
    "peak": 3e6,
    "limits": 2e6,
    "capacity": 1e6,
    "oversubscription": 2.0,
}
EMPTY: dict[str, Any] = {
    "suggestions": [],
    "top": [],
    "seasons": [],
    "brokers": [],
    "throttled": {},
    "growth": {},
    "log": "",
    "warnings": [],
    "notes": [],
    "percentile": 99.0,
    "max_delay_ms": 30_000,
    "timezone": "UTC",
}
FULL: dict[str, Any] = EMPTY | {
    "suggestions": [ONE],
    "top": [{"kind": "produce", "user": "alice", "client_id": "etl", "hour_ms": START_MS, "peak": 4e6}],
    "seasons": [{"kind": "produce", "weekday": 0, "hour": 3, "rate": 1e6}],
    "brokers": [BROKER],
    "throttled": {KEY: {"throttle_time_ms": 7_200_000, "throttled_share": 0.005, "longest_delay_ms": 21_000}},
    "growth": {KEY: 12.4},
    "log": "From 7 records.",
    "warnings": ["broker 1 cannot bear <it>"],
    "notes": ["3 bad lines"],
    "timezone": "Europe/Berlin",
}


def test_a_name_in_words() -> None:
    assert [label("a", "b"), label("", "b"), label("a", ""), label("", "")] == ["a / b", "b", "a", "(no name)"]


def test_the_page_shows_the_given_numbers() -> None:
    text = capacity_page(**FULL)

    for said in (
        "alice / etl",
        "1 MB/s",
        "5 MB/s",
        "2 MB/s",
        "2 h",
        "0.5 %",
        "+12 %",
        "3 bad lines",
        "was throttled",
        "<td>delay</td>",
        "<td>21 s</td>",
        "longest delay 21 s; 1 throttled",
        "at least as high as needed for 1 % and 30 s",
        "by weekday and hour, Europe/Berlin",
        ">p99<",
    ):
        assert said in text, said
    assert "2.00 × capacity (1 MB/s)" in text
    assert "From 7 records." in text
    assert text.count("<svg role=") == 4


def test_the_page_begins_with_the_key_figures() -> None:
    head = capacity_page(**FULL).partition("<h2>")[0]

    assert "<b>1</b>limits suggested, for 1 entity" in head
    assert "<b>0.5 %</b>of its time silent, the most of all: alice / etl, produce" in head
    assert "<b>21 s</b>the longest delay of a request: alice / etl, produce" in head
    assert "<b>2.00 ×</b>the capacity, if all used their limits at once: broker 1 (p1), produce" in head


def test_a_broker_with_too_little_capacity_is_named_at_the_top() -> None:
    top, _, rest = capacity_page(**FULL).partition('class="facts"')

    assert "</h1><p" in top
    assert "broker 1 cannot bear &lt;it&gt;</p>" in top
    assert 'class="warning"' not in rest
    assert 'class="warning"' not in capacity_page(**EMPTY)


def test_the_page_says_when_no_client_waits_and_no_capacity_is_known() -> None:
    quiet = {KEY: FULL["throttled"][KEY] | {"throttle_time_ms": 0, "throttled_share": 0.0, "longest_delay_ms": 0}}
    unknown = [BROKER | {"capacity": None, "oversubscription": None}]

    text = capacity_page(**FULL | {"throttled": quiet, "brokers": unknown})

    assert "<b>no client</b>would have been silent for a moment" in text
    assert "<b>None.</b>" in text
    assert "name it with --capacities" in text
    assert "2 MB/s of limits" in text
    assert 'class="key tick"' not in text


def test_many_entities_are_cut_to_the_longest_waits_and_the_busiest() -> None:
    many = [ONE._replace(client_id=f"c{at:03}") for at in range(300)]
    waits = {
        one[:3]: {"throttle_time_ms": 1_000 + at, "throttled_share": 0.001, "longest_delay_ms": 9}
        for at, one in enumerate(many)
    }

    text = capacity_page(**FULL | {"suggestions": many, "throttled": waits})

    assert "The 200 that use most, of 300: all are in suggestions/" in text
    assert "300 throttled, the 8 longest" in text
    assert "alice / c299" in text.partition("Which limits?")[0]
    assert "alice / c199" in text.partition("Which limits?")[2]
    assert "alice / c200<" not in text.partition("Which limits?")[2]


def test_a_negative_trend_ends_at_minus_100_percent() -> None:
    assert "−100 %" in capacity_page(**FULL | {"growth": {KEY: -571.0}})


def test_the_busiest_hour_and_the_quietest_hours_are_said() -> None:
    cells = {(day, hour): 5e6 for day in range(7) for hour in range(24)}
    cells[2, 13] = 9e6
    cells |= {(6, 22): 1e6, (6, 23): 1e6, (0, 0): 1e6, (0, 1): 1e6}

    assert busy_and_quiet(cells) == "busiest Wed 13:00, 9 MB/s; quietest Sun 22:00 to 02:00, 1 MB/s"
    assert busy_and_quiet({(0, 3): 1e6}) == "busiest Mon 03:00, 1 MB/s"


def test_an_empty_log_gives_a_page() -> None:
    text = capacity_page(**EMPTY)

    assert "None." in text
    assert "<b>0</b>limits suggested, for 0 entities" in text
