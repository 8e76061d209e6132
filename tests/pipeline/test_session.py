"""Commands run with Spark Connect, where this process has no JVM, and give the results of a local session."""

import gzip
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from kafka_quota_proxy.pipeline.__main__ import main
from tests.pipeline.support import SHORT_LIVED, lines, record, write_log

pytestmark = pytest.mark.pipeline

ROOT = Path(__file__).parents[2]
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
SMALL = {
    "spark.driver.memory": "1g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": SHORT_LIVED,
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.connect.grpc.binding.address": "127.0.0.1",
}


def environment() -> dict[str, str]:
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a Spark Connect server, and return its address."""
    directory = tmp_path_factory.mktemp("server")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = SMALL | {"spark.connect.grpc.binding.port": str(port)}
    conf = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    name = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = [str(SUBMIT), "--master", "local[2]", "--class", name, *conf, "spark-internal"]
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=directory, env=environment(), stdout=log, stderr=log, start_new_session=True
        )
    try:
        deadline = time.monotonic() + 120
        while (
            f"127.0.0.1:{port}" not in (directory / "log").read_text()
            or "server started" not in (directory / "log").read_text()
        ):
            assert process.poll() is None, (directory / "log").read_text()[-2_000:]
            assert time.monotonic() < deadline, (directory / "log").read_text()[-2_000:]
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run(server: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, since a process has either a local session or that of a server."""
    command = [sys.executable, "-m", "kafka_quota_proxy.pipeline", *map(str, words), "--master", server]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=250, check=False)


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("spark")
def test_commands_give_the_same_results_with_spark_connect(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = [record(at_s=at, user=user, amount=3_000) for at in range(60) for user in ("a", "b")]
    (usage := tmp_path / "usage").mkdir()
    whole = gzip.compress(lines(log).encode())
    (usage / "whole.jsonl.gz").write_bytes(whole)
    (usage / "cut.jsonl.gz").write_bytes(whole[:-8])
    (usage / "bad.jsonl").write_text("not a record\n")
    (quotas := tmp_path / "quotas.yaml").write_text("quotas: [{user: <default>, producer_byte_rate: 2000}]\n")
    (owners := tmp_path / "owners.csv").write_text("user,client_id,owner,from,until\na,,one,,\n")
    remote, local = tmp_path / "remote", tmp_path / "local"

    def words(command: str, out: Path) -> list[str]:
        if command == "ingest":
            return ["ingest", "--usage", str(usage), "--lake", str(out / "lake"), "--once"]
        more = {"whatif": ["--quotas", str(quotas)], "chargeback": ["--owners", str(owners)]}.get(command, [])
        return [command, "--usage", str(out / "lake"), "--out", str(out / command), *more]

    for command in ("ingest", "whatif", "chargeback", "capacity"):
        ended = run(server, *words(command, remote))
        assert ended.returncode == 0, ended.stderr
        assert main(words(command, local)) == 0
        said = capsys.readouterr()
        assert ended.stdout == said.out.replace(str(local), str(remote))
        if command == "ingest":
            assert ended.stderr == said.err
            assert "ended: 241 lines; 1 bad" in said.err
            assert "120 lines" in said.err
        if command == "whatif":
            assert "throttled for" in said.out

    texts = [(place / "capacity" / "quotas.yaml").read_text().replace(str(place), "") for place in (remote, local)]
    assert texts[0] == texts[1]


def test_a_stream_that_needs_this_process_says_so(server: str, tmp_path: Path) -> None:
    write_log(tmp_path / "usage.jsonl", [record()])

    ended = run(server, "alerts", "--usage", tmp_path, "--once")

    assert ended.returncode == 2
    assert "alerts does not run with Spark Connect" in ended.stderr
