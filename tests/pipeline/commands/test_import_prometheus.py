"""The command in front of a scripted server. ``tests/end_to_end/test_import.py`` asks a real Prometheus."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kafka_quota_proxy.pipeline.__main__ import main
from tests.pipeline.scripted_server import Answer, Asked, server

RATE = "kafka_server_produce_byte_rate"
MINUTE = 60


def series(values: dict[float, str | float], **labels: str) -> dict[str, Any]:
    labels = {"instance": "b:1", "user": "alice", **labels}
    return {"metric": labels, "values": [[at_s, str(value)] for at_s, value in values.items()]}


def imported(tmp_path: Path, *words: str, rate: float = 10.0, metric: str = RATE) -> tuple[int, list[dict[str, Any]]]:
    """Import two hours of five series. Return the status and the records."""

    def answer_to(path: str, query: Asked) -> Answer:
        if path.endswith("/values"):
            return 200, {"data": [metric] if "__name__" in path else ["a:1", "b:1", "c:1", "d:1"]}
        values: dict[float, str | float] = dict.fromkeys(
            range(int(float(query["start"])), int(float(query["end"])) + 1, MINUTE), rate
        )
        every = [
            series(values, instance="a:1"),
            series(values, instance="b:1", broker_id="9"),
            series(values, instance="c:1"),
            series(values, instance="c:1", job="twice"),
            series(values, instance="d:1", broker="11"),
            series(values, instance="d:1", broker="12"),
        ]
        return 200, {"status": "success", "data": {"resultType": "matrix", "result": every}}

    out = tmp_path / "usage"
    times = ["--from", "2026-11-01T00:00", "--until", "2026-11-01T02:00"]
    with server(answer_to) as (address, _):
        status = main(["import", "prometheus", "--url", f"http://{address}", *times, *words, "--out", str(out)])
    return status, pq.read_table(out).to_pylist() if status == 0 else []


def test_brokers_are_labelled_given_or_numbered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of two brokers behind one exporter each counts, and of one that two jobs scrape only one."""
    status, records = imported(tmp_path, "--broker", "c:1=1", "--broker", "b:1=4")

    assert status == 0
    assert {(one["proxy"], one["broker"]) for one in records} == {
        ("a:1", 2), ("b:1", 9), ("c:1", 1), ("d:1", 11), ("d:1", 12),
    }  # fmt: skip
    assert [one["amount"] for one in records] == [600] * 5 * 120
    said = capsys.readouterr()
    assert said.out == f"600 records of 1 min, 360 kB of produce\n{tmp_path / 'usage'}\n"
    assert said.err.splitlines()[-5:] == [
        "  up to 2026-11-01 02:00:00 UTC: 600 records",
        "--broker b:1: there is no such instance without a label for its broker",
        "broker 1 is c:1",
        "broker 2 is a:1 (a number in the order of names; --broker a:1=ID sets the node id)",
        "a label names the brokers of 2 instances",
    ]


def test_metrics_of_own_rules_have_own_names(tmp_path: Path) -> None:
    _, records = imported(tmp_path, "--metric", "fetch_rate=out_bytes", metric="out_bytes")

    assert {one["kind"] for one in records} == {"fetch"}


def test_nothing_to_import_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert imported(tmp_path, rate=0.0) == (1, [])
    with server(lambda *_: (200, {"data": []})) as (address, _):
        words = ["--url", f"http://{address}", "--from", "2026-11-01", "--out", str(tmp_path / "usage")]
        assert main(["import", "prometheus", *words]) == 1

    said = capsys.readouterr().err
    assert "none of the clients sent or fetched anything" in said
    assert "has no client metrics of Kafka. A broker exports them only" in said
    assert not (tmp_path / "usage").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--url", "http://h:1", "--from", "2026-11-01", "--until", "2026-11-01"], "must be later than --from"),
        (["--url", "prometheus:9090", "--from", "2026-11-01"], "--url: is not the address of a server"),
        (["--url", "http://h:1", "--from", "2026-11-01", "--bearer-token-file", "/nowhere"], "cannot be read"),
        (["--url", "http://h:1", "--from", "2026-11-01", "--bearer-token-file", "/dev/null"], "has no token"),
    ],
)
def test_wrong_arguments_are_named(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", "prometheus", *words, "--out", str(tmp_path / "usage")]) == 2

    assert said in capsys.readouterr().err
