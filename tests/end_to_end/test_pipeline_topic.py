"""The pipeline's commands read a topic that a real proxy wrote, also with TLS and SASL."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import confluent_kafka
import pytest

from tests.end_to_end.support.artifacts import KAFKA_4, delta_lake, spark_connector
from tests.end_to_end.support.clients import QUIET, create_topic
from tests.end_to_end.support.frames import raw_client
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.load import KIB, batch_of
from tests.end_to_end.support.logins import add_scram_users, secret_of
from tests.end_to_end.support.processes import scratch
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.tls_kafka import TlsKafka
from tests.pipeline.support import JAVA_OPTIONS, SHORT_LIVED, lines, record
from tests.support.certificates import Authority

REPOSITORY: Final = Path(__file__).parents[2]
SECURE: Final = "SECURE"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
ENVIRONMENT: Final = os.environ | {"PYTHONPATH": str(REPOSITORY)}
_SIZE_FIELD: Final = 4


class Ended(NamedTuple):
    status: int
    out: str
    errors: str


def command(*words: object) -> list[str]:
    """Return the command line, with the jars of Spark's Kafka connector and of Delta Lake."""
    jars = ",".join(map(str, [*spark_connector(), *delta_lake()]))
    return [
        sys.executable, "-m", "kafka_quota_proxy.pipeline", *map(str, words), "--master", "local[2]",
        "--conf", f"spark.jars={jars}", "--conf", "spark.driver.memory=1g",
        "--conf", "spark.sql.shuffle.partitions=2", "--conf", f"{JAVA_OPTIONS}={SHORT_LIVED}",
    ]  # fmt: skip


def pipeline(*words: object) -> Ended:
    ended = subprocess.run(
        command(*words), cwd=REPOSITORY, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=240
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def bill(out: Path) -> dict[str, int]:
    """Return the billed bytes of each owner, for produce and fetch together."""
    (path,) = (out / "bill").glob("*.csv")
    sums: dict[str, int] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            sums[row["owner"]] = sums.get(row["owner"], 0) + int(row["bytes"])
    return sums


def exchange(proxy: Proxy, topic: str, client_id: str) -> int:
    """Produce and fetch, and return the charged bytes of both."""
    with raw_client(proxy.port(), client_id=client_id) as client:
        for _ in range(3):
            assert client.produce(topic, batch_of(16 * KIB)).error_code == 0
    with raw_client(proxy.port(), client_id=client_id) as consumer:
        for offset in range(3):
            assert consumer.fetch(topic, offset=offset, max_bytes=64 * KIB, max_wait_ms=50).error_code == 0
    return client.sent_bytes + consumer.received_bytes - _SIZE_FIELD * 6


def owners_in(directory: Path) -> Path:
    path = directory / "owners.csv"
    path.write_text("user,client_id,owner,from,until\n,etl,ours,,\n,reports,theirs,,\n", encoding="utf-8")
    return path


@pytest.mark.pipeline
@pytest.mark.timeout(600)
def test_bill_from_a_topic_and_from_its_lake_has_the_bytes_that_passed(kafka_4: Kafka, tmp_path: Path) -> None:
    topic, usage = create_topic(kafka_4), create_topic(kafka_4, partitions=3)
    to_topic = {"bootstrap_servers": kafka_4.bootstrap_servers, "topic": usage}
    log = {"usage_log": {"interval": "200ms", "proxy": "p1", "kafka": to_topic}}
    with Proxy(log, kafka_4) as proxy:
        passed = {"ours": exchange(proxy, topic, "etl"), "theirs": exchange(proxy, topic, "reports")}
        assert proxy.stop() == 0

    place = f"kafka://{kafka_4.bootstrap_servers}/{usage}"
    ended = pipeline("chargeback", "--usage", place, "--owners", owners_in(tmp_path), "--out", tmp_path / "bill")

    assert ended.status == 0, ended.errors
    assert bill(tmp_path / "bill") == passed

    kept = pipeline("ingest", "--usage", place, "--lake", tmp_path / "lake", "--cluster", "orders")
    assert kept.status == 0, kept.errors
    of_lake = pipeline(
        "chargeback", "--usage", tmp_path / "lake", "--owners", owners_in(tmp_path), "--out", tmp_path / "of-lake",
        "--cluster", "orders",
    )  # fmt: skip
    assert of_lake.status == 0, of_lake.errors
    assert bill(tmp_path / "of-lake") == passed


class Secure(NamedTuple):
    """A cluster with TLS and SASL. Only the tests have a plaintext listener."""

    kafka: TlsKafka
    directory: Path

    def place(self, topic: str) -> str:
        return f"kafka://{self.kafka.tls_endpoint(SECURE).address}/{topic}"

    def config(self, name: str, *, password: str | None = None) -> Path:
        path = self.directory / f"{name}.properties"
        path.write_text(
            "security.protocol=SASL_SSL\n"
            "sasl.mechanism=SCRAM-SHA-512\n"
            f"sasl.jaas.config={SCRAM_MODULE} required \\\n"
            f'    username="alice" password="{password or secret_of("alice")}";\n'
            f"ssl.truststore.type=PEM\nssl.truststore.location={self.directory / 'ca.pem'}\n"
        )
        return path


@pytest.fixture(scope="module")
def secure() -> Iterator[Secure]:
    authority = Authority("ours")
    login = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    }
    with scratch("pipeline-topic") as directory:
        (directory / "ca.pem").write_bytes(authority.pem)
        kafka = TlsKafka(KAFKA_4, directory, authority, tls={SECURE: login}, unproxied=[SECURE], sasl=[SECURE])
        with kafka:
            add_scram_users(kafka, ["alice"], "SCRAM-SHA-512")
            yield Secure(kafka, directory)


def fill(kafka: Kafka, records: list[dict[str, Any]]) -> str:
    """Write records of a usage log to a new topic, and return its name."""
    topic = create_topic(kafka, partitions=3)
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers, **QUIET})
    for one in records:
        producer.produce(topic, lines([one]).strip())
    assert producer.flush(30) == 0
    return topic


@pytest.mark.pipeline
def test_limits_from_a_topic_over_tls_and_sasl_equal_those_from_files(secure: Secure, tmp_path: Path) -> None:
    log = [record(at_s=at, amount=1_000 * (at % 7), client_id=name) for at in range(300) for name in ("etl", "reports")]
    usage = fill(secure.kafka, log)
    (tmp_path / "usage.jsonl").write_text(lines(log), encoding="utf-8")
    (events := tmp_path / "events").mkdir()

    there = pipeline(
        "capacity", "--usage", secure.place(usage), "--kafka-config", secure.config("good"),
        "--conf", "spark.eventLog.enabled=true", "--conf", f"spark.eventLog.dir=file://{events}",
        "--conf", "spark.eventLog.compress=false", "--out", tmp_path / "there",
    )  # fmt: skip
    here = pipeline("capacity", "--usage", tmp_path / "usage.jsonl", "--out", tmp_path / "here")

    assert (there.status, here.status) == (0, 0), there.errors + here.errors
    assert (tmp_path / "there" / "quotas.yaml").read_text() == (tmp_path / "here" / "quotas.yaml").read_text()
    logged = [path.read_text(errors="replace") for path in events.rglob("*") if path.is_file()]
    assert logged
    for text in (there.out, there.errors, *logged):
        assert secret_of("alice") not in text
