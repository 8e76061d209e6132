"""The image that the Dockerfile describes serves a real Kafka as Kubernetes would run it, and stops as it should."""

from __future__ import annotations

import os
import signal
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.artefacts.support.distributions import REPOSITORY
from tests.artefacts.support.images import BASE, Container, Image, container
from tests.end_to_end.support.clients import Librdkafka, create_topic
from tests.end_to_end.support.frames import FETCH, FETCH_VERSION, fetch_body, raw_client, read_fetch
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.load import KIB, batch_of
from tests.end_to_end.support.processes import wait_until
from tests.end_to_end.support.proxy import Proxy

_RELOADED_AT = "kafka_quota_proxy_config_last_reload_timestamp_seconds"
_MB = 1_000_000
_USER = 10_001


def _quota(byte_rate: int) -> dict[str, object]:
    return {"quotas": [{"client-id": "limited", "producer_byte_rate": byte_rate}]}


@contextmanager
def _running(image: Image, kafka: Kafka) -> Iterator[tuple[Proxy, Container]]:
    with container(image) as made, Proxy(_quota(10**9), kafka, program=made.command) as proxy:
        wait_until(proxy.is_ready, timeout_s=20, what="the proxy in the container is ready")
        yield proxy, made


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.split()[0] for name, _, value in (line.partition(":") for line in lines) if value.strip()}


def test_image_adds_two_layers_and_no_compiler(image: Image, capsys: pytest.CaptureFixture[str]) -> None:
    base = Image.inspected(BASE)
    added = image.layers[len(base.layers) :]
    figures = [(sum(layer.size_bytes for layer in base.layers), f"the stand-in for {BASE}")]
    figures += [(layer.size_bytes, layer.made_by[:90]) for layer in added]
    with capsys.disabled():
        sys.stdout.writelines(f"\n{size / _MB:7.1f} MB  {what}" for size, what in figures)
    with container(image) as made:
        tools = [made.root / place / name for place in ("usr/bin", "usr/local/bin") for name in ("gcc", "mypyc")]

        assert [tool for tool in tools if tool.exists()] == []
    assert len(added) == 2
    assert sum(layer.size_bytes for layer in added) < 100 * _MB


def test_labels_say_what_the_image_is(image: Image) -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    labels = {key.removeprefix("org.opencontainers.image."): value for key, value in image.config["Labels"].items()}

    assert labels["title"] == project["name"]
    assert labels["description"] == project["description"]
    assert labels["licenses"] == project["license"]


def test_clients_of_a_real_kafka_pass_as_an_ordinary_user_with_a_read_only_root(image: Image, kafka: Kafka) -> None:
    topic = create_topic(kafka)
    with _running(image, kafka) as (proxy, made):
        status = _status(made.pid())
        options = [line.split()[3] for line in Path(f"/proc/{made.pid()}/mounts").read_text().splitlines()]
        client = Librdkafka(settings={})
        client.produce(proxy.address(), topic, client_id="free", count=10_000)
        client.consume(proxy.address(), topic, client_id="free", count=10_000)
        built = proxy.metrics().label_values("kafka_quota_proxy_build_info", "implementation")

    assert (int(status["Uid"]), int(status["Gid"]), int(status["CapEff"], 16)) == (_USER, _USER, 0)
    assert options[0].split(",")[0] == "ro"
    assert built == {"compiled"}


def test_health_check_passes_while_the_proxy_answers(image: Image, kafka: Kafka) -> None:
    with _running(image, kafka) as (_, made):
        answering = made.health()
        os.kill(made.pid(), signal.SIGSTOP)
        hanging = made.health()
        os.kill(made.pid(), signal.SIGCONT)

    assert (answering, hanging) == (0, 1)


def test_changed_file_of_the_mounted_directory_is_loaded(image: Image, kafka: Kafka) -> None:
    topic, batch = create_topic(kafka), batch_of(64 * KIB)
    with _running(image, kafka) as (proxy, _), raw_client(proxy.port(), client_id="limited") as client:
        before = client.produce(topic, batch)
        loaded_at = proxy.metrics().total(_RELOADED_AT)
        proxy.edit(_quota(10_000))
        wait_until(lambda: proxy.metrics().total(_RELOADED_AT) != loaded_at, timeout_s=15, what="the file is taken")
        after = client.produce(topic, batch)

    assert before.throttle_time_ms == 0
    assert after.throttle_time_ms > 1_000


def test_sigterm_lets_open_requests_be_answered(image: Image, kafka: Kafka) -> None:
    topic = create_topic(kafka)
    with _running(image, kafka) as (proxy, _), raw_client(proxy.port()) as client:
        asked_s = time.monotonic()
        asked = client.send(FETCH, FETCH_VERSION, fetch_body(topic, offset=0, max_bytes=1_000, max_wait_ms=3_000))
        time.sleep(0.5)  # the request reaches the broker, which waits for records
        proxy.process.signal(signal.SIGTERM)
        answer = client.receive()
        answered_after_s = time.monotonic() - asked_s
        status = proxy.process.wait(20)

    assert (answer.correlation_id, read_fetch(answer.body).error_code) == (asked, 0)
    assert answered_after_s >= 2.9
    assert status == 0
