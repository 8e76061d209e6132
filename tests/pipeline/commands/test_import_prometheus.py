"""The command with saved answers, and its errors. The server is tested in ``test_prometheus_api`` and end to end."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kafka_quota_proxy.pipeline.__main__ import main
from tests.pipeline.scripted_server import server

RATE = "kafka_server_produce_byte_rate"
MINUTE = 60


def series(name: str, values: dict[float, str | float], **labels: str) -> dict[str, Any]:
    metric = {"instance": "b:1", "user": "alice", **({"__name__": name} if name else {}), **labels}
    return {"metric": metric, "values": [[at_s, str(value)] for at_s, value in values.items()]}


def answer(*every: dict[str, Any]) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "matrix", "result": list(every)}}


def minutes(count: int, rate: float, *, first: int = 1) -> dict[float, str | float]:
    return {MINUTE * at: rate for at in range(first, first + count)}


def imported(tmp_path: Path, *words: str) -> list[dict[str, Any]]:
    """Import saved answers. Return the records."""
    out = tmp_path / "usage"
    assert main(["import", "prometheus", *words, "--out", str(out)]) == 0
    rows: list[dict[str, Any]] = pq.read_table(out).to_pylist()
    return rows


def test_one_answer_may_be_written_over_many_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = answer(
        series(RATE, minutes(3, 1_000.0)),
        series(RATE, minutes(2, 500.0), instance="a:1", user="bob"),
        series("up", minutes(3, 1)),
    )
    (saved := tmp_path / "answer.json").write_text(json.dumps(document, indent=1))

    records = imported(tmp_path, "--file", str(saved), "--broker", "b:1=7", "--broker", "c:1=8")

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
    """Both series are of one client and instance. The node ids may also be in answers of their own."""
    both = [series(RATE, minutes(3, 1_000.0), broker=broker) for broker in "12"]
    (one := tmp_path / "one.json").write_text(json.dumps(answer(*both)))
    (lines := tmp_path / "lines.json").write_text("".join(json.dumps(answer(each)) + "\n" for each in both))

    for saved in (one, lines):
        records = imported(tmp_path, "--file", str(saved))

        found = {broker: [each["amount"] for each in records if each["broker"] == broker] for broker in (1, 2)}
        assert found == {1: [60_000] * 3, 2: [60_000] * 3}
        said = capsys.readouterr()
        assert said.out.startswith("6 records of 1 min, 360 kB of produce\n")
        assert said.err == 'broker 1 is b:1{broker="1"}\nbroker 2 is b:1{broker="2"}\n'


def test_only_replicas_are_merged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two replicas of a Prometheus see two pods behind one address, and two jobs scrape each of them."""
    document = answer(
        *(
            series(RATE, minutes(2, 1_000.0), prometheus_replica=replica, pod=pod, job=job)
            for replica in "ab"
            for pod in ("kafka-0", "kafka-1")
            for job in "xy"
        )
    )
    (saved := tmp_path / "answer.json").write_text(json.dumps(document))

    each = imported(tmp_path, "--file", str(saved))
    told = capsys.readouterr().err
    merged = imported(tmp_path, "--file", str(saved), "--replica-label", "job")

    assert sorted((one["broker"], one["amount"]) for one in each) == [(at, 60_000) for at in (1, 1, 2, 2, 3, 3, 4, 4)]
    assert (
        "b:1: series of one client differ in job, pod, so they are counted as several brokers; if they are one broker, "
        "measured twice, add --replica-label job --replica-label pod\n"
    ) in told
    assert {one["proxy"] for one in merged} == {'b:1{pod="kafka-0"}', 'b:1{pod="kafka-1"}'}
    assert [one["amount"] for one in merged] == [60_000] * 4


