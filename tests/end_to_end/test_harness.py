"""The support code of these tests: Kafka starts, answers and survives a kill, and its tools' output is parsed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.end_to_end.support import tools
from tests.end_to_end.support.artifacts import java
from tests.end_to_end.support.clients import create_topic
from tests.end_to_end.support.crowds import Answer, Outcome
from tests.end_to_end.support.frames import raw_client, record_batch
from tests.end_to_end.support.kafka import DIRECT, PROXIED, Kafka
from tests.end_to_end.support.processes import HarnessError, free_port, run, wait_until
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.quick_java import class_archive, compiled, reading
from tests.end_to_end.support.shares import fairness, shares


@pytest.fixture(params=["kafka_39", "kafka_4"])
def kafka(request: pytest.FixtureRequest) -> Kafka:
    chosen: Kafka = request.getfixturevalue(request.param)
    return chosen


def test_record_is_produced_and_consumed(kafka: Kafka) -> None:
    topic = create_topic(kafka)

    with raw_client(kafka.listener(DIRECT).port) as client:
        produced = client.produce(topic, record_batch([b"one", b"two"]))
        fetched = client.fetch(topic, offset=0, max_bytes=1_000_000)

    assert produced.error_code == 0
    assert fetched.high_watermark == 2
    assert b"one" in fetched.records
    assert b"two" in fetched.records


def test_output_of_kafkas_performance_tools_is_parsed(kafka: Kafka) -> None:
    topic = create_topic(kafka)

    produced = tools.producer_performance(
        kafka, bootstrap_servers=kafka.bootstrap_servers, topic=topic, records=2_000, record_size_bytes=1_000
    )
    consumed = tools.consumer_performance(kafka, bootstrap_servers=kafka.bootstrap_servers, topic=topic, records=2_000)

    assert produced.records == 2_000
    assert produced.records_per_second > 100
    assert consumed.records == 2_000
    assert consumed.size_bytes == pytest.approx(2_000_000, rel=1e-4)


def test_java_starts_with_an_archive_of_the_brokers_classes(kafka: Kafka) -> None:
    options = reading(class_archive(kafka.classpath))
    program = [*options, "-cp", kafka.classpath, "kafka.tools.StorageTool", "random-uuid"]

    assert options
    assert run([java(), "-Xshare:on", *program])  # an archive that does not fit is an error with this option


def test_program_is_compiled_once(kafka_4: Kafka, tmp_path: Path) -> None:
    source = tmp_path / "Said.java"
    word = os.urandom(8).hex()  # otherwise the cache may have it
    source.write_text(
        f'public class Said {{ public static void main(String[] words) {{ System.out.print("{word}" + words[0]); }} }}'
    )

    assert kafka_4.run_java(str(source), "1") == f"{word}1"
    kept = compiled(source, kafka_4.classpath)
    (kept / "Said.class").rename(kept / "Gone.class")
    with pytest.raises(HarnessError, match="Said"):  # the cache is used, so nothing is compiled
        kafka_4.run_java(str(source), "2")
    source.write_text(source.read_text().replace(word, f"{word}, now another, "))
    assert kafka_4.run_java(str(source), "3") == f"{word}, now another, 3"

    for directory in (kept, compiled(source, kafka_4.classpath)):
        shutil.rmtree(directory)


def test_killed_broker_restarts_with_its_ports_and_records(mortal_kafka: Kafka) -> None:
    topic = create_topic(mortal_kafka)
    port = mortal_kafka.listener(DIRECT).port
    with raw_client(port) as client:
        client.produce(topic, record_batch([b"kept"]), acks=-1)

    mortal_kafka.broker.kill()
    mortal_kafka.broker.restart()

    def record_is_back() -> bool:
        with raw_client(port) as client:
            return b"kept" in client.fetch(topic, offset=0, max_bytes=1_000_000).records

    # The broker answers before it leads the partition again.
    wait_until(record_is_back, timeout_s=30, what="the record is read again")


def test_second_proxy_of_a_cluster_names_the_first_in_its_error() -> None:
    bind = f"127.0.0.1:{free_port()}"
    settings = {"listeners": [{"name": PROXIED, "bind": bind, "upstream": f"127.0.0.1:{free_port()}"}]}

    with Proxy(settings) as first, pytest.raises(HarnessError) as error, Proxy(settings):
        pass

    assert f"listens on {bind}" in str(error.value)
    assert str(first.file) in str(error.value)
    assert "test_second_proxy_of_a_cluster_names_the_first_in_its_error" in str(error.value)
    with Proxy(settings) as again:
        again.kill()
        again.start()


def test_shares_of_a_quota_by_window_and_by_connection() -> None:
    # Each second has 100 B, except for one with 300 B and one with none. The first connection gets three of four
    # responses.
    sizes = [100] * 10 + [300, 0] + [100] * 10
    answers = [Answer(second + 0.5, 0.0, int(second % 4 == 0), size, 0) for second, size in enumerate(sizes)]
    seen = Outcome(begin_s=0, end_s=22, connections=2, answers=answers, errors={}, closed=0, open_s=[3.0])

    found = shares(seen, quota=100, after_s=0, window_s=4)

    assert (found.mean, found.lowest, found.highest) == (2_300 / 2_200, 0.75, 1.5)
    assert seen.longest_s == 3.0
    assert seen.empty == 1
    apart = fairness(seen, after_s=0)
    assert apart is not None
    assert (apart.least, apart.most) == (600 / 1_150, 1_700 / 1_150)
    assert fairness(seen, after_s=2) is None
