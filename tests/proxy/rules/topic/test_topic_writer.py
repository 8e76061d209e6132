"""Tests the writer of a topic with a simulated cluster: each batch is written once, or fails with an error."""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.admin import DescribeConfigsRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import InitProducerIdRequest
from aiokafka.record import MemoryRecords

from kafka_quota_proxy.proxy.rules.topic import topic_writer as writer_module
from kafka_quota_proxy.proxy.rules.topic.clients import NotWrittenError, Record
from kafka_quota_proxy.proxy.rules.topic.record_batches import MOST_DECOMPRESSED_BYTES, RecordBatches
from kafka_quota_proxy.proxy.rules.topic.topic_writer import Writer
from tests.support.topic_cluster import SETTINGS, TopicCluster

ONE: list[Record] = [(b'{"user":"a"}', b'{"producer_byte_rate":1.0}'), (b'{"user":"b"}', None)]
# Kafka's error codes.
UNKNOWN, NO_LEADER, NOT_LEADER, TIMED_OUT, TOO_LARGE, NO_REPLICAS, DENIED = 3, 5, 6, 7, 10, 19, 29
OUT_OF_ORDER, STORAGE = 45, 56


@dataclass
class Cluster(TopicCluster):
    """A leader that checks its producers. ``answers`` has an error code, a way of failing, or None for each batch."""

    batches: list[tuple[int, int, list[Record]]] = field(default_factory=list)  # producer, sequence, records
    answers: deque[int | str | None] = field(default_factory=deque)
    producers: int = 0
    configs_error: int = 0

    async def answer_of_leader(self, request: object) -> object:
        if isinstance(request, InitProducerIdRequest):
            self.producers += 1
            return SimpleNamespace(error_code=0, producer_id=self.producers, producer_epoch=0)
        if isinstance(request, DescribeConfigsRequest):
            entries: list[object] = [("cleanup.policy", "compact", False, 1, False, [])]
            return SimpleNamespace(resources=[(self.configs_error, None, 2, "store", entries)])
        assert isinstance(request, ProduceRequest)
        assert request.required_acks == -1
        if self.answers and self.answers[0] == "hangs":
            await asyncio.Event().wait()
        ((_, ((_, data),)),) = request._topics
        return self.produce(data)

    def end(self) -> int:
        return sum(len(records) for _, _, records in self.batches)

    def produce(self, data: bytes) -> object:
        answer = self.answers.popleft() if self.answers else None
        if isinstance(answer, int):
            return SimpleNamespace(topics=[("store", [(0, answer, -1, -1)])])
        if answer == "lost before":
            raise KafkaConnectionError("closed")
        batch = MemoryRecords(data).next_batch()
        assert batch.validate_crc()
        known = next(
            (index for index, one in enumerate(self.batches) if one[:2] == (batch.producer_id, batch.base_sequence)),
            None,
        )
        if known is None:
            expected = sum(len(records) for producer, _, records in self.batches if producer == batch.producer_id)
            assert batch.base_sequence == expected
            self.batches.append((batch.producer_id, batch.base_sequence, [(one.key, one.value) for one in batch]))
            known = len(self.batches) - 1
        if answer == "lost after":
            raise KafkaConnectionError("closed")
        if answer == "no answer":
            return SimpleNamespace(topics=[])
        offset = sum(len(records) for _, _, records in self.batches[:known])
        return SimpleNamespace(topics=[("store", [(0, 0, offset, -1)])])


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()
    monkeypatch.setattr(writer_module, "AIOKafkaClient", cluster.client)
    monkeypatch.setattr(writer_module, "_BACKOFF_S", 0.001)
    return cluster


def records_of(cluster: Cluster) -> list[list[Record]]:
    return [records for _, _, records in cluster.batches]


async def test_batches_are_written_in_order_by_one_producer(cluster: Cluster) -> None:
    writer = Writer(SETTINGS, "me")

    assert [await writer.append(ONE), await writer.append(ONE[:1]), await writer.append(ONE)] == [0, 2, 3]
    assert await writer.end_offset() == 5
    await writer.close()

    assert [(producer, sequence) for producer, sequence, _ in cluster.batches] == [(1, 0), (1, 2), (1, 3)]
    assert records_of(cluster) == [ONE, ONE[:1], ONE]
    assert cluster.clients == cluster.closed == 1


@pytest.mark.parametrize("answer", ["lost before", "lost after", "no answer", NOT_LEADER, TIMED_OUT, NO_REPLICAS])
async def test_batch_that_is_sent_again_is_appended_once(answer: int | str, cluster: Cluster) -> None:
    writer = Writer(SETTINGS, "me")
    await writer.append(ONE)
    cluster.answers += [answer, answer]

    assert await writer.append(ONE) == 2
    assert await writer.append(ONE) == 4

    assert records_of(cluster) == [ONE, ONE, ONE]
    assert cluster.producers == 1
    await writer.close()
    assert cluster.clients == cluster.closed == 3


