"""A lake gets each record once, whatever happens to the files, and commands read it as they read the log."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafka_quota_proxy.pipeline.__main__ import main
from tests.end_to_end.support.artifacts import delta_lake
from tests.pipeline.support import JAVA_OPTIONS, SHORT_LIVED, record, write_log

REPOSITORY = Path(__file__).parents[3]
DAY_S = 86_400
# Runs commands in one process, and prints their status. The session that tests share has no Delta Lake.
PROGRAM = """
import json, sys
from kafka_quota_proxy.pipeline.__main__ import main
for words in json.loads(sys.argv[1]):
    print("status", main(words), flush=True)
"""


def run(*commands: list[str]) -> tuple[list[str], str]:
    """Run commands of the pipeline with Delta Lake. Return the lines of stdout, and stderr."""
    spark = [
        "--master", "local[2]", "--conf", f"spark.jars={','.join(map(str, delta_lake()))}",
        "--conf", "spark.driver.memory=1g", "--conf", "spark.sql.shuffle.partitions=2",
        "--conf", f"{JAVA_OPTIONS}={SHORT_LIVED}",
    ]  # fmt: skip
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([[*words, *spark] for words in commands])],
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return ended.stdout.splitlines(), ended.stderr


def billed(bill: Path) -> int:
    """Return the billed bytes."""
    (path,) = (bill / "bill").glob("*.csv")
    return sum(int(line.split(",")[2]) for line in path.read_text().splitlines()[1:])


@pytest.mark.pipeline
@pytest.mark.timeout(900)
def test_each_record_gets_into_the_lake_once_and_is_read_by_cluster_and_span(tmp_path: Path) -> None:
    lake, first, more = (str(tmp_path / name) for name in ("lake", "first", "more"))
    (owners := tmp_path / "owners.csv").write_text("user,client_id,owner\nalice,,ours\n")
    early = [record(at_s=at, user=user, broker=broker) for at in range(3) for user, broker in (("b", 1), ("a", None))]
    write_log(tmp_path / "first" / "usage.jsonl", [*early, early[0]])
    # A copy, a record that comes again, one that comes late, and one of the next day.
    write_log(tmp_path / "more" / "copy of first.jsonl", early)
    days = [record(at_s=-10 * DAY_S, amount=10), early[2], record(at_s=DAY_S, proxy="p2", amount=100)]
    with write_log(tmp_path / "more" / "late.jsonl", days).open("a") as file:
        file.write("not a record\n")

    def bill(name: str, *words: str) -> list[str]:
        out = str(tmp_path / name)
        return ["chargeback", "--usage", lake, "--owners", str(owners), "--out", out, *words]

    said, errors = run(
        ["ingest", "--usage", first, "--lake", lake],
        ["ingest", "--usage", more, "--lake", lake, "--out", str(tmp_path / "bad")],
        ["ingest", "--usage", more, "--lake", lake],
        ["ingest", "--usage", first, "--lake", lake, "--cluster", "orders", "--from", "2026-09-07T00:00:01"],
        bill("all"),
        bill("orders", "--cluster", "orders"),
        bill("day", "--from", "2026-09-07", "--until", "2026-09-08", "--cluster", "default"),
        ["ingest", "--usage", lake, "--lake", str(tmp_path / "other")],
        ["ingest", "--usage", first, "--lake", more],
    )

    assert [line for line in said if "added" in line] == [
        f"{count} records added to {lake}" for count in (6, 2, 0, 4)
    ], errors
    assert [line for line in said if line.startswith("status")] == ["status 0"] * 7 + ["status 2"] * 2
    names = ("all", "orders", "day")
    assert [billed(tmp_path / name) for name in names] == [10_110, 4_000, 6_000]
    (bad,) = [
        json.loads(line) for path in tmp_path.glob("bad/quarantine/*.json") for line in path.read_text().splitlines()
    ]
    assert (Path(bad["source"]).name, bad["line"], bad["text"]) == ("late.jsonl", 4, "not a record")
    assert "is a lake; ingest reads the log itself" in errors
    assert "exists and is no lake" in errors


@pytest.mark.pipeline
@pytest.mark.timeout(900)
def test_two_at_once_add_each_record_once(tmp_path: Path) -> None:
    lake, usage = str(tmp_path / "lake"), str(tmp_path / "usage")
    write_log(tmp_path / "usage" / "usage.jsonl", [record(at_s=at) for at in range(1_000)])
    command = ["ingest", "--usage", usage, "--lake", lake]
    run(["ingest", "--usage", usage, "--lake", lake, "--until", "2026-09-07T00:00:01"])

    both = [
        subprocess.Popen([sys.executable, "-c", _again(command)], env=os.environ | {"PYTHONPATH": str(REPOSITORY)})
        for _ in range(2)
    ]
    assert [process.wait() for process in both] == [0, 0]

    (owners := tmp_path / "owners.csv").write_text("user,client_id,owner\nalice,,ours\n")
    run(["chargeback", "--usage", lake, "--owners", str(owners), "--out", str(tmp_path / "bill")])
    assert billed(tmp_path / "bill") == 1_000_000


def _again(command: list[str]) -> str:
    """Return a program that runs a command, and starts it again, twice at most, if another one was faster."""
    return (
        "import sys\nfrom tests.pipeline.commands.test_ingest import run\n"
        f"sys.exit(not any('status 0' in run({command!r})[0] for _ in range(3)))\n"
    )


def test_the_lake_is_not_inside_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inside: list[Any] = ["ingest", "--usage", str(tmp_path), "--lake", str(tmp_path / "lake")]

    assert main(inside) == 2
    assert "is inside --usage" in capsys.readouterr().err
