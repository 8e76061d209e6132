"""Alerts in a topic, without a Kafka. tests/end_to_end/test_alerts.py uses a real one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka.errors import ProducerFenced
from pyspark.sql import DataFrame

from kafka_quota_proxy.pipeline.errors import PipelineError
from kafka_quota_proxy.pipeline.topic_delivery import TopicDelivery


class Rows:
    """A batch of alerts."""

    def __init__(self, count: int) -> None:
        self._count = count

    def persist(self) -> Rows:
        return self

    def unpersist(self) -> None: ...

    def count(self) -> int:
        return self._count

    def toLocalIterator(self) -> Iterator[dict[str, Any]]:  # noqa: N802 - Spark's
        return ({"key": "k", "value": str(number), "start_ms": 0} for number in range(self._count))


class FakeProducer:
    """A producer that keeps its records. ``answers`` are the responses about the committed offset."""

    def __init__(self, *answers: dict[str, Any], sent_fault: Exception | None = None) -> None:
        self.client = self
        self.calls: list[str] = []
        self.values: list[bytes] = []
        self.asked: list[Any] = []
        self._answers = iter(answers)
        self._sent_fault = sent_fault

    async def begin_transaction(self) -> None:
        self.calls.append("begin")

    async def send_offsets_to_transaction(self, offsets: dict[Any, int], group: str) -> None:
        self.calls.append(f"offset {set(offsets.values())} of {group}")

    async def commit_transaction(self) -> None:
        self.calls.append("commit")

    async def stop(self) -> None:
        self.calls.append("stop")

    async def coordinator_lookup(self, *_: object) -> int:
        return 1

    async def send(self, *words: Any, **message: Any) -> Any:  # noqa: ANN401
        if "value" not in message:
            self.asked.append(words[1].prepare({9: (1, 7)}))
            answer = next(self._answers)
            return SimpleNamespace(to_object=lambda: answer)
        self.values.append(message["value"])
        acknowledged = asyncio.get_running_loop().create_future()
        if self._sent_fault is None:
            acknowledged.set_result(None)
        else:
            acknowledged.set_exception(self._sent_fault)
        return acknowledged


def committed(offset: int, *, error_code: int = 0) -> dict[str, Any]:
    """Return a response of the group coordinator with the committed offset."""
    return {"error_code": 0, "topics": [{"partitions": [{"offset": offset, "error_code": error_code}]}]}


@pytest.fixture
def delivery() -> Iterator[TopicDelivery]:
    delivery = TopicDelivery("127.0.0.1:1", "alerts", "job")
    yield delivery
    delivery.end()


def deliver(delivery: TopicDelivery, count: int, batch: int) -> None:
    delivery.deliver(cast("DataFrame", Rows(count)), batch)


def test_a_batch_is_committed_with_its_number_once(delivery: TopicDelivery) -> None:
    producer = delivery._producer = FakeProducer()

    deliver(delivery, 1_500, 4)
    deliver(delivery, 1_500, 4)

    assert producer.values == [str(number).encode() for number in range(1_500)]
    assert producer.calls == ["begin", "offset {5} of kafka-quota-pipeline-alerts-job", "commit"]


def test_a_batch_without_alerts_has_no_transaction(delivery: TopicDelivery) -> None:
    producer = delivery._producer = FakeProducer()

    deliver(delivery, 0, 4)

    assert producer.calls == []


def test_a_batch_with_a_refused_record_is_not_committed(delivery: TopicDelivery) -> None:
    producer = delivery._producer = FakeProducer(sent_fault=OSError("the disk is full"))

    with pytest.raises(PipelineError, match=r"^--to kafka://127.0.0.1:1/alerts: OSError: the disk is full$"):
        deliver(delivery, 1, 4)

    assert producer.calls == ["begin"]


def test_a_process_that_another_one_replaced_says_so(delivery: TopicDelivery) -> None:
    delivery._producer = FakeProducer(sent_fault=ProducerFenced())

    with pytest.raises(PipelineError, match="another process with the same --checkpoint has taken over"):
        deliver(delivery, 1, 4)


def test_the_number_is_read_after_the_transaction_of_an_earlier_process(delivery: TopicDelivery) -> None:
    unstable, loading = committed(-1, error_code=88), {"error_code": 14, "topics": []}
    producer = delivery._producer = FakeProducer(unstable, loading, committed(7))

    number = delivery._topic.run(delivery._committed(), timeout_s=10)

    assert number == 7
    assert len(producer.asked) == 3
    request = producer.asked[0]
    assert (request.API_VERSION, request.require_stable) == (7, True)
    # OffsetFetchRequest.json, version 7, has the group, one topic with partition 0, and the flag require_stable.
    group = b"kafka-quota-pipeline-alerts-job"
    assert request.encode() == bytes([len(group) + 1]) + group + b"\x02\x07alerts\x02\0\0\0\0\0\x01\0"


def test_a_first_process_begins_with_batch_zero(delivery: TopicDelivery) -> None:
    delivery._producer = FakeProducer(committed(-1))

    assert delivery._topic.run(delivery._committed(), timeout_s=10) == 0
