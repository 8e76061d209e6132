"""Tests the embedded broker with real clients and without a proxy, so that it advertises its own address."""

import asyncio
import re
import struct
import warnings
from collections.abc import AsyncIterator
from itertools import islice
from pathlib import Path

import aiokafka
import pytest

from kafka_quota_proxy.proxy.cli.demo import mock_relay
from kafka_quota_proxy.proxy.cli.demo.embedded_broker import preload
from kafka_quota_proxy.proxy.cli.demo.mock_cluster import MockCluster
from kafka_quota_proxy.proxy.cli.demo.processes import running
from kafka_quota_proxy.proxy.cli.demo.workload import CONSUMER_TOPIC, PRODUCER_TOPIC

with warnings.catch_warnings():
    # kafka-python reads its JSON files with a deprecated function of importlib.resources.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer


@pytest.fixture
async def bootstrap() -> AsyncIterator[str]:
    with MockCluster((PRODUCER_TOPIC, CONSUMER_TOPIC)) as mock:
        server = await mock_relay.serve(mock_port=mock.port)
        host, port = server.sockets[0].getsockname()
        mock.advertise(host, port)
        yield f"{host}:{port}"
        server.close()
        await server.wait_closed()


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


async def test_versions_that_the_mock_encodes_wrongly_are_not_announced(bootstrap: str) -> None:
    host, _, port = bootstrap.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    request = mock_relay.api_versions_request_v0(1)

    writer.write(struct.pack(">i", len(request)) + request)
    answer = await reader.readexactly(*struct.unpack(">i", await reader.readexactly(4)))

    writer.close()
    newest = {api_key: maximum for api_key, _, maximum in struct.iter_unpack(">hhh", answer[10:])}
    # The newest versions of Metadata, JoinGroup, LeaveGroup and SyncGroup.
    assert [newest[api_key] for api_key in (3, 11, 13, 14)] == [12, 5, 3, 3]


async def test_aiokafka_keeps_its_connection_with_acks_0(bootstrap: str) -> None:
    """A response that aiokafka does not expect breaks its connection, and the next acknowledged batch fails."""
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, acks=0) as silent:
        connections = []
        for _ in range(5):
            await silent.send_and_wait(PRODUCER_TOPIC, b"x", partition=0)
            await silent.client.fetch_all_metadata()
            connections.append(set(map(id, silent.client._conns.values())))

    assert connections[1:] == connections[:-1]


async def test_the_broker_advertises_the_proxy(tmp_path: Path) -> None:
    module = "kafka_quota_proxy.proxy.cli.demo.embedded_broker"
    arguments = ("-m", module, "--advertise", "127.0.0.1:12345", "--preload", "100:2")
    async with running("the embedded broker", arguments, log=tmp_path / "log") as broker:
        address = (await broker.wait_for_line(re.compile(r"ready on (\S+)")))[1]
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=address)

        await producer.client.bootstrap()

        brokers = {(each.host, each.port) for each in producer.client.cluster.brokers()}
        await producer.stop()
    assert brokers == {("127.0.0.1", 12345)}