async def test_batch_that_may_be_appended_is_not_sent_with_a_new_producer_id(cluster: Cluster) -> None:
    writer = Writer(SETTINGS, "me")
    cluster.answers += ["lost after", OUT_OF_ORDER]

    with pytest.raises(NotWrittenError) as caught:
        await writer.append(ONE)

    assert caught.value.may_be_there
    assert records_of(cluster) == [ONE]
    assert await writer.append(ONE) == 2
    assert [producer for producer, _, _ in cluster.batches] == [1, 2]


@pytest.mark.parametrize(
    ("answer", "may_be_there"),
    [
        ("hangs", True),
        ("lost before", True),
        ("no answer", True),
        (TIMED_OUT, True),
        # A leader that has appended the batch may be replaced before all replicas have the batch.
        (NOT_LEADER, True),
        (UNKNOWN, True),
        (STORAGE, True),
        (NO_LEADER, False),
        (NO_REPLICAS, False),
    ],
)
async def test_write_times_out_and_says_whether_it_may_have_been_appended(
    answer: int | str, may_be_there: bool, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(SETTINGS, "me")
    await writer.append(ONE)
    monkeypatch.setattr(writer_module, "_ATTEMPTS_MS", 200)
    monkeypatch.setattr(writer_module, "_BACKOFF_S", 0.02)
    cluster.answers += [answer] * 10_000

    with pytest.raises(NotWrittenError) as caught:
        await writer.append(ONE)

    assert (caught.value.may_be_there, caught.value.is_final) == (may_be_there, False)


async def test_unreachable_cluster_is_an_error(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "_ATTEMPTS_MS", 500)
    cluster.is_away = True
    writers = [Writer(SETTINGS, "me") for _ in range(3)]

    works = (writers[0].append(ONE), writers[1].end_offset(), writers[2].configuration())
    for error in await asyncio.gather(*works, return_exceptions=True):
        assert isinstance(error, NotWrittenError)
        assert str(error) == "KafkaConnectionError: Unable to bootstrap from k:9092"
        assert not error.may_be_there
    assert cluster.closed == cluster.clients


@pytest.mark.parametrize(
    ("answer", "is_final", "message"),
    [
        (TOO_LARGE, True, "the topic accepts no batch of this size; change fewer quotas at once"),
        (DENIED, False, "this client needs the rights READ, WRITE and DESCRIBE for the topic"),
    ],
)
async def test_batch_that_is_too_large_is_not_tried_again(
    answer: int, is_final: bool, message: str, cluster: Cluster
) -> None:
    cluster.answers += [answer]

    with pytest.raises(NotWrittenError, match=message) as caught:
        await Writer(SETTINGS, "me").append(ONE)

    assert (caught.value.may_be_there, caught.value.is_final) == (False, is_final)
    assert cluster.batches == []


async def test_topic_that_gains_partitions_is_no_longer_written(cluster: Cluster) -> None:
    writer = Writer(SETTINGS, "me")
    await writer.append(ONE)
    await writer.close()
    cluster.partitions = 2

    for _ in range(2):
        with pytest.raises(NotWrittenError, match="exactly one partition, but has 2"):
            await writer.append(ONE)

    assert records_of(cluster) == [ONE]
    assert cluster.closed == cluster.clients


async def test_large_request_is_one_readable_batch(cluster: Cluster) -> None:
    many: list[Record] = [
        (b'{"user":"%d","key":"producer_byte_rate"}' % number, b'{"value":1.0}') for number in range(4_000)
    ]
    data = writer_module._batch(many, 1, 0, 0)
    assert len(data) < 80_000

    read = list(RecordBatches(data, 0).records())
    assert len(read) == 4_000
    assert {type(one.record).__name__ for one in read} == {"Setting"}
    assert await Writer(SETTINGS, "me").append(many) == 0
    assert records_of(cluster) == [many]
    with pytest.raises(NotWrittenError, match="change fewer quotas at once"):
        await Writer(SETTINGS, "me").append([(b"k" * 1_000_000, None)] * (MOST_DECOMPRESSED_BYTES // 1_000_000 + 1))


async def test_configuration_of_the_topic_is_read(cluster: Cluster) -> None:
    writer = Writer(SETTINGS, "me")

    assert await writer.configuration() == {"cleanup.policy": "compact"}
    cluster.configs_error = DENIED
    assert await writer.configuration() is None
