"""The HTML page that ``capacity`` writes."""

import json
import re
from html import escape
from typing import Any

import pytest

from kafka_quota_proxy.pipeline import capacity_report
from kafka_quota_proxy.pipeline.capacity import Suggestion
from kafka_quota_proxy.pipeline.capacity_report import Findings, capacity_page
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
    "brokers": [],
    "throttled": {},
    "log": "",
    "warnings": [],
    "notes": [],
    "percentile": 99.0,
    "bounds": Bounds(0.01, 30_000),
    "quotas": "",
}
FULL: dict[str, Any] = EMPTY | {
    "suggestions": [ONE],
    "top": [{"kind": "produce", "user": "alice", "client_id": "etl", "hour_ms": START_MS, "peak": 4e6}],
    "brokers": [BROKER],
    "throttled": {KEY: {"throttle_time_ms": 7_200_000, "throttled_share": 0.005, "longest_delay_ms": 21_000}},
    "log": "From 7 records.",
    "warnings": ["broker 1 cannot bear <it>"],
    "notes": ["3 bad lines"],
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


@pytest.fixture(autouse=True)
def _undrawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write what a plot is drawn from in place of the plot, which takes a tenth of a second."""
    if "drawn" not in request.fixturenames:
        monkeypatch.setattr(capacity_report, "rate_over_time", lambda *shown: escape(repr(shown)))


@pytest.fixture
def drawn() -> None:
    """Request this fixture in a test of the plots."""


@pytest.mark.usefixtures("drawn")
def test_the_page_shows_the_given_numbers() -> None:
    text = report()

    for said in (
        "alice / etl",
        "1 MB/s",
        "3 bad lines",
        "was throttled",
        "at least as high as needed for 1 % and 30 s",
        ">p99<",
    ):
        assert said in text, said
    assert "<td>1.5 MB/s</td><td>2 MB/s</td><td>3 MB/s</td><td>1 MB/s</td><td>2.00 ×</td>" in text
    assert "From 7 records." in text
    assert text.count("<svg role=") == 1


def test_the_page_begins_with_the_verdict_and_the_key_figures() -> None:
    head = report().partition("<h2>")[0]

    assert "Do not switch these on: one broker cannot bear what clients need." in head
    assert "<b>1</b>limits suggested, for 1 entity" in head
    assert "<b>0.5 %</b>of its time silent, the most of all: alice / etl, produce" in head
    assert "<b>21 s</b>the longest delay of a request: alice / etl, produce" in head
    assert "<b>2.00 ×</b>the capacity, if all used their limits at once: broker 1 (p1), produce" in head


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
    assert (second["entity"], second["kind"], second["current_limit"]) == (["<default>", "gone"], "fetch", 5_000)
    assert (second["current_is"], second["suggested_limit"]) == ("unused", None)
    assert "<b>1 / 0 / 1</b>current limits that are too tight / too loose / unused" in report(**given)


def test_a_shared_limit_in_force_counts_once() -> None:
    other = ONE._replace(client_id="b")
    shared = {one[:3]: InForce(("alice", ""), 1_400_000.0) for one in (ONE, other)}

    text = report(suggestions=[ONE, other], in_force=shared, states=dict.fromkeys(shared, "too tight"))
    assert "<b>1 / 0 / 0</b>current limits" in text


def test_teams_have_a_column() -> None:
    def owner(user: str, client_id: str) -> str:
        return f"team of {user}"

    text = report(owner=owner, unused=[Unused("fetch", "bob", "", 5.0)])

    assert [row["team"] for row in lines(text)] == ["team of alice", "team of bob"]
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
    assert "name it with --capacities" in text
    assert "<td>2 MB/s</td><td>3 MB/s</td><td></td><td></td>" in text


def test_an_empty_log_gives_a_page() -> None:
    text = capacity_page(Findings(**EMPTY))

    assert "There is nothing to switch on" in text
    assert "<b>0</b>limits suggested, for 0 entities" in text
