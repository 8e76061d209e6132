"""Tests the embedded broker with real clients and without a proxy, so that it advertises its own address."""

import asyncio
import contextlib
import re
import time
import warnings
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from itertools import islice
from pathlib import Path

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from kafka_quota_proxy.proxy.cli.demo.embedded_broker import preload, serve
from kafka_quota_proxy.proxy.cli.demo.mock_cluster import MockCluster
from kafka_quota_proxy.proxy.cli.demo.workload import CONSUMER_TOPIC, PRODUCER_TOPIC
from kafka_quota_proxy.proxy.runtime.ports import adjacent_ports
from kafka_quota_proxy.proxy.runtime.processes import running

with warnings.catch_warnings():
    # kafka-python reads its JSON files with a deprecated function of importlib.resources.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer


@contextlib.asynccontextmanager
async def broker(topics: Sequence[str] = ()) -> AsyncIterator[str]:
    """Run a broker in this process. Yields its address."""
    with MockCluster(topics) as mock:
        server = await serve(mock, 0)
        mock.advertise(*server.sockets[0].getsockname())
        yield "{}:{}".format(*server.sockets[0].getsockname())
        server.close()
        await server.wait_closed()


@pytest.fixture
async def bootstrap() -> AsyncIterator[str]:
    async with broker((PRODUCER_TOPIC, CONSUMER_TOPIC)) as address:
        yield address


async def test_a_consumer_reads_the_preloaded_records(bootstrap: str) -> None:
    await preload(bootstrap, value_bytes=1_000, records=5)

    async with aiokafka.AIOKafkaConsumer(
        CONSUMER_TOPIC, bootstrap_servers=bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        sizes = [(await consumer.getone()).serialized_value_size for _ in range(5)]

    assert sizes == [1_000] * 5


async def test_kafka_python_produces_with_acks_0_and_reads_back(bootstrap: str) -> None:
    """kafka-python cannot read a plain response to its ApiVersions v4, and a response to acks=0 ends its connection."""
    values = await asyncio.to_thread(_produce_without_acks_and_read_back, bootstrap)

    assert values == [b"0", b"1", b"2", b"acknowledged"]


def _produce_without_acks_and_read_back(bootstrap: str) -> list[bytes]:
    for acks, texts in ((0, (b"0", b"1", b"2")), (1, (b"acknowledged",))):
        producer = KafkaProducer(bootstrap_servers=bootstrap, acks=acks, enable_idempotence=False)
        for text in texts:
            producer.send(PRODUCER_TOPIC, text, partition=0).get(timeout=10)
        producer.close(timeout=5)
    consumer = KafkaConsumer(
        PRODUCER_TOPIC, bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    values = [record.value for record in islice(consumer, 4)]
    consumer.close()
    return values


def _read(consumer: confluent_kafka.Consumer, count: int) -> list[bytes]:
    """Read records, and one more if there is one within half a second."""
    values: list[bytes] = []
    ends_s = time.monotonic() + 20
    while len(values) < count and time.monotonic() < ends_s:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            values.append(message.value() or b"")
    if (message := consumer.poll(0.5)) is not None:
        values.append(message.value() or b"")
    consumer.close()
    return values


@pytest.mark.kafka
async def test_a_consumer_takes_over_a_group_within_seconds(bootstrap: str) -> None:
    """The mock alone would wait for the whole session timeout, of 45 seconds."""
    client = {"bootstrap.servers": bootstrap, "group.id": "group", "auto.offset.reset": "earliest"}
    await preload(bootstrap, value_bytes=10, records=2)

    began_s = time.monotonic()
    for count in (2, 0):  # the second one begins where the first one has committed
        consumer = confluent_kafka.Consumer(client)
        assigned = asyncio.Event()
        consumer.subscribe([CONSUMER_TOPIC], on_assign=lambda *_, assigned=assigned: assigned.set())
        values = await asyncio.to_thread(_read_until, consumer, assigned, count)
        assert len(values) == count

    assert time.monotonic() - began_s < 10


def _read_until(consumer: confluent_kafka.Consumer, assigned: asyncio.Event, count: int) -> list[bytes]:
    ends_s = time.monotonic() + 20
    while not assigned.is_set() and time.monotonic() < ends_s:
        if consumer.poll(0.1) is not None:
            raise AssertionError("a record before an assignment")
    assert assigned.is_set()
    return _read(consumer, count)


@pytest.mark.kafka
async def test_aiokafka_reads_a_committed_transaction(bootstrap: str) -> None:
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="transaction") as producer:
        for value in (b"first", b"second"):
            async with producer.transaction():
                await producer.send(CONSUMER_TOPIC, value, partition=0)

    async with aiokafka.AIOKafkaConsumer(
        CONSUMER_TOPIC, bootstrap_servers=bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        assert [(await asyncio.wait_for(consumer.getone(), 10)).value for _ in range(2)] == [b"first", b"second"]


def _error(future: Future[None]) -> confluent_kafka.KafkaError:
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        future.result(10)
    error: confluent_kafka.KafkaError = caught.value.args[0]
    return error


@pytest.mark.kafka
async def test_librdkafka_administers_topics(bootstrap: str) -> None:
    def administer() -> confluent_kafka.KafkaError:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("new", 3, 1)])["new"].result(10)
        assert len(admin.list_topics("new", timeout=10).topics["new"].partitions) == 3
        refused = _error(admin.create_topics([NewTopic("new", 3, 1)])["new"])
        admin.delete_topics(["new"])["new"].result(10)
        assert "new" not in admin.list_topics(timeout=10).topics
        return refused

    exists = await asyncio.to_thread(administer)

    assert (exists.code(), exists.str()) == (36, "Topic 'new' already exists.")


async def test_the_broker_advertises_the_proxy(tmp_path: Path) -> None:
    module = "kafka_quota_proxy.proxy.cli.demo.embedded_broker"
    port = adjacent_ports(1)[0]
    ports = ("--advertise", "127.0.0.1:12345", "--port", str(port))
    with running("the embedded broker", ("-m", module, *ports, "--preload", "100:2"), log=tmp_path / "log") as it:
        address = it.wait_for_line(re.compile(r"ready on (\S+)"))[1]
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=address)

        await producer.client.bootstrap()

        brokers = {(each.nodeId, each.host, each.port) for each in producer.client.cluster.brokers()}
        await producer.stop()
    assert address == f"127.0.0.1:{port}"
    assert brokers == {(1, "127.0.0.1", 12345)}
