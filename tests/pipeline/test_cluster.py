"""The pipeline on a Spark cluster with workers that see only the wheel, installed or sent by spark-submit."""

import csv
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyspark
import pytest

from kafka_quota_proxy.pipeline.candidate_quotas import CandidateQuotas
from kafka_quota_proxy.pipeline.quotas_file import read_quotas
from tests.pipeline.literal_replay import Demand, LiteralReplay, beside
from tests.pipeline.support import START_MS, record
from tests.support.wheels import bare_environment, built_wheel, install, outside_checkout

SPARK_HOME = Path(pyspark.__file__).parent
# None of these may be importable in a bare Python. They are the installed package and the folders of the checkout.
OURS = ("kafka_quota_proxy", "proxy", "protocol", "config", "pipeline")
# The address at which the executors reach the driver.
HERE = ("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1")
RESULTS = ("quotas.yaml", "report.html")
SUBMIT = Path(__file__).parents[2] / "deploy" / "spark" / "submit.py"
# This line, put before those of the program, prints the place of the code that it runs.
PLACE = "from kafka_quota_proxy import pipeline\nprint(pipeline.__file__)\n"
SECONDS = 300
# Pairs of a broker and a user. All of them send at the same rate.
BUCKETS = [(broker, f"user-{at:03}") for broker in (1, 2) for at in range(400)]
# JVMs that live for seconds need neither the optimising compiler nor a parallel garbage collector.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Settings for a log of a few rows. Each executor gets a task as soon as both have started, and no plan is compiled.
SMALL = {
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.ui.enabled": "false",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of this checkout."""
    return built_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Python without our package."""
    python = bare_environment(tmp_path_factory.mktemp("bare") / "venv")
    for package in OURS:
        found = run([python, "-c", f"import {package}"], python.parent)
        assert "ModuleNotFoundError" in found.stderr, (package, found)
    return python


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """Return a Python with the wheel."""
    python = bare_environment(tmp_path_factory.mktemp("installed") / "venv")
    install(wheel, python)
    return python


def clean(**more: str) -> dict[str, str]:
    """Return environment variables that do not refer to the checkout."""
    kept = {key: value for key, value in outside_checkout().items() if key not in ("PYSPARK_PYTHON", "SPARK_HOME")}
    return kept | {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1"} | more


def run(words: Sequence[object], cwd: Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program outside the checkout."""
    return subprocess.run(
        [str(word) for word in words], cwd=cwd, env=env or clean(), capture_output=True, text=True, check=False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The URL of the Spark master, and the working directory of all executors."""

    url: str
    work: Path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start a Spark master and two workers."""
    directory = tmp_path_factory.mktemp("cluster")
    log, work = directory / "master.log", directory / "work"
    with ExitStack() as stack, log.open("w") as master_log:

        def start(name: str, *words: str, output: object = subprocess.DEVNULL) -> None:
            command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *words]
            env = clean(SPARK_WORKER_DIR=str(work), SPARK_DAEMON_JAVA_OPTS=QUICK_JVM)
            process = subprocess.Popen(command, env=env, cwd=directory, stdout=output, stderr=subprocess.STDOUT)  # type: ignore[call-overload]
            stack.callback(process.wait)
            stack.callback(process.kill)

        start("master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0", output=master_log)
        url = _url_of(log)
        for _ in range(2):
            start("worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g", url)
        yield Cluster(url=url, work=work)


def _url_of(log: Path) -> str:
    for _ in range(600):
        found = re.search(r"spark://127\.0\.0\.1:\d+", log.read_text(encoding="utf-8"))
        if found:
            return found[0]
        time.sleep(0.1)
    pytest.fail(f"the master did not start: {log.read_text(encoding='utf-8')}")


@pytest.fixture(scope="module")
def usage(tmp_path_factory: pytest.TempPathFactory, installed: Path) -> Path:
    """Return a directory with a usage log and the results of ``capacity`` without a cluster."""
    directory = tmp_path_factory.mktemp("log")
    size = ("--entities", "4", "--brokers", "2", "--days", "0.5")
    for words in (["simulate", "--out", "usage", *size], ["capacity", "--usage", "usage", "--out", "plan"]):
        ended = run([installed, "-m", "kafka_quota_proxy.pipeline", *words], directory)
        assert ended.returncode == 0, ended.stderr
    return directory


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """Return a copy of the wheel named .zip, because Spark does not recognise .whl as an archive."""
    path = tmp_path_factory.mktemp("shipped") / "kafka_quota_proxy.zip"
    path.write_bytes(wheel.read_bytes())
    return path


# The fixture ``cluster`` comes first, so that its workers start while the wheel is built.
@pytest.mark.pipeline
def test_a_cluster_that_gets_the_wheel_with_its_job_replays_a_log(
    cluster: Cluster, bare: Path, shipped: Path, tmp_path: Path
) -> None:
    """Executors run the ``bare`` Python, so they have only the code that the driver sends."""
    usage = tmp_path / "usage.parquet"
    # With fewer records, the driver would replay them.
    second, bucket = np.divmod(np.arange(SECONDS * len(BUCKETS)), len(BUCKETS))
    log = pd.DataFrame({name: value for name, value in record(amount=3_000).items() if value is not None}, index=second)
    brokers, users = (np.array(column)[bucket] for column in zip(*BUCKETS, strict=True))
    log.assign(start_ms=START_MS + second * 1_000, broker=brokers.astype(np.int32), user=users).to_parquet(usage)
    (quotas := tmp_path / "quotas.yaml").write_text("quotas: [{user: <default>, producer_byte_rate: 2000}]\n")
    (program := tmp_path / "submit.py").write_text(PLACE + SUBMIT.read_text(encoding="utf-8"))
    conf = [word for key, value in SMALL.items() for word in ("--conf", f"{key}={value}")]
    submit = [SPARK_HOME / "bin" / "spark-submit", "--master", cluster.url, *HERE, *conf, "--py-files", shipped]
    words = ["whatif", "--usage", usage, "--quotas", quotas, "--out", tmp_path / "forecast"]

    ended = run([*submit, program, *words], tmp_path, clean(PYSPARK_PYTHON=str(bare)))

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(f"{shipped}/kafka_quota_proxy/pipeline/"), ended.stdout
    assert len(list(cluster.work.glob(f"app-*/*/{shipped.name}"))) == 2
    expected = LiteralReplay(CandidateQuotas(config=read_quotas(str(quotas))).bucket("produce", "user-000", ""))
    for demand in beside([Demand(START_MS + at * 1_000, 1_000, 3_000, 1) for at in range(SECONDS)]):
        expected.take(demand)
    throttle_time_ms = sum(hour.throttle_time_ms for hour in expected.end().hours.values())
    (table,) = (tmp_path / "forecast" / "entities").glob("*.csv")
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    assert [(int(row["broker"]), row["bucket_user"]) for row in rows] == sorted(BUCKETS)
    assert {(row["amount"], row["throttle_time_ms"]) for row in rows} == {(str(SECONDS * 3_000), str(throttle_time_ms))}
    assert throttle_time_ms > 0


@pytest.mark.pipeline
@pytest.mark.timeout(900)
def test_a_cluster_with_the_wheel_installed_gives_the_results_of_one_machine(
    cluster: Cluster, installed: Path, usage: Path, tmp_path: Path
) -> None:
    words = ["capacity", "--usage", usage / "usage", "--out", tmp_path / "plan", "--master", cluster.url, *HERE]

    # Workers take the python3 of their PATH, if nothing else is said.
    env = clean(PYSPARK_PYTHON=str(installed))
    ended = run([installed, "-m", "kafka_quota_proxy.pipeline", *words], tmp_path, env)

    assert ended.returncode == 0, ended.stderr
    for name in RESULTS:
        assert (tmp_path / "plan" / name).read_text() == (usage / "plan" / name).read_text(), name


@pytest.mark.pipeline
@pytest.mark.timeout(900)
def test_spark_submit_brings_the_wheel_to_a_cluster_that_does_not_have_it(
    cluster: Cluster, bare: Path, shipped: Path, usage: Path, tmp_path: Path
) -> None:
    program = SUBMIT
    submit = [SPARK_HOME / "bin" / "spark-submit", "--master", cluster.url, *HERE, "--py-files", shipped, program]
    env = clean(PYSPARK_PYTHON=str(bare))

    without = run([*submit[:-3], program, "capacity", "--help"], tmp_path, env)
    ended = run([*submit, "capacity", "--usage", usage / "usage", "--out", tmp_path / "plan"], tmp_path, env)

    assert "No module named 'kafka_quota_proxy'" in without.stdout + without.stderr
    assert ended.returncode == 0, ended.stderr
    for name in RESULTS:
        assert (tmp_path / "plan" / name).read_text() == (usage / "plan" / name).read_text(), name
