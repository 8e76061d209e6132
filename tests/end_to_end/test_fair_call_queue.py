"""All clients at once at a broker with one slot. Waits and refusals lose, double and reorder nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tests.end_to_end.support.clients import (
    Aiokafka,
    Client,
    Java,
    KafkaPython,
    Librdkafka,
    create_topic,
    end_offset,
)
from tests.end_to_end.support.closed_loop import Crowd, Load, Writes
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.proxy import Proxy

_RECORDS = 2_500
_OTHERS = Crowd("others", connections=3)
_AT_THE_MOST_S = 200
_QUEUE: Final = {
    "max_in_flight": 1, "backoff.enable": True, "scheduler.priority.levels": 1, "callqueue.capacity": 1,
}  # fmt: skip


def test_each_record_arrives_once_in_order_byte_for_byte(slow_kafka: Kafka) -> None:
    clients: dict[str, Client] = {
        "Java": Java(kafka=slow_kafka),
        "librdkafka": Librdkafka(settings={"max.in.flight": 5, "enable.idempotence": True}),
        "aiokafka": Aiokafka(),
        "kafka-python": KafkaPython(),
    }
    topics = {name: create_topic(slow_kafka) for name in clients}

    def move(name: str, address: str) -> None:
        clients[name].produce(address, topics[name], client_id=name, count=_RECORDS)
        clients[name].consume(address, topics[name], client_id=name, count=_RECORDS)

    with (
        Proxy({"fair_call_queue": _QUEUE}, slow_kafka) as proxy,
        Load(proxy.port(), create_topic(slow_kafka), _OTHERS, seconds=_AT_THE_MOST_S, kind=Writes()) as others,
        ThreadPoolExecutor(len(clients)) as pool,
    ):
        for done in [pool.submit(move, name, proxy.address()) for name in clients]:
            done.result()
        others.end()
        others.served()
        metrics = proxy.metrics()

    assert {topic: end_offset(slow_kafka, topic) for topic in topics.values()} == dict.fromkeys(
        topics.values(), _RECORDS
    )
    assert metrics.total("kafka_quota_proxy_call_queue_wait_seconds_total") > 0
    assert metrics.total("kafka_quota_proxy_call_queue_refused_total", api="Produce") > 0
    assert metrics.total("kafka_quota_proxy_call_queue_in_flight") == 0
