"""Logs of millions of records, and a cluster of processes: what the short tests cannot show. ``make test-pipeline``."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest

from bench import pipeline
from config.load import load
from pipeline.simulate import Fleet
from tests.pipeline.support import START_MS

pytestmark = [pytest.mark.pipeline, pytest.mark.timeout(7_200)]

REPOSITORY = Path(__file__).parent.parent.parent


def run(*words: str) -> None:
    """Run the pipeline as a user does, in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, "-m", "pipeline", *words], cwd=REPOSITORY, check=True, env=environment)


def simulated(out: Path, rows: int, *, skew: bool = False) -> str:
    """Make up a log of about so many records of a second each, and return where it is."""
    fleet = Fleet(entities=20, brokers=1, days=1, interval_ms=1_000, start_ms=START_MS, seed=1, skew=skew)
    in_an_interval = 2 if skew else fleet.buckets
    days = rows / in_an_interval / 86_400
    words = ["--entities", "20", "--brokers", "1", "--interval", "1s", "--days", f"{days:.6f}", "--format", "parquet"]
    run("simulate", "--out", str(out), *words, *(["--skew"] if skew else []))
    return str(out)


def test_time_grows_no_faster_than_records_and_memory_does_not(tmp_path: Path) -> None:
    """The proof on 10^8 records takes some 20 minutes more: ``PIPELINE_ROWS=1e6,1e7,1e8``."""
    sizes = [int(float(rows)) for rows in os.environ.get("PIPELINE_ROWS", "1e6,1e7").split(",")]

    logs = [pipeline.measured(rows, tmp_path / f"{rows}") for rows in (pipeline.START_UP_ROWS, *sizes)]

    for command in pipeline.COMMANDS:
        assert all(ratio <= 1.1 for ratio in pipeline.growth(logs, command)), (command, logs)
        for log in logs:
            # What the JVM has beside its heap (code, threads, buffers) is Java's own; it does not grow with records.
            assert log.runs[command].jvm_bytes < 3 * 2**30, (command, log)
            assert log.runs[command].python_bytes < 2**30, (command, log)
    assert load(tmp_path / f"{sizes[-1]}" / "plan" / "quotas.yaml").config.quotas


def test_a_client_with_half_of_all_records_needs_no_more_memory(tmp_path: Path) -> None:
    usage = simulated(tmp_path / "usage", 2 * 10**6, skew=True)

    run("capacity", "--usage", usage, "--out", str(tmp_path / "plan"), "--conf", "spark.driver.memory=1g")

    assert load(tmp_path / "plan" / "quotas.yaml").config.quotas


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """A standalone cluster, a master and two workers; its URL."""
    home = Path(pyspark.__file__).parent
    environment = os.environ | {
        "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(tmp_path / "work"),
        "PYSPARK_PYTHON": sys.executable,
    }  # fmt: skip
    log = tmp_path / "master.log"
    with ExitStack() as stack, log.open("w") as master_log:

        def start(name: str, *words: str, output: object = subprocess.DEVNULL) -> None:
            command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *words]
            process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)  # type: ignore[call-overload]
            stack.callback(process.wait)
            stack.callback(process.kill)

        start("master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0", output=master_log)
        url = _url_of(log)
        for _ in range(2):
            start("worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g", url)
        yield url


def _url_of(log: Path) -> str:
    for _ in range(600):
        found = re.search(r"spark://127\.0\.0\.1:\d+", log.read_text(encoding="utf-8"))
        if found:
            return found[0]
        time.sleep(0.1)
    pytest.fail(f"the master did not start: {log.read_text(encoding='utf-8')}")


def test_a_cluster_gives_what_one_machine_does(tmp_path: Path, cluster: str) -> None:
    """The workers find the package where a wheel puts it: in the site-packages of the Python that they run."""
    usage = str(tmp_path / "usage")
    run("simulate", "--out", usage, "--entities", "4", "--brokers", "2", "--days", "1")

    run("capacity", "--usage", usage, "--out", str(tmp_path / "local"))
    conf = ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"]
    run("capacity", "--usage", usage, "--out", str(tmp_path / "there"), "--master", cluster, *conf)

    for name in ("quotas.yaml", "ramp.csv", "report.html"):
        assert (tmp_path / "local" / name).read_text() == (tmp_path / "there" / name).read_text(), name
