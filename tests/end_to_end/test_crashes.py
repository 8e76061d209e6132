"""Broker and proxy are killed in turn under load. No acknowledged record is lost, and none is doubled."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.end_to_end.support.clients import Librdkafka, create_topic, end_offset, numbers, run_java_program
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.live_clients import LibrdkafkaProducer
from tests.end_to_end.support.load import KIB
from tests.end_to_end.support.processes import wait_until
from tests.end_to_end.support.proxy import Proxy

_RULES = [{"client-id": "<default>", "producer_byte_rate": 256 * KIB}]
_REQUESTS = "kafka_quota_proxy_requests_total"
# Batches are small, so that requests are in flight at each kill. Clients reconnect within half a second.
_LIBRDKAFKA: dict[str, str | int] = {
    "acks": "all",
    "linger.ms": 2,
    "batch.num.messages": 20,
    "queue.buffering.max.messages": 2_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "message.timeout.ms": 300_000,
}
_JAVA = {
    "acks": "all",
    "enable.idempotence": "true",
    "batch.size": 2_500,
    "linger.ms": 2,
    "reconnect.backoff.max.ms": 500,
    "delivery.timeout.ms": 300_000,
    "request.timeout.ms": 5_000,
    "max.block.ms": 300_000,
}


def _kill_in_turn(kafka: Kafka, proxy: Proxy, times: int, *, progress: Callable[[], list[float]]) -> None:
    """Kill and restart broker and proxy in turn. Between two kills every producer makes progress."""
    for number in range(times):
        _get_on(progress, f"every producer gets on before kill {number + 1}")
        time.sleep(0.1 * (number % 5))
        if number % 2 == 0:
            kafka.broker.kill()
            time.sleep(0.5)
            kafka.broker.restart()
        else:
            port = proxy.port()
            proxy.kill()
            time.sleep(0.5)
            proxy.start()
            assert f"listening on 127.0.0.1:{port}" in proxy.log


def _get_on(progress: Callable[[], list[float]], what: str) -> None:
    before = progress()
    wait_until(lambda: all(now > then for now, then in zip(progress(), before, strict=True)), timeout_s=60, what=what)


@pytest.mark.parametrize("times", [2, pytest.param(10, marks=[pytest.mark.long, pytest.mark.timeout(600)])])
def test_acknowledged_records_survive_kills_once_each_with_idempotence(mortal_kafka: Kafka, times: int) -> None:
    plain_topic, exact_topic, java_topic = (create_topic(mortal_kafka) for _ in range(3))
    java_records = 6_000 * times  # some 125 bytes each: 2.9 s of the quota for each kill
    with Proxy({"quotas": _RULES, "shaping": "paced"}, mortal_kafka) as proxy, ThreadPoolExecutor(3) as pool:
        common: dict[str, str | int | bool] = {**_LIBRDKAFKA, "client.id": "plain"}
        plain = LibrdkafkaProducer(proxy.address(), plain_topic, settings=common)
        idempotent = common | {"client.id": "exact", "enable.idempotence": True}
        exact = LibrdkafkaProducer(proxy.address(), exact_topic, settings=idempotent)
        settings = _JAVA | {"bootstrap.servers": proxy.address(), "client.id": "java"}
        java = pool.submit(
            run_java_program,
            mortal_kafka, "produce", java_topic, str(java_records), *(f"{name}={it}" for name, it in settings.items()),
            timeout_s=400,
        )  # fmt: skip
        running = [pool.submit(plain.run), pool.submit(exact.run)]
        try:
            _kill_in_turn(
                mortal_kafka,
                proxy,
                times,
                progress=lambda: [
                    len(plain.acknowledged),
                    len(exact.acknowledged),
                    proxy.metrics().total(_REQUESTS, client_id="java"),
                ],
            )
            assert not java.done(), "Java was done before the last kill: give it more records"
        finally:
            plain.stop()
            exact.stop()
        for done in running:
            done.result()
        assert java.result() == {"acknowledged": java_records}

    assert (plain.failures, exact.failures) == ([], [])
    assert len(exact.acknowledged) == exact.sent
    for topic, count in ((exact_topic, exact.sent), (java_topic, java_records)):
        assert end_offset(mortal_kafka, topic) == count
        Librdkafka(settings={}).consume(mortal_kafka.bootstrap_servers, topic, client_id="reader", count=count)
    assert plain.acknowledged <= numbers(mortal_kafka, plain_topic)
    # There are hundreds of records for each kill. The number depends on the broker's restart time.
    assert min(len(plain.acknowledged), exact.sent) > 100 * times
