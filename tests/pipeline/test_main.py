"""The command line, from its arguments to the files that it writes."""

import csv
import io
import os
import re
import runpy
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

from kafka_quota_proxy.config.load import load
from kafka_quota_proxy.config.model import DEFAULT, Enforcement, Shaping
from kafka_quota_proxy.pipeline.__main__ import main, parser
from kafka_quota_proxy.pipeline.commands import execution
from kafka_quota_proxy.proxy.__main__ import main as check
from tests.pipeline.support import START_MS, record, write_log
from tests.pipeline.test_capacity_report import lines


@pytest.mark.parametrize(
    "command", ["simulate", "import", "capacity", "whatif", "chargeback", "rebalance", "balance", "alerts", "ingest"]
)
def test_help_of_each_command_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])

    assert end.value.code == 0
    assert f"example: kafka-quota-pipeline {command}" in capsys.readouterr().out


def test_help_of_the_source_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["import", "prometheus", "--help"])

    said = capsys.readouterr().out
    assert end.value.code == 0
    assert "kafka-quota-pipeline import prometheus" in said.partition("example: ")[2]


def test_an_import_does_not_load_spark(tmp_path: Path) -> None:
    words = ["import", "prometheus", "--url", "nowhere", "--from", "2026-11-01", "--out", str(tmp_path / "usage")]
    program = (
        "import sys; from kafka_quota_proxy.pipeline.__main__ import main;"
        f"status = main({words});"
        "sys.exit(status if 'pyspark' not in sys.modules else 7)"
    )

    assert subprocess.run([sys.executable, "-c", program], stderr=subprocess.DEVNULL, check=False).returncode == 2


def test_without_the_extra_a_command_says_how_to_install_it() -> None:
    program = (
        "import sys; sys.modules['pyarrow'] = None;"
        "from kafka_quota_proxy.pipeline.__main__ import main;"
        "sys.exit(main(['import', 'prometheus', '--url', 'nowhere', '--from', '2026-11-01', '--out', 'usage']))"
    )

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    needs = "kafka-quota-pipeline: pyarrow is not installed; it comes with the extra pipeline"
    assert ended.stderr == f"{needs}: pip install '.[pipeline]' in a checkout of kafka-quota-proxy\n"
    assert ended.returncode == 1


@pytest.mark.parametrize(
    "line",
    [
        "capacity --usage usage --out plan",
        "capacity --usage kafka://h:1/t --out plan --headroom 1.2 --percentile 99",
        "whatif --usage usage --quotas proposed.yaml --out forecast",
        "chargeback --usage usage --owners owners.csv --out bill",
        "chargeback --usage usage --owners owners.csv --out bill --month 2026-10",
        "rebalance --usage usage --plan reassignment.json --sizes sizes.csv --window 6h",
        "balance --usage usage --limits cluster.yaml --out shares",
        "alerts --usage kafka://h:1/t",
        "ingest --usage kafka://h:1/t --lake lake",
        "capacity --usage lake --out plan --from 2026-09-07 --until 2026-09-07T08:00 --cluster orders",
        "alerts --usage usage --window 10s --near 0.9 --out found",
        "simulate --entities 20 --brokers 3 --days 7 --out usage",
        "simulate --entities 20 --brokers 3 --days 7 --out usage --seed 5",
        "import prometheus --url http://h:1 --from 2026-11-01T08:00 --out usage",
    ],
)
def test_required_arguments_suffice(line: str) -> None:
    words = line.split()

    assert parser(words[0]).parse_args(words).command == words[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["simulate", "--out", "x", "--days", "0"], "number of days above 0"),
        (["simulate", "--out", "x", "--interval", "10"], "has no unit"),
        (["simulate", "--out", "x", "--conf", "memory"], "is not KEY=VALUE"),
        (["import", "--out", "x"], "argument SOURCE: invalid choice"),
        (["import", "prometheus", "--out", "x"], "the following arguments are required: --url, --from"),
        (["import", "prometheus", "--out", "x", "--url", "u", "--from", "noon"], "is not a time; write one such as"),
        (["import", "prometheus", "--out", "x", "--url", "u", "--step", "0s"], "is not a time above 0"),
        (["import", "prometheus", "--out", "x", "--url", "u", "--metric", "bytes=x"], "is not WHAT=NAME"),
        (["import", "prometheus", "--out", "x", "--url", "u", "--broker", "b:1"], "does not end in =ID"),
        (["capacity", "--out", "x"], "--usage"),
        (["capacity", "--out", "x", "--usage", "u", "--percentile", "100"], "50 to 99.99"),
        (["capacity", "--out", "x", "--usage", "u", "--headroom", "0.5"], "at least 1"),
        (["capacity", "--out", "x", "--usage", "u", "--max-delay", "0s"], "is not a time above 0"),
        (["capacity", "--out", "x", "--usage", "u", "--timezone", "Mars"], "is not a time zone"),
        (["capacity", "--out", "x", "--usage", "u", "--timezone", "../etc"], "is not a time zone"),
        (["capacity", "--out", "x", "--usage", "u", "--from", "2026-09-31"], "is not a day or a time"),
        (["whatif", "--out", "x", "--usage", "u", "--until", "2026-09-07 08:00"], "is not a day or a time"),
        (["rebalance", "--usage", "u", "--cluster", "a/b"], "is not the name of a cluster"),
        (["ingest", "--usage", "u", "--lake", "x", "--cluster", "a b"], "is not the name of a cluster"),
    ],
)
def test_a_wrong_argument_is_answered_at_once(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)

    assert end.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("spark")
