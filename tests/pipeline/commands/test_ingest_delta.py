"""A lake may be a table of Delta Lake."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.support.artifacts import delta_lake
from tests.pipeline.support import JAVA_OPTIONS, SHORT_LIVED, record, write_log

ROOT = Path(__file__).parents[3]
SMALL = (
    "spark.sql.shuffle.partitions=2",
    "spark.databricks.delta.snapshotPartitions=1",
    f"{JAVA_OPTIONS}={SHORT_LIVED}",
)


def run(*words: object, jars: bool = True) -> subprocess.CompletedProcess[str]:
    settings = [*SMALL, f"spark.jars={','.join(map(str, delta_lake()))}"] if jars else SMALL
    conf = [f"--conf={setting}" for setting in settings]
    command = [sys.executable, "-m", "kafka_quota_proxy.pipeline", *map(str, words), "--master", "local[2]", *conf]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250, check=False)


@pytest.mark.pipeline
@pytest.mark.timeout(900)
def test_a_delta_lake_gets_each_record_once_and_is_read_by_day(tmp_path: Path) -> None:
    usage, lake = tmp_path / "usage", tmp_path / "lake"
    log = [record(at_s=at * 3_600, user=user, amount=at) for at in range(30) for user in ("a", "b")]
    write_log(usage / "first.jsonl", log[:40])
    words = ["ingest", "--usage", usage, "--lake", lake, "--format", "delta", "--cluster", "orders", "--once"]

    without = run(*words, jars=False)
    assert without.returncode == 2
    assert "has the format delta, which needs jars" in without.stderr
    first = run(*words)
    assert first.returncode == 0, first.stderr
    write_log(usage / "again.jsonl", log[20:])
    again = run(*words)
    assert again.returncode == 0, again.stderr

    assert "40 records are new" in first.stderr
    assert "20 records are new" in again.stderr
    assert len(list((lake / "records" / "_delta_log").glob("*.json"))) == 3  # created, and two batches
    (owners := tmp_path / "owners.csv").write_text("user,client_id,owner,from,until\na,,one,,\n")
    bill = run("chargeback", "--usage", lake, "--owners", owners, "--out", tmp_path / "bill", "--from", "2026-09-08")
    assert bill.returncode == 0, bill.stderr
    amount = sum(range(24, 30))
    assert f"note: billed {2 * amount} bytes, of {2 * amount} in the log" in bill.stdout
