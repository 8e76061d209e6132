"""Tests the writer of a topic, with a simulated producer that can fail."""

import asyncio
import logging
from collections.abc import Iterator

import pytest
from aiokafka.errors import KafkaConnectionError, KafkaTimeoutError

from kafka_quota_proxy.config.model import Address, AdminClient, UsageTopic
from kafka_quota_proxy.proxy.usage import topic as topic_module
from kafka_quota_proxy.proxy.usage.record import Batch, UsageCounts, UsageKey
from kafka_quota_proxy.proxy.usage.topic import TopicWriter

SETTINGS = UsageTopic(topic="usage", client=AdminClient(bootstrap_servers=(Address(host="k", port=9092),)))


class Broker:
    """Makes simulated producers, and keeps the records that they send."""

    def __init__(self) -> None:
        self.is_away = False
        self.refuses: set[bytes] = set()  # keys of refused records
        self.hangs = False
        self.taken: list[tuple[bytes, bytes, int]] = []
        self.producers: list[Producer] = []

    def producer(self, **settings: object) -> "Producer":
        self.producers.append(Producer(self, settings))
        return self.producers[-1]


class Producer:
    def __init__(self, broker: Broker, settings: dict[str, object]) -> None:
        self.settings = settings
        self.is_stopped = self.is_closed = False
        self.client = self
        self.sender: asyncio.Task[None] | None = None
        self._broker = broker

    async def start(self) -> None:
        if self._broker.is_away:
            raise KafkaConnectionError("away")
        self.sender = asyncio.get_running_loop().create_task(asyncio.sleep(3_600))

    async def stop(self) -> None:
        if self._broker.hangs:
            await asyncio.Event().wait()
        if self.sender is not None:
            self.sender.cancel()
        self.is_stopped = True

    async def close(self) -> None:
        self.is_closed = True

    async def send(self, topic: str, *, key: bytes, value: bytes, timestamp_ms: int) -> asyncio.Future[None]:
        assert topic == "usage"
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._broker.hangs:
            pass
        elif key in self._broker.refuses:
            sent.set_exception(KafkaTimeoutError())
        else:
            self._broker.taken.append((key, value, timestamp_ms))
            sent.set_result(None)
        return sent


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    broker = Broker()
    monkeypatch.setattr(topic_module, "AIOKafkaProducer", broker.producer)
    level = logging.getLogger("aiokafka").level
    yield broker
    logging.getLogger("aiokafka").setLevel(level)


def a_batch(records: int) -> Batch:
    used = UsageCounts(7, 1, 0, 0, True)
    return Batch("p1", 1_000, 200, tuple((UsageKey(1, "produce", "", f"c-{i}"), used) for i in range(records)))


def test_records_are_sent_with_their_keys_and_times_by_an_idempotent_producer(broker: Broker) -> None:
    batch, topic = a_batch(1_200), TopicWriter(SETTINGS, "p1")
    broker.is_away = True
    with pytest.raises(KafkaConnectionError):
        topic.begin()
    broker.is_away = False
    assert topic.begin() == 0
    topic.write(batch, now_ms=0)
    topic.end()

    assert broker.taken == [(*one, 1_000) for one in zip(batch.keys(), batch.lines(), strict=True)]
    failed, producer = broker.producers
    assert failed.is_stopped
    assert producer.settings["enable_idempotence"] is True
    assert producer.settings["bootstrap_servers"] == ["k:9092"]
    assert producer.is_stopped


def test_only_unacknowledged_records_are_sent_again(broker: Broker) -> None:
    batch, topic = a_batch(3), TopicWriter(SETTINGS, "p1")
    keys = list(batch.keys())
    broker.refuses = {keys[1]}
    with pytest.raises(KafkaTimeoutError):
        topic.write(batch, now_ms=0)
    broker.refuses = set()
    topic.write(batch, now_ms=0)
    topic.end()

    assert [key for key, _, _ in broker.taken] == [keys[0], keys[2], keys[1]]
    first, second = broker.producers
    assert first.is_stopped
    assert second.is_stopped


def test_a_producer_that_retries_for_ever_is_ended(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idempotent producer never gives up, and its stop waits for the records that it has."""
    monkeypatch.setattr(topic_module, "_TIMEOUT_S", 0.05)
    monkeypatch.setattr(topic_module, "_STOP_TIMEOUT_S", 0.01)
    batch, topic = a_batch(1), TopicWriter(SETTINGS, "p1")
    broker.hangs = True
    for _ in range(2):
        with pytest.raises(TimeoutError):
            topic.write(batch, now_ms=0)
    broker.hangs = False
    topic.write(batch, now_ms=0)
    topic.end()

    assert len(broker.producers) == 3
    assert all(producer.sender is not None and producer.sender.done() for producer in broker.producers)
    assert [producer.is_closed for producer in broker.producers] == [True, True, False]
    assert len(broker.taken) == 1