def test_simulate_writes_a_log_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "usage"

    status = main(
        ["simulate", "--out", str(out), "--entities", "1", "--brokers", "1", "--days", "2", "--interval", "6h"]
    )

    assert status == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert sorted(path.name for path in (out / "days").glob("day=*")) == ["day=2026-09-07", "day=2026-09-08"]


@pytest.mark.usefixtures("spark")
def test_a_closed_pipe_does_not_lose_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in ``kafka-quota-pipeline … | head``. A shell reports SIGPIPE as exit status 141."""
    reading, writing = os.pipe()
    os.close(reading)
    out = tmp_path / "usage"

    # It has no buffer, because closing it would try to flush the rest of a buffer and fail.
    with io.TextIOWrapper(open(writing, "wb", buffering=0), write_through=True) as closed_pipe:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdout", closed_pipe)
        status = main(
            ["simulate", "--out", str(out), "--entities", "1", "--brokers", "1", "--days", "1", "--interval", "12h"]
        )

    assert status == 141
    assert (out / "days").is_dir()


def test_help_into_a_closed_pipe_prints_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)

    try:
        command = [sys.executable, "-m", "kafka_quota_proxy.pipeline", "capacity", "--help"]
        environment = os.environ | {"PYTHONUNBUFFERED": ""}
        ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, env=environment, text=True, check=False)
    finally:
        os.close(writing)

    assert (ended.returncode, ended.stderr) == (141, "")


def test_the_example_for_airflow_has_valid_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow is not installed here, so that classes of this test take the place of its own."""
    commands: list[list[str]] = []

    def spark_submit(*, application_args: list[str], **_: object) -> None:
        commands.append(application_args)

    sdk, operators = ModuleType("airflow.sdk"), ModuleType("airflow.providers.apache.spark.operators.spark_submit")
    sdk.DAG, operators.SparkSubmitOperator = lambda *_, **__: nullcontext(), spark_submit  # type: ignore[attr-defined]
    for module in (sdk, operators):
        monkeypatch.setitem(sys.modules, module.__name__, module)

    runpy.run_path(str(Path(__file__).parents[2] / "deploy" / "airflow" / "kafka_quotas.py"))

    filled = [[word.replace("{{ ds }}", "2026-11-30") for word in words] for words in commands]
    filled = [[re.sub(r"\{\{.+\}\}", "2026-11-02", word) for word in words] for words in filled]
    assert [parser(words[0]).parse_args(words).command for words in filled] == ["ingest", "capacity"]


