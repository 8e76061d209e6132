"""The proxy is restarted again and again under clients with default settings, and no producer reports an error.

No acknowledged record is lost. Idempotent clients, such as Java by default, double none.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.end_to_end.support.clients import create_topic, end_offset, numbers, run_java_program
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.live_clients import AiokafkaProducer, LibrdkafkaProducer
from tests.end_to_end.support.processes import wait_until
from tests.end_to_end.support.proxy import Proxy

_RULES = [{"client-id": "<default>", "producer_byte_rate": "100MiB"}]
_EVERY_S = 0.002  # between two records of a client


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
        librdkafka = LibrdkafkaProducer(proxy.address(), librdkafka_topic, every_s=_EVERY_S)
        asyncio_client = AiokafkaProducer(proxy.address(), aiokafka_topic, every_s=_EVERY_S)
        stop = proxy.file.with_name("stop")
        java_settings = [f"bootstrap.servers={proxy.address()}", "client.id=java", "partitions=1", f"stop={stop}"]
        java = pool.submit(run_java_program, kafka_4, "stream", java_topic, "2", *java_settings, timeout_s=1_100)
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
