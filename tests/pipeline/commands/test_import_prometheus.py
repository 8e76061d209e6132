"""The command with a script of answers. ``tests/end_to_end/test_import.py`` asks a real Prometheus."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kafka_quota_proxy.pipeline.__main__ import main
from tests.pipeline.scripted_server import server

RATE = "kafka_server_produce_byte_rate"
MINUTE = 60
Series = tuple[str, dict[str, str], dict[float, str | float]]


def series(name: str, values: dict[float, str | float], **labels: str) -> Series:
    return name, {"instance": "b:1", "user": "alice", **labels}, values


def minutes(count: int, rate: float, *, first: int = 1) -> dict[float, str | float]:
    return {MINUTE * at: rate for at in range(first, first + count)}


def run(tmp_path: Path, every: tuple[Series, ...], *words: str, until: int = 6) -> int:
    """Import from a server that has these series, and return the exit status."""

    def answer_to(path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path.endswith("/values"):
            return 200, {"data": sorted({name for name, *_ in every if name.startswith("kafka_server_")})}
        start, end = float(query["start"]), float(query["end"])
        result = [
            {"metric": labels, "values": [[at_s, str(value)] for at_s, value in values.items() if start <= at_s <= end]}
            for name, labels, values in every
            if f"({name}{{" in query["query"]
        ]
        return 200, {"status": "success", "data": {"resultType": "matrix", "result": result}}

    with server(answer_to) as (address, _):
        where = ["--url", f"http://{address}", "--from", "1970-01-01", "--until", f"1970-01-01T00:{until:02}"]
        return main(["import", "prometheus", *where, *words, "--out", str(tmp_path / "usage")])


def imported(tmp_path: Path, *every: Series, words: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Import from a server that has these series, and return the records."""
    assert run(tmp_path, every, *words) == 0
    rows: list[dict[str, Any]] = pq.read_table(tmp_path / "usage").to_pylist()
    return rows


def test_records_and_what_is_said_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = imported(
        tmp_path,
        series(RATE, minutes(3, 1_000.0)),
        series(RATE, minutes(2, 500.0), instance="a:1", user="bob"),
        series("up", minutes(3, 1)),
        words=("--broker", "b:1=7", "--broker", "c:1=8"),
    )

    found = {(one["user"], one["broker"], one["start_ms"]): one["amount"] for one in records}
    assert found == {
        ("alice", 7, 0): 60_000,
        ("alice", 7, 60_000): 60_000,
        ("alice", 7, 120_000): 60_000,
        ("bob", 1, 0): 30_000,
        ("bob", 1, 60_000): 30_000,
    }
    said = capsys.readouterr()
    assert said.out == f"5 records of 1 min, 240 kB of produce\n{tmp_path / 'usage'}\n"
    assert "broker 1 is a:1 (a number in the order of names; --broker a:1=ID sets the node id)\n" in said.err
    assert "broker 7 is b:1\n" in said.err
    assert "--broker c:1: there is no such instance\n" in said.err
    assert "broker 8" not in said.err


def test_brokers_behind_one_exporter_are_counted_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both series are of one client and instance."""
    records = imported(tmp_path, *(series(RATE, minutes(3, 1_000.0), broker=broker) for broker in "12"))

    found = {broker: [each["amount"] for each in records if each["broker"] == broker] for broker in (1, 2)}
    assert found == {1: [60_000] * 3, 2: [60_000] * 3}
    said = capsys.readouterr()
    assert said.out.startswith("6 records of 1 min, 360 kB of produce\n")
    assert said.err.endswith('broker 1 is b:1{broker="1"}\nbroker 2 is b:1{broker="2"}\n')


def test_only_replicas_are_merged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two replicas of a Prometheus see two pods behind one address, and two jobs scrape each of them."""
    every = [
        series(RATE, minutes(2, 1_000.0), prometheus_replica=replica, pod=pod, job=job)
        for replica in "ab"
        for pod in ("kafka-0", "kafka-1")
        for job in "xy"
    ]

    each = imported(tmp_path, *every)
    told = capsys.readouterr().err
    merged = imported(tmp_path, *every, words=("--replica-label", "job"))

    assert sorted((one["broker"], one["amount"]) for one in each) == [(at, 60_000) for at in (1, 1, 2, 2, 3, 3, 4, 4)]
    assert (
        "b:1: series of one client differ in job, pod, so they are counted as several brokers; if they are one broker, "
        "measured twice, add --replica-label job --replica-label pod\n"
    ) in told
    assert {one["proxy"] for one in merged} == {'b:1{pod="kafka-0"}', 'b:1{pod="kafka-1"}'}
    assert [one["amount"] for one in merged] == [60_000] * 4


def test_throttle_times_belong_to_the_records_of_their_time(tmp_path: Path) -> None:
    records = imported(
        tmp_path,
        series(RATE, minutes(2, 1_000.0), broker="4"),
        series("kafka_server_produce_throttle_time", {60: "NaN", 120: 250}, broker="4"),
    )

    assert [(one["start_ms"] // 60_000, one["broker"], one["throttle_time_ms"]) for one in records] == [
        (0, 4, 0), (1, 4, 250),
    ]  # fmt: skip


def test_metrics_of_own_rules_have_own_names(tmp_path: Path) -> None:
    records = imported(tmp_path, series("in_bytes", minutes(2, 1_000.0)), words=("--metric", "produce_rate=in_bytes"))

    assert [(one["kind"], one["amount"]) for one in records] == [("produce", 60_000)] * 2


def test_labels_name_brokers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One broker has a label, one is named on the command line, one is numbered, and two are behind one exporter."""
    rates = minutes(50, 10.0)
    every = (
        series(RATE, rates, instance="a:1"),
        series(RATE, rates, instance="b:1", broker_id="9"),
        series(RATE, rates, instance="c:1"),
        series(RATE, rates, instance="d:1", broker="11"),
        series(RATE, rates, instance="d:1", broker="12"),
    )

    assert run(tmp_path, every, "--broker", "c:1=1", until=50) == 0

    records = pq.read_table(tmp_path / "usage").to_pylist()
    assert {(one["proxy"], one["broker"]) for one in records} == {
        ("a:1", 2), ("b:1", 9), ("c:1", 1), ('d:1{broker="11"}', 11), ('d:1{broker="12"}', 12),
    }  # fmt: skip
    assert len(records) == 5 * 50
    said = capsys.readouterr().err
    assert "  up to 1970-01-01 00:50:00 UTC: 250 records\nbroker 1 is c:1\nbroker 2 is a:1 (a number in" in said


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (series("up", minutes(2, 1)), "has no client metrics of Kafka. A broker exports them only"),
        (series(RATE, minutes(2, 0)), "none of the clients sent or fetched anything"),
    ],
)
def test_a_server_without_traffic_of_clients_is_an_error(
    one: Series, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, (one,)) == 1

    assert said in capsys.readouterr().err
    assert not (tmp_path / "usage").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--url", "http://h:1", "--from", "2026-11-01", "--until", "2026-11-01"],
            "must be later than --from",
        ),
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
