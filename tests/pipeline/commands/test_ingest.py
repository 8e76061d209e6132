"""A lake gets each record once, whatever happens to the files, and commands read it as they read the log."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from kafka_quota_proxy.pipeline.__main__ import main
from kafka_quota_proxy.pipeline.lake import Lake
from kafka_quota_proxy.pipeline.record import COLUMNS
from tests.pipeline.support import lines, record, write_log

DAY_S = 86_400


def ingest(usage: Path, lake: Path, *words: str) -> int:
    return main(["ingest", "--usage", str(usage), "--lake", str(lake), "--once", *words])


def stored(spark: SparkSession, lake: Path, cluster: str | None = None) -> list[dict[str, Any]]:
    """Return the records of a lake, sorted."""
    found = Lake.at(str(lake))
    assert found is not None
    records = found.records(spark, cluster=cluster).orderBy("start_ms", "proxy", "user")
    return [row.asDict() for row in records.collect()]


def quarantine(lake: Path) -> dict[tuple[str, str], str]:
    """Return the text of each line in quarantine, by the name of its file and its fault."""
    found = [json.loads(line) for path in lake.glob("quarantine/**/*.json") for line in path.read_text().splitlines()]
    return {(Path(one["source"]).name, one["fault"]): one.get("text", "") for one in found}


@pytest.mark.kafka
def test_each_record_gets_into_the_lake_once(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usage, lake = tmp_path / "usage", tmp_path / "lake"
    first = [record(at_s=at, user=user, broker=broker) for at in range(3) for user, broker in (("b", 1), ("a", None))]
    write_log(usage / "first.jsonl", [*first, first[0]])

    assert ingest(usage, lake) == 0
    (usage / "deep").mkdir()
    (usage / "deep" / "copy of first.jsonl.gz").write_bytes(gzip.compress((usage / "first.jsonl").read_bytes()))
    late = [record(at_s=-10 * DAY_S), first[2], record(at_s=DAY_S, proxy="p2")]
    write_log(usage / "late.jsonl", late)
    with (usage / "late.jsonl").open("a") as file:
        file.write("not a record\n")
    assert ingest(usage, lake) == 0
    assert ingest(usage, lake) == 0

    expected = sorted([*first, late[0], late[2]], key=lambda one: (one["start_ms"], one["proxy"], one["user"]))
    assert stored(spark, lake) == [{name: one[name] for name in COLUMNS} for one in expected]
    days = sorted(path.name for path in (lake / "records" / "cluster=default").glob("day=*"))
    assert days == ["day=2026-08-28", "day=2026-09-07", "day=2026-09-08"]
    assert list(quarantine(lake).values()) == ["not a record"]
    said = capsys.readouterr().err
    assert "ended: 11 lines; 1 bad: see quarantine/, such as" in said
    assert said.endswith("ended: 0 lines\n")


@pytest.mark.pipeline
def test_compressed_files_that_are_cut_or_damaged_do_not_stop_the_job(spark: SparkSession, tmp_path: Path) -> None:
    usage, lake = tmp_path / "usage", tmp_path / "lake"
    usage.mkdir()
    cut, damaged = (
        gzip.compress(lines([record(at_s=at, proxy=proxy, amount=at * 7_919) for at in range(5_000)]).encode())
        for proxy in ("cut", "damaged")
    )
    (usage / "cut.jsonl.gz").write_bytes(cut[: len(cut) // 2])
    (usage / "damaged.jsonl.gz").write_bytes(damaged[:5_000] + b"\xff" * 64 + damaged[5_064:])
    (usage / "empty.jsonl.gz").write_bytes(b"")
    write_log(usage / "good.jsonl", [record(proxy="good")])

    assert ingest(usage, lake) == 0

    by_proxy = Counter(one["proxy"] for one in stored(spark, lake))
    assert by_proxy.keys() == {"cut", "good"}
    assert 1_000 < by_proxy["cut"] < 5_000
    faults = {name: fault for name, fault in quarantine(lake) if "line" not in fault}
    assert "too early" in faults["cut.jsonl.gz"]
    assert "damaged" in faults["damaged.jsonl.gz"]
    # The whole file comes later under another name.
    (usage / "whole.jsonl.gz").write_bytes(cut)
    assert ingest(usage, lake) == 0
    assert Counter(one["proxy"] for one in stored(spark, lake)) == {"cut": 5_000, "good": 1}


RESULTS = {
    "capacity": ("quotas.yaml", "ramp.csv", "report.html", "suggestions", "oversubscription", "seasons"),
    "chargeback": ("notes.txt", "bill", "days", "missing_hours"),
    "whatif": ("entities", "hours", "rules"),
}


def results(out: Path, names: tuple[str, ...]) -> dict[str, str]:
    """Return the texts of a command's results, by name. Spark's names of files differ from run to run."""
    found = {}
    for name in names:
        path = out / name
        files = sorted(path.rglob("*.csv")) + sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
        assert files, name
        found[name] = "".join(
            str(pd.read_parquet(file).to_dict("records")) if file.suffix == ".parquet" else file.read_text()
            for file in files
        )
    return found


@pytest.mark.pipeline
@pytest.mark.usefixtures("spark")
def test_commands_give_the_same_results_from_a_lake_as_from_the_log(tmp_path: Path) -> None:
    usage, lake = tmp_path / "usage", tmp_path / "lake"
    size = ["--entities", "2", "--brokers", "2", "--days", "3", "--interval", "15m"]
    assert main(["simulate", "--out", str(usage), *size]) == 0
    day = sorted(usage.rglob("*.json"))[1]
    of_day = day.read_text().splitlines(keepends=True)
    day.unlink()
    (usage / "early.jsonl").write_text("".join(of_day[::2]))
    assert ingest(usage, lake) == 0
    (usage / "late.jsonl").write_text("".join(of_day[1::2]))
    assert ingest(usage, lake) == 0
    (owners := tmp_path / "owners.csv").write_text("user,client_id,owner,from,until\nteam-01,,one,,2026-09-09\n")
    (quotas := tmp_path / "quotas.yaml").write_text("quotas: [{user: <default>, producer_byte_rate: 20kB}]\n")
    more = {
        "capacity": ["--until", "2026-09-10T03:30", "--timezone", "Asia/Tokyo"],
        "chargeback": ["--owners", str(owners)],
        "whatif": ["--quotas", str(quotas), "--from", "2026-09-08"],
    }

    for command, names in RESULTS.items():
        outs = [tmp_path / f"{command}-{place.name}" for place in (usage, lake)]
        for place, out in zip((usage, lake), outs, strict=True):
            assert main([command, "--usage", str(place), "--out", str(out), *more[command]]) == 0, command
        assert results(outs[0], names) == results(outs[1], names), command


def test_two_jobs_do_not_add_records_of_a_cluster_at_once(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log(tmp_path / "usage" / "a.jsonl", [record(at_s=0)])
    lake = Lake.opened(str(tmp_path / "lake"))
    lake.create()

    with lake.alone("orders"):  # as another process
        assert ingest(tmp_path / "usage", tmp_path / "lake", "--cluster", "orders") == 1
        assert "another ingest adds records of the cluster orders; wait for its end" in capsys.readouterr().err
        assert stored(spark, tmp_path / "lake") == []
        with lake.alone("payments"):
            pass
    with lake.alone("orders"):
        pass
