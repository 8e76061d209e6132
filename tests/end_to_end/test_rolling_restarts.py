"""The proxy is restarted again and again under clients with default settings, and no producer reports an error.

No acknowledged record is lost. Idempotent clients, such as Java by default, double none.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import aiokafka
import confluent_kafka
import pytest

from tests.end_to_end.support.clients import create_topic, end_offset, numbers, run_java_program
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.processes import wait_until
from tests.end_to_end.support.proxy import Proxy
from tests.end_to_end.support.records import key, value

_RULES = [{"client-id": "<default>", "producer_byte_rate": "100MiB"}]
_EVERY_S = 0.002  # between two records of a client


class _Librdkafka:
    """librdkafka, which sends numbered records until it is stopped."""

    def __init__(self, address: str, topic: str) -> None:
        self.acknowledged: set[int] = set()
        self.failures: list[str] = []
        self._address = address
        self._topic = topic
        self._stopped = threading.Event()

    def run(self) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self._address, "client.id": "librdkafka", "error_cb": self._failed, "log_level": 0}
        )
        number = 0
        while not self._stopped.wait(_EVERY_S):
            self._send(producer, number)
            number += 1
        left = producer.flush(60)
        if left:
            self.failures.append(f"{left} records were never answered")
        producer.close()

    def stop(self) -> None:
        self._stopped.set()

    def _send(self, producer: confluent_kafka.Producer, number: int) -> None:
        def delivered(error: object, message: object) -> None:
            if error is None:
                self.acknowledged.add(number)
            else:
                self.failures.append(f"record {number}: {error}")

        producer.produce(self._topic, value(number), key(number), partition=0, on_delivery=delivered)
        producer.poll(0)

    def _failed(self, error: confluent_kafka.KafkaError) -> None:
        # An error that is not fatal, such as a closed connection, is not a failed request.
        if error.fatal():
            self.failures.append(str(error))


class _Aiokafka:
    """aiokafka, which sends numbered records until it is stopped."""

    def __init__(self, address: str, topic: str) -> None:
        self.acknowledged: set[int] = set()
        self.failures: list[str] = []
        self._address = address
        self._topic = topic
        self._stopped = threading.Event()

    def run(self) -> None:
        asyncio.run(self._run())

    def stop(self) -> None:
        self._stopped.set()

    async def _run(self) -> None:
        async with (
            aiokafka.AIOKafkaProducer(bootstrap_servers=self._address, client_id="aiokafka") as producer,
            asyncio.TaskGroup() as tasks,
        ):
            number = 0
            while not self._stopped.is_set():
                tasks.create_task(self._send(producer, number))
                number += 1
                await asyncio.sleep(_EVERY_S)

    async def _send(self, producer: aiokafka.AIOKafkaProducer, number: int) -> None:
        try:
            await producer.send_and_wait(self._topic, value(number), key(number), partition=0)
        except aiokafka.errors.KafkaError as error:
            self.failures.append(f"record {number}: {error!r}")
        else:
            self.acknowledged.add(number)


def _restart_again_and_again(proxy: Proxy, times: int, progress: Callable[[], list[float]]) -> None:
    """Restart the proxy on the same ports. Between two restarts every client makes progress."""
    for turn in range(times):
        before = progress()
        wait_until(
            lambda before=before: all(now > then for now, then in zip(progress(), before, strict=True)),  # type: ignore[misc]
            timeout_s=60,
            what=f"every client gets on before restart {turn + 1}",
        )
        time.sleep(0.05 * (turn % 5))
        assert proxy.stop() == 0
        proxy.start()


@pytest.mark.parametrize("times", [3, pytest.param(100, marks=[pytest.mark.long, pytest.mark.timeout(1_200)])])
def test_clients_with_default_settings_do_not_notice_rolling_restarts(kafka_4: Kafka, times: int) -> None:
    librdkafka_topic, aiokafka_topic, java_topic = (create_topic(kafka_4) for _ in range(3))
    with Proxy({"quotas": _RULES}, kafka_4) as proxy, ThreadPoolExecutor(3) as pool:
        librdkafka = _Librdkafka(proxy.address(), librdkafka_topic)
        asyncio_client = _Aiokafka(proxy.address(), aiokafka_topic)
        java_settings = [f"bootstrap.servers={proxy.address()}", "client.id=java"]
        stop = proxy.file.with_name("stop")
        java = pool.submit(
            run_java_program, kafka_4, "stream", java_topic, "2", *java_settings, f"stop={stop}", timeout_s=1_100
        )
        running = [pool.submit(librdkafka.run), pool.submit(asyncio_client.run)]
        try:
            _restart_again_and_again(
                proxy,
                times,
                lambda: [
                    len(librdkafka.acknowledged),
                    len(asyncio_client.acknowledged),
                    proxy.metrics().total("kafka_quota_proxy_requests_total", client_id="java"),
                ],
            )
        finally:
            librdkafka.stop()
            asyncio_client.stop()
            stop.touch()
        for done in running:
            done.result()
        acknowledged = java.result()["acknowledged"]

    assert (librdkafka.failures, asyncio_client.failures) == ([], [])
    assert librdkafka.acknowledged <= numbers(kafka_4, librdkafka_topic)
    assert asyncio_client.acknowledged <= numbers(kafka_4, aiokafka_topic)
    assert set(range(acknowledged)) == numbers(kafka_4, java_topic)
    assert end_offset(kafka_4, java_topic) == acknowledged  # no record was doubled
    assert min(len(librdkafka.acknowledged), len(asyncio_client.acknowledged), acknowledged) > 100 * times