@pytest.mark.parametrize(("name", "size", "expected"), [
    ("a.jsonl", 1_000, True), ("a.jsonl", 1_001, False), ("a.jsonl.gz", 101, False), ("a.parquet", 40, True),
    ("a.parquet", 41, False), ("a.jsonl", 0, False),
])  # fmt: skip
def test_a_small_local_log_is_known_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, size: int, *, expected: bool
) -> None:
    monkeypatch.setattr(execution, "QUICK_BYTES", 1_000)
    (tmp_path / name).write_bytes(b"x" * size)

    assert execution.is_quickly_read(str(tmp_path)) is expected


@pytest.mark.usefixtures("spark")
def test_a_missing_log_is_reported_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["capacity", "--usage", str(tmp_path / "none"), "--out", str(tmp_path / "plan")])

    assert status == 2
    assert "there is no such file or directory" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cluster", "orders"], "the records of a topic do not name their cluster"),
        (["--from", "2026-09-08T08:00", "--until", "2026-09-08"], "is not after --from"),
    ],
)
def test_a_part_of_a_log_that_cannot_be_read_is_reported_in_a_sentence(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["capacity", "--usage", "kafka://h:1/t", "--out", str(tmp_path / "plan"), *words]) == 2

    assert said in capsys.readouterr().err


def test_a_place_that_cannot_be_reached_is_reported_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capacity", "--usage", "wasb://logs@account/usage", "--out", "plan"]) == 1

    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("kafka-quota-pipeline capacity: wasb://logs@account/usage/")
    assert "cannot reach it: Unrecognized filesystem type" in said


def test_results_do_not_replace_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (out := tmp_path / "out").write_text("mine", encoding="utf-8")

    assert main(["import", "prometheus", "--url", "nowhere", "--from", "2026-11-01", "--out", str(out)]) == 2

    assert "was not written by this program" in capsys.readouterr().err
    assert out.read_text(encoding="utf-8") == "mine"


