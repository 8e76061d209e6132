"""The HTML page that ``capacity`` writes."""

import json
import re
from typing import Any

from kafka_quota_proxy.pipeline.capacity import Suggestion
from kafka_quota_proxy.pipeline.capacity_report import Findings, busy_and_quiet, capacity_page
from kafka_quota_proxy.pipeline.growth import Trend
from kafka_quota_proxy.pipeline.limit_search import Bounds
from kafka_quota_proxy.pipeline.quota_comparison import InForce, Unused
from tests.pipeline.support import START_MS

ONE = Suggestion("produce", "alice", "etl", 1_000_000, 5_000_000, 10, 2_000_000, "was throttled", "delay", 1_700_000)
KEY = ("produce", "alice", "etl")
BROKER = {
    "proxy": "p1",
    "broker": 1,
    "kind": "produce",
    "peak": 3e6,
    "limits": 2e6,
    "current": 1.5e6,
    "capacity": 1e6,
    "oversubscription": 2.0,
}
EMPTY: dict[str, Any] = {
    "suggestions": [],
    "top": [],
    "seasons": [],
    "brokers": [],
    "amounts": {},
    "throttled": {},
    "trends": {},
    "log": "",
    "warnings": [],
    "notes": [],
    "percentile": 99.0,
    "bounds": Bounds(0.01, 30_000),
    "timezone": "UTC",
    "quotas": "",
}
GROWING = Trend(91, 0.0, 0.004, 0.0035, 0.0045, 1_000_000.0, 10_000.0)
FULL: dict[str, Any] = EMPTY | {
    "suggestions": [ONE],
    "top": [{"kind": "produce", "user": "alice", "client_id": "etl", "hour_ms": START_MS, "peak": 4e6}],
    "seasons": [{"kind": "produce", "weekday": 0, "hour": 3, "rate": 1e6}],
    "brokers": [BROKER],
    "amounts": {KEY: 7_000_000},
    "throttled": {KEY: {"throttle_time_ms": 7_200_000, "throttled_share": 0.005, "longest_delay_ms": 21_000}},
    "trends": {KEY: GROWING},
    "log": "From 7 records.",
    "warnings": ["broker 1 cannot bear <it>"],
    "notes": ["3 bad lines"],
    "timezone": "Europe/Berlin",
    "quotas": "quotas: []  # <all>\n",
}


def report(**given: Any) -> str:  # noqa: ANN401  (fields of Findings)
    """Return the page of all findings, some of which are changed."""
    return capacity_page(Findings(**(FULL | given)))


def lines(text: str) -> list[dict[str, Any]]:
    """Return the rows of the table of entities by column, as its script sees them."""
    found = json.loads(re.findall(r'id="data">(.*?)</script>', text)[0])
    keys = [column["key"] for column in found["columns"]]
    return [dict(zip(keys, row, strict=True)) for row in found["rows"]]


def test_the_page_shows_the_given_numbers() -> None:
    text = report()

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
        ">delay</td>",
        ">21 s</td>",
        "longest delay 21 s; 1 throttled",
        "at least as high as needed for 1 % and 30 s",
        "by weekday and hour, Europe/Berlin",
        ">p99<",
    ):
        assert said in text, said
    assert "2.00 × capacity (1 MB/s)" in text
    assert "<td>1.5 MB/s</td><td>2 MB/s</td><td>3 MB/s</td><td>1 MB/s</td>" in text
    assert "From 7 records." in text
    assert text.count("<svg role=") == 4


def test_the_page_begins_with_the_verdict_and_the_key_figures() -> None:
    head = report().partition("<h2>")[0]

    assert "Do not switch these on: one broker cannot bear what clients need." in head
    assert "<b>1</b>limits suggested, for 1 entity" in head
    assert "<b>0.5 %</b>of its time silent, the most of all: alice / etl, produce" in head
    assert "<b>21 s</b>the longest delay of a request: alice / etl, produce" in head
    assert "<b>2.00 ×</b>the capacity, if all used their limits at once: broker 1 (p1), produce" in head
    assert "<b>1</b>limits that growth reaches within a year, the first of alice / etl, produce: in 36 weeks" in head


def test_the_verdict_depends_on_the_bounds_and_on_the_brokers() -> None:
    def said(**given: Any) -> str:  # noqa: ANN401
        return str(re.findall(r'class="verdict \w+">([^<]*)<', report(warnings=[], **given))[0])

    fits = BROKER | {"oversubscription": 0.9}
    unknown = BROKER | {"capacity": None, "oversubscription": None}
    assert said(bounds=Bounds(0.01, 20_999)).startswith(
        "Do not switch these on: the limit delays data by more than 21 s"
    )
    assert said(bounds=Bounds(0.004, 30_000)).startswith("Do not switch these on: the limit throttles clients")
    assert "but all at once they are 2 times" in said()
    assert said(brokers=[fits]).endswith("no client waits longer than 21 s, and every broker bears them all at once.")
    assert "every broker with a known capacity" in said(brokers=[fits, unknown])
    assert "unknown" in said(brokers=[unknown])


