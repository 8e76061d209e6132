"""The connection to a topic that the pipeline writes, without a Kafka."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from threading import Thread

import pytest

from kafka_quota_proxy.pipeline import kafka_topic
from kafka_quota_proxy.pipeline.errors import PipelineError
from kafka_quota_proxy.pipeline.kafka_topic import KafkaTopic


async def nothing() -> None: ...


@pytest.fixture
def topic() -> Iterator[KafkaTopic]:
    topic = KafkaTopic("127.0.0.1:1", "alerts", {}, nothing)
    yield topic
    topic.close()


def test_a_late_answer_is_an_error_that_names_the_topic(topic: KafkaTopic) -> None:
    with pytest.raises(
        PipelineError, match=r"^--to kafka://127.0.0.1:1/alerts: TimeoutError: no answer within 0.05 s$"
    ):
        topic.run(asyncio.sleep(60), timeout_s=0.05)


def test_an_unreachable_cluster_is_reported_after_some_time(topic: KafkaTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_topic, "_CONNECT_S", 0.6)

    with pytest.raises(PipelineError, match="ConnectionRefusedError: "):
        topic.run(topic.wait_for_broker(), timeout_s=30)


def test_a_broker_without_tls_is_reported_at_once() -> None:
    def answer(server: socket.socket) -> None:
        with server.accept()[0] as connection:
            connection.sendall(b"this is no TLS")

    security = {"security_protocol": "SSL", "ssl_context": ssl.create_default_context()}
    with socket.create_server(("127.0.0.1", 0)) as server:
        Thread(target=answer, args=(server,)).start()
        topic = KafkaTopic(f"127.0.0.1:{server.getsockname()[1]}", "alerts", security, nothing)
        try:
            with pytest.raises(PipelineError, match=r"SSLError: .*WRONG_VERSION_NUMBER"):
                topic.run(topic.wait_for_broker(), timeout_s=5)
        finally:
            topic.close()