@pytest.mark.kafka
@pytest.mark.usefixtures("spark")
def test_suggested_limits_load_in_a_proxy_and_throttle_as_forecast(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usage, plan, forecast = (str(tmp_path / name) for name in ("usage", "plan", "forecast"))
    size = ["--entities", "3", "--brokers", "1", "--days", "0.5", "--interval", "30s", "--format", "json.gz"]
    assert main(["simulate", "--out", usage, *size]) == 0

    owners, current = tmp_path / "owners.csv", tmp_path / "current.yaml"
    owners.write_text("user,client_id,owner\n,app-0001,billing\n", encoding="utf-8")
    rules = [
        "{client-id: app-0001, producer_byte_rate: 1kB, consumer_byte_rate: 9GB}",
        "{user: gone, producer_byte_rate: 1MB}",
    ]
    current.write_text("quotas:\n" + "".join(f"  - {rule}\n" for rule in rules), encoding="utf-8")
    beside = ["--owners", str(owners), "--current", str(current)]

    assert main(["capacity", "--usage", usage, "--out", plan, *beside]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{plan}/report.html"
    assert main(["whatif", "--usage", usage, "--quotas", f"{plan}/quotas.yaml", "--out", forecast, *beside[:2]]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{forecast}/report.html"

    assert check(["check", f"{plan}/quotas.yaml"]) == 0
    suggestions = table(plan, "suggestions")
    assert len(suggestions) == 6
    for row in suggestions:
        assert float(row["limit"]) >= float(row["percentile"])
    assert [path.name for path in Path(forecast, "hours").glob("day=*")] in ([], ["day=2026-09-07"])
    outcome = table(forecast, "entities")
    assert len(outcome) == 6
    for row in outcome:
        assert float(row["throttled_share"]) <= 0.01
    page = Path(plan, "report.html").read_text(encoding="utf-8")
    assert page.count("<svg role=") >= 3
    assert "app-0001" in page
    compared = {(row["entity"][1], row["kind"]): row for row in lines(page)}
    assert [compared["app-0001", kind]["current_is"] for kind in ("produce", "fetch")] == ["too tight", "too loose"]
    assert {key: row["team"] for key, row in compared.items() if key[1] == "fetch"} == {
        ("app-0001", "fetch"): "billing", ("app-0002", "fetch"): "(nobody)", ("app-0003", "fetch"): "(nobody)",
    }  # fmt: skip
    assert compared["", "produce"]["current_is"] == "unused"
    page = Path(forecast, "report.html").read_text(encoding="utf-8")
    assert "6 limits can be switched on: no client waits longer than " in page
    replayed = {(row["entity"][1], row["kind"]): row for row in lines(page)}
    for row in outcome:
        one = replayed[row["bucket_client_id"], row["kind"]]
        assert one["longest_delay_ms"] == int(row["longest_delay_ms"])
        assert one["throttle_time_ms"] == int(row["throttle_time_ms"])
    silent_ms: Counter[tuple[str, str, str]] = Counter()
    for row in outcome:
        silent_ms[row["kind"], row["bucket_user"], row["bucket_client_id"]] += int(row["throttle_time_ms"])
    assert silent_ms.total() > 0
    for row in suggestions:
        names = (row["kind"], row["user"], row["client_id"])
        assert float(row["throttled_hours"]) == pytest.approx(silent_ms[names] / 3_600_000)
        assert float(row["throttled_share"]) <= 0.01
        assert int(row["longest_delay_ms"]) <= 30_000
        assert row["decided_by"] in ("percentile", "share", "delay")
    for row in outcome:
        assert int(row["longest_delay_ms"]) <= 30_000


def table(out: str, name: str) -> list[dict[str, str]]:
    """Return the rows of a table that was written as CSV."""
    (path,) = Path(out, name).glob("*.csv")
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.kafka
def test_the_bill_of_a_month_has_remarks_on_the_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spark: SparkSession
) -> None:
    """A file is duplicated, an hour is missing, a clock steps back, and an owner changes. The bill is right.

    It says which file is not in it.
    """
    hours = [hour for hour in range(48) if hour != 30]
    log = [record(at_s=hour * 3_600, amount=10**9 + hour) for hour in hours]
    log += [record(at_s=10 * 3_600 + 0.5, amount=7)]
    write_log(tmp_path / "usage" / "a.jsonl", log)
    write_log(tmp_path / "usage" / "again.jsonl", log[:20])
    (tmp_path / "usage" / "b.jsonl.zst").write_bytes(b"...")
    owners = tmp_path / "owners.csv"
    owners.write_text(
        "user,client_id,owner,from,until\nalice,,old,,2026-09-08\nalice,,new,2026-09-08,\n", encoding="utf-8"
    )
    words = [
        "--usage",
        str(tmp_path / "usage"),
        "--owners",
        str(owners),
        "--out",
        str(tmp_path / "bill"),
        "--price",
        "2",
    ]

    status = main(["chargeback", *words])

    total = sum(one["amount"] for one in log)
    said, errors = capsys.readouterr()
    assert status == 0
    assert sum(int(row["bytes"]) for row in table(str(tmp_path / "bill"), "bill")) == total
    assert {row["owner"]: row["bytes"] for row in table(str(tmp_path / "bill"), "bill")} == {
        "old": str(sum(one["amount"] for one in log if one["start_ms"] < START_MS + 86_400_000)),
        "new": str(sum(one["amount"] for one in log if one["start_ms"] >= START_MS + 86_400_000)),
    }
    left_out = "1 file was not read, because the name does not end in .jsonl"
    assert f"note: {left_out}" in said
    assert left_out in errors
    assert left_out in (tmp_path / "bill" / "notes.txt").read_text(encoding="utf-8")
    assert "20 records came more than once" in said
    assert "p1 logged nothing from 2026-09-08 06:00:00 to 2026-09-08 07:00:00 UTC" in said
    assert f"billed {total:,} bytes, of {total:,} in the log" in said
    stored = spark.read.parquet(f"{tmp_path}/bill/bill.parquet").orderBy("owner", "kind").collect()
    as_text = [{name: str(value) for name, value in row.asDict().items()} for row in stored]
    assert as_text == table(str(tmp_path / "bill"), "bill")
    assert float(as_text[0]["cost"]) > 0


@pytest.mark.kafka
@pytest.mark.usefixtures("spark")
def test_the_throttle_with_which_a_reassignment_ends_in_its_window(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    log = [record(kind="fetch", amount=3_600_000_000), record(at_s=7_199, kind="fetch", amount=1)]
    usage = write_log(tmp_path / "usage.jsonl", log)
    plan, sizes, brokers = tmp_path / "plan.json", tmp_path / "sizes.csv", tmp_path / "capacities.csv"
    plan.write_text('{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}', encoding="utf-8")
    sizes.write_text(
        "topic,partition,leader,replicas,size_bytes,incoming_byte_rate\nt,0,1,1,36GB,2MB\n", encoding="utf-8"
    )
    brokers.write_text("broker,produce,fetch\n1,100MB,100MB\n", encoding="utf-8")
    words = [
        "--usage",
        str(usage),
        "--plan",
        str(plan),
        "--sizes",
        str(sizes),
        "--window",
        "1h",
    ]

    assert main(["rebalance", *words, "--capacities", str(brokers), "--out", str(tmp_path / "night")]) == 0
    ends = capsys.readouterr().out
    assert main(["rebalance", *words, "--window", "3h"]) == 0
    longer = capsys.readouterr().out

    assert "--throttle 12000000 (12 MB/s)" in ends
    # From 01:00 on, clients have all of the capacity except the throttle.
    assert "broker 1 sends 36 GB: needs 12 MB/s; at 12 MB/s it ends in 1 h; leaves clients 88 MB/s more" in ends
    assert "clients use least from 01:00, UTC" in ends
    assert "the log covers too few hours of the day to tell when clients use least" in longer
    assert "broker 1 sends 36 GB: needs 5.33 MB/s; at 5.33 MB/s it ends in 3 h\n" in longer
    assert ends.endswith(f"\n{tmp_path}/night/brokers\n")
    assert table(str(tmp_path / "night"), "brokers")[0]["throttle"] == "12000000"
    # Without --out the command only prints, and writes no file.
    assert "brokers\n" not in longer
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.usefixtures("spark")
def test_each_proxy_gets_a_valid_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = [
        record(at_s=at, proxy=proxy, amount=amount)
        for at in range(3)
        for proxy, amount in (("a/b", 3_000), ("c", 1_000))
    ]
    usage = write_log(tmp_path / "usage.jsonl", log)
    limits = tmp_path / "cluster.yaml"
    limits.write_text(
        "shaping: paced\nquotas:\n  - {user: <default>, producer_byte_rate: 1MB, enforcement: observe}\n",
        encoding="utf-8",
    )

    status = main(
        ["balance", "--usage", str(usage), "--limits", str(limits), "--out", str(tmp_path / "shares"), "--floor", "0"]
    )

    files = capsys.readouterr().out.split()
    assert status == 0
    assert files == [f"{tmp_path}/shares/a%2Fb/quotas.yaml", f"{tmp_path}/shares/c/quotas.yaml"]
    configs = [load(file).config for file in files]
    assert [[(rule.user, rule.limits.get("producer_byte_rate")) for rule in config.quotas] for config in configs] == [
        [(DEFAULT, 500_000.0), ("alice", 750_000.0)],
        [(DEFAULT, 500_000.0), ("alice", 250_000.0)],
    ]
    assert {config.shaping for config in configs} == {Shaping.PACED}
    assert {rule.enforcement for config in configs for rule in config.quotas} == {Enforcement.OBSERVE}