def test_limits_in_force_are_compared_and_unused_rules_have_rows() -> None:
    given = {
        "in_force": {KEY: InForce(("alice", "etl"), 1_400_000.0)},
        "states": {KEY: "too tight"},
        "unused": [Unused("fetch", "<default>", "gone", 5_000.0)],
    }

    first, second = lines(report(**given))

    assert (first["entity"], first["current_limit"], first["current_is"]) == (["alice", "etl"], 1.4e6, "too tight")
    # The forecast is about the limit in force, which is nearer than the suggested one.
    assert first["limit_reached"][1].startswith("in 14 weeks (")
    assert lines(report())[0]["limit_reached"][1].startswith("in 36 weeks (")
    assert (second["entity"], second["kind"], second["current_limit"]) == (["<default>", "gone"], "fetch", 5_000)
    assert (second["current_is"], second["suggested_limit"], second["limit_reached"]) == ("unused", None, None)
    assert "<b>1 / 0 / 1</b>current limits that are too tight / too loose / unused" in report(**given)


def test_a_shared_limit_in_force_is_not_what_growth_of_one_reaches() -> None:
    other = ONE._replace(client_id="b")
    shared = {one[:3]: InForce(("alice", ""), 1_400_000.0) for one in (ONE, other)}

    found = lines(report(suggestions=[ONE, other], in_force=shared, states=dict.fromkeys(shared, "fits")))

    assert found[0]["limit_reached"][1].startswith("in 36 weeks (")
    text = report(suggestions=[ONE, other], in_force=shared, states=dict.fromkeys(shared, "too tight"))
    assert "<b>1 / 0 / 0</b>current limits" in text


def test_teams_have_a_column_and_sums() -> None:
    def owner(user: str, client_id: str) -> str:
        return f"team of {user}"

    text = report(owner=owner, unused=[Unused("fetch", "bob", "", 5.0)])

    assert [row["team"] for row in lines(text)] == ["team of alice", "team of bob"]
    assert '<td class="name">team of alice</td><td class="name">produce</td><td>1</td><td>7 MB</td>' in text
    assert "Which teams?" not in report()
    assert "team" not in lines(report())[0]


def test_the_page_contains_quotas_yaml() -> None:
    (found,) = re.findall(r'id="quotas">(.*?)</script>', report())

    assert json.loads(found) == FULL["quotas"]
    assert "<" not in found


def test_a_broker_with_too_little_capacity_is_named_at_the_top() -> None:
    top, _, rest = report().partition('class="facts"')

    assert "</h1><p" in top
    assert "broker 1 cannot bear &lt;it&gt;</p>" in top
    assert 'class="warning"' not in rest
    assert 'class="warning"' not in capacity_page(Findings(**EMPTY))


def test_the_page_says_when_no_client_waits_and_no_capacity_is_known() -> None:
    quiet = {KEY: FULL["throttled"][KEY] | {"throttle_time_ms": 0, "throttled_share": 0.0, "longest_delay_ms": 0}}
    unknown = [BROKER | {"capacity": None, "oversubscription": None}]

    text = report(throttled=quiet, brokers=unknown)

    assert "<b>no client</b>would have been silent for a moment" in text
    assert "<b>None.</b>" in text
    assert "name it with --capacities" in text
    assert "2 MB/s of limits" in text
    assert 'class="key tick"' not in text


def test_many_entities_are_cut_where_there_is_no_script() -> None:
    many = [ONE._replace(client_id=f"c{at:03}") for at in range(300)]
    waits = {
        one[:3]: {"throttle_time_ms": 1_000 + at, "throttled_share": 0.001, "longest_delay_ms": 9}
        for at, one in enumerate(many)
    }

    text = report(suggestions=many, throttled=waits)

    table, _, rest = text.partition("Which clients would be throttled")
    assert "The first 200 of 300 rows." in table
    assert "300 throttled, the 8 longest" in rest
    assert "alice / c299" in rest
    assert ">alice / c199<" in table
    assert ">alice / c200<" not in table
    assert len(lines(text)) == 300


def test_the_busiest_hour_and_the_quietest_hours_are_said() -> None:
    cells = {(day, hour): 5e6 for day in range(7) for hour in range(24)}
    cells[2, 13] = 9e6
    cells |= {(6, 22): 1e6, (6, 23): 1e6, (0, 0): 1e6, (0, 1): 1e6}

    assert busy_and_quiet(cells) == "busiest Wed 13:00, 9 MB/s; quietest Sun 22:00 to 02:00, 1 MB/s"
    assert busy_and_quiet({(0, 3): 1e6}) == "busiest Mon 03:00, 1 MB/s"


def test_an_empty_log_gives_a_page() -> None:
    text = capacity_page(Findings(**EMPTY))

    assert "None." in text
    assert "There is nothing to switch on" in text
    assert "<b>0</b>limits suggested, for 0 entities" in text