def test_each_line_may_be_an_answer_and_throttle_times_may_come_later(tmp_path: Path) -> None:
    lines = [
        answer(series(RATE, minutes(2, 1_000.0), broker="4")),
        answer(series(RATE, minutes(2, 1_000.0, first=4), broker="4")),
        answer(series("kafka_server_produce_throttle_time", {60: "NaN", 120: 250, 180: "NaN"}, broker="4")),
    ]
    saved = tmp_path / "answers.jsonl.GZ"
    saved.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))

    records = imported(tmp_path, "--file", str(saved))

    assert [(one["start_ms"] // 60_000, one["broker"], one["throttle_time_ms"]) for one in records] == [
        (0, 4, 0), (1, 4, 250), (3, 4, 0), (4, 4, 0),
    ]  # fmt: skip


def test_metrics_of_own_rules_have_own_names(tmp_path: Path) -> None:
    (saved := tmp_path / "answer.json").write_text(json.dumps(answer(series("in_bytes", minutes(2, 1_000.0)))))

    records = imported(tmp_path, "--file", str(saved), "--metric", "produce_rate=in_bytes")

    assert [(one["kind"], one["amount"]) for one in records] == [("produce", 60_000)] * 2


def test_labels_of_a_server_name_brokers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One broker has a label, one is named on the command line, one is numbered, and two are behind one exporter."""

    def answer_to(path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path.endswith("/values"):
            return 200, {"data": [RATE] if "__name__" in path else ["a:1", "b:1", "c:1", "d:1"]}
        start, end = float(query["start"]), float(query["end"])
        values: dict[float, str | float] = dict.fromkeys(range(int(start), int(end) + 1, MINUTE), 10.0)
        return 200, answer(
            series("", values, instance="a:1"),
            series("", values, instance="b:1", broker_id="9"),
            series("", values, instance="c:1"),
            series("", values, instance="d:1", broker="11"),
            series("", values, instance="d:1", broker="12"),
        )

    with server(answer_to) as (address, _):
        words = ["--url", f"http://{address}", "--from", "2026-11-01T00:00", "--until", "2026-11-01T02:00"]
        records = imported(tmp_path, *words, "--broker", "c:1=1")

    assert {(one["proxy"], one["broker"]) for one in records} == {
        ("a:1", 2), ("b:1", 9), ("c:1", 1), ('d:1{broker="11"}', 11), ('d:1{broker="12"}', 12),
    }  # fmt: skip
    assert len(records) == 5 * 120
    said = capsys.readouterr().err
    assert "  up to 2026-11-01 02:00:00 UTC: 600 records\nbroker 1 is c:1\nbroker 2 is a:1 (a number in" in said


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        (
            json.dumps(answer(series("up", minutes(2, 1)))),
            1,
            "has no client metrics of Kafka. A broker exports them only",
        ),
        (json.dumps(answer(series(RATE, minutes(2, 0)))), 1, "none of the clients sent or fetched anything"),
        (
            json.dumps({"status": "error", "error": "timeout"}),
            2,
            "answer:1: Prometheus answered with an error: timeout",
        ),
        ("a: 1\n", 2, "answer:1: is not JSON"),
        (json.dumps(answer()) + "\n{\n", 2, "answer:2: is not JSON"),
    ],
)
def test_a_file_that_cannot_be_imported_is_named(
    text: str, status: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (saved := tmp_path / "answer").write_text(text)

    assert main(["import", "prometheus", "--file", str(saved), "--out", str(tmp_path / "usage")]) == status

    assert said in capsys.readouterr().err
    assert not (tmp_path / "usage").exists()


def test_a_file_that_is_compressed_otherwise_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (saved := tmp_path / "answer.json.zst").write_bytes(b"(\xb5/\xfd...")

    assert main(["import", "prometheus", "--file", str(saved), "--out", str(tmp_path / "usage")]) == 2

    assert f"{saved}: is not text; unpack it, or compress it as .gz\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--url", "http://h:1"], "--from: is needed with --url"),
        (["--url", "http://h:1", "--from", "2026-11-01", "--until", "2026-11-01"], "must be later by one --step"),
        (["--url", "prometheus:9090", "--from", "2026-11-01"], "--url: is not the address of a server"),
        (["--url", "http://h:1", "--from", "2026-11-01", "--bearer-token-file", "/nowhere"], "cannot be read"),
        (["--url", "http://h:1", "--from", "2026-11-01", "--bearer-token-file", "/dev/null"], "has no token"),
        (["--file", "/nowhere"], "/nowhere: No such file or directory"),
        (["--file", "a", "--until", "2026-11-01"], "--from and --until: are for --url"),
    ],
)
def test_wrong_arguments_are_named(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", "prometheus", *words, "--out", str(tmp_path / "usage")]) == 2

    assert said in capsys.readouterr().err
