"""A job is killed while it adds a batch. Afterwards each record is in the lake once."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafka_quota_proxy.pipeline.lake import Lake
from kafka_quota_proxy.pipeline.record import COLUMNS
from tests.pipeline.support import JAVA_OPTIONS, SHORT_LIVED, record, write_log

pytestmark = pytest.mark.pipeline

ROOT = Path(__file__).parents[3]
DAYS = 40
PATIENCE_S = 200
SETTINGS = ("spark.sql.shuffle.partitions=1", "spark.sql.codegen.wholeStage=false", f"{JAVA_OPTIONS}={SHORT_LIVED}")


@contextmanager
def job(usage: Path, lake: Path) -> Iterator[subprocess.Popen[bytes]]:
    conf = [word for setting in SETTINGS for word in ("--conf", setting)]
    words = ["ingest", "--usage", usage, "--lake", lake, "--once", "--master", "local[1]", *conf]
    with lake.with_suffix(".log").open("ab") as log:
        command = [sys.executable, "-m", "kafka_quota_proxy.pipeline", *map(str, words)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def files(lake: Path, pattern: str) -> list[Path]:
    return [path for path in lake.glob(pattern) if not path.name.startswith(".")]


POINTS: dict[str, Callable[[Path], bool]] = {
    "writes temporary files": lambda lake: bool(files(lake, "records/cluster=default/_temporary/**/*.parquet")),
    "moves files": lambda lake: bool(files(lake, "records/cluster=default/day=*")),
}


@pytest.mark.timeout(600)
def test_after_kills_each_record_is_in_the_lake_once(spark: SparkSession, tmp_path: Path) -> None:
    usage, path = tmp_path / "usage", tmp_path / "lake"
    days = [
        record(at_s=day * 86_400 + at, user=user, amount=day + at)
        for day in range(DAYS)
        for at in range(5)
        for user in ("a", "b")
    ]
    write_log(usage / "days.jsonl", [*days, *days[:7]])

    for what, is_there in POINTS.items():
        with job(usage, path) as process:
            deadline = time.monotonic() + PATIENCE_S
            while not is_there(path):
                assert process.poll() is None, (
                    f"ended before it {what}: {path.with_suffix('.log').read_text()[-2_000:]}"
                )
                assert time.monotonic() < deadline, what
                time.sleep(0.001)
            os.killpg(process.pid, signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
    with job(usage, path) as process:
        assert process.wait(PATIENCE_S) == 0, path.with_suffix(".log").read_text()[-2_000:]

    lake = Lake.at(str(path))
    assert lake is not None
    expected = sorted((tuple(one[name] for name in COLUMNS) for one in days), key=str)
    assert sorted((tuple(row) for row in lake.records(spark).collect()), key=str) == expected
