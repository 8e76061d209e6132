"""The HTML page that ``whatif`` writes."""

from typing import Any

from kafka_quota_proxy.pipeline.limit_search import Bounds
from kafka_quota_proxy.pipeline.quota_comparison import InForce, Unused
from kafka_quota_proxy.pipeline.whatif_report import Client, Forecast, Outcome, whatif_page
from tests.pipeline.test_capacity_report import lines

CLIENTS = [
    Client("produce", "alice", "etl", 9_000, 500.0, 700.0),
    Client("produce", "alice", "b", 5_000, 400.0, None),
    Client("fetch", "bob", "x", 100, 10.0, None),
]
ETL, B, X = (client.entity for client in CLIENTS)


def waited(share: float, delay_ms: int, time_ms: int) -> dict[str, Any]:
    """Return what a replay found in a bucket."""
    return {"throttled_share": share, "longest_delay_ms": delay_ms, "throttle_time_ms": time_ms}


SHARED = Outcome(
    limits={ETL: InForce(("alice", ""), 600.0, "user alice"), B: InForce(("alice", ""), 600.0, "user alice")},
    throttled={("produce", "alice", ""): waited(0.25, 40_000, 60_000)},
)
OWN = Outcome(
    limits={
        ETL: InForce(("alice", "etl"), 450.0, "user alice, client-id etl"),
        X: InForce(("", "x"), 31.0, "client-id x"),
    },
    throttled={
        ("produce", "alice", "etl"): waited(0.005, 7_000, 3_000),
        ("fetch", "", "x"): waited(0.0, 0, 0),
    },
)


def report(**given: Any) -> str:  # noqa: ANN401  (fields of Forecast)
    values: dict[str, Any] = {
        "clients": CLIENTS,
        "outcome": OWN,
        "unused": [],
        "bounds": Bounds(0.01, 30_000),
        "owner": None,
        "notes": ["3 bad lines"],
    }
    return whatif_page(Forecast(**(values | given)))


def test_the_page_has_a_row_for_each_client_with_the_wait_of_its_bucket() -> None:
    text = report()

    etl, b, x = lines(text)
    assert etl == {
        "entity": ["alice", "etl"],
        "kind": "produce",
        "current_limit": 700,
        "proposed_limit": 450,
        "proposed_is": "fits",
        "rule": "user alice, client-id etl",
        "shared_by": 1,
        "peak": 500,
        "throttled_share": 0.005,
        "throttle_time_ms": 3_000,
        "longest_delay_ms": 7_000,
    }
    assert (b["proposed_is"], b["proposed_limit"], b["shared_by"], b["longest_delay_ms"]) == (
        "no limit",
        None,
        None,
        None,
    )
    assert (x["proposed_is"], x["longest_delay_ms"]) == ("too loose", 0)
    assert "2 limits can be switched on: no client waits longer than 7 s.</p>" in text
    assert "3 bad lines" in text


def test_a_shared_limit_that_throttles_too_long_is_too_tight_for_all_its_clients() -> None:
    text = report(outcome=SHARED, unused=[Unused("fetch", "gone", "", 9.0)])

    etl, b, x, unused = lines(text)
    assert [row["proposed_is"] for row in (etl, b, x, unused)] == ["too tight", "too tight", "no limit", "unused"]
    assert (etl["shared_by"], etl["longest_delay_ms"], b["longest_delay_ms"]) == (2, 40_000, 40_000)
    assert (unused["entity"], unused["proposed_limit"]) == (["gone", ""], 9)
    assert "Do not switch these on: the limit delays data by more than 30 s; the worst is alice, produce, 40 s." in text
    # The limit is one, although two clients have it.
    assert "<b>1 / 0 / 1</b>proposed limits that are too tight / too loose / unused" in text


def test_teams_have_a_column() -> None:
    text = report(owner=lambda user, _client_id: f"team {user}")

    assert [row["team"] for row in lines(text)] == ["team alice", "team alice", "team bob"]


def test_an_empty_log_gives_a_page() -> None:
    nothing = Outcome(limits={}, throttled={})

    assert "There is nothing to switch on" in report(clients=[], outcome=nothing)
