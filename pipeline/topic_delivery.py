"""Delivers alerts to a Kafka topic, in one transaction for each batch of the stream that computes the alerts.

The transaction also commits the number of the batch to deliver next, as the offset of a consumer group that has no
consumers. From this offset, a restarted process knows which batches were delivered. Decision 0018 explains why each
alert is delivered exactly once.
"""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    ProducerFenced,
    for_code,
)
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.commit import OffsetFetchRequest_v1, OffsetFetchRequest_v3
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)
from aiokafka.structs import TopicPartition
from pyspark.sql import DataFrame, Row

from kafka_quota_proxy.pipeline.delivery import Delivery
from kafka_quota_proxy.pipeline.errors import PipelineError
from kafka_quota_proxy.pipeline.kafka_topic import KafkaTopic

# By default, brokers allow up to 15 minutes. They abort a longer transaction, and its batch is then repeated.
_TRANSACTION_TIMEOUT_MS: Final = 600_000
# How long a cluster may take to answer at the start, and to accept records or a commit.
_BEGIN_S: Final = 60.0
_SEND_S: Final = 120.0
_AGAIN_S: Final = 0.1
# The number of records in flight.
_AT_ONCE: Final = 1_000
_UNSTABLE_OFFSET_COMMIT: Final = 88  # unknown to aiokafka
_NAME: Final = "kafka-quota-pipeline-alerts"


class TopicDelivery(Delivery):
    """Writes alerts to a topic. A consumer with ``isolation.level=read_committed`` sees each alert once.

    The transactional id is made from ``job``, so only one process can write for a job. ``begin`` fences off an earlier
    process, and waits until its transactions are committed or aborted. ``security`` contains the keyword arguments of
    aiokafka for SASL and TLS.
    """

    def __init__(self, servers: str, topic: str, job: str, security: Mapping[str, object] | None = None) -> None:
        self._topic = KafkaTopic(servers, topic, security or {}, self._stop)
        self._name = f"{_NAME}-{job}"
        self._producer: Any = None  # aiokafka has no types
        self._next = 0  # the number of the next batch

    def begin(self) -> None:
        """Connect, fence off an earlier process, and read the number of the next batch to deliver."""
        self._topic.run(self._begin(), timeout_s=_BEGIN_S)

    def deliver(self, rows: DataFrame, batch: int) -> None:
        """Send all rows of a batch, and commit the number of the next batch, in one transaction.

        Do nothing if there are no rows, or if the batch was delivered earlier, perhaps by another process.
        """
        kept = rows.persist()
        try:
            # The rows are evaluated before the transaction begins, to keep it short.
            if kept.count() and batch >= self._next:
                left = kept.toLocalIterator()
                self._topic.run(self._producer.begin_transaction(), timeout_s=_SEND_S)
                while some := list(islice(left, _AT_ONCE)):
                    self._topic.run(self._send(some), timeout_s=_SEND_S)
                self._topic.run(self._commit(batch + 1), timeout_s=_SEND_S)
                self._next = batch + 1
        except PipelineError as error:
            if isinstance(error.__cause__, ProducerFenced):
                raise PipelineError(
                    f"{self._topic.where}: another process with the same --checkpoint has taken over; run one of them"
                ) from error
            raise
        finally:
            kept.unpersist()

    def end(self) -> None:
        """Close the connections to the cluster."""
        self._topic.close()

    async def _begin(self) -> None:
        await self._topic.wait_for_broker()
        self._producer = AIOKafkaProducer(
            transactional_id=self._name, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS, **self._topic.keywords
        )
        await self._producer.start()
        self._next = await self._committed()

    async def _send(self, rows: Sequence[Row]) -> None:
        """Send the alerts in these rows, and wait until the brokers have acknowledged them."""
        sent = [
            await self._producer.send(
                self._topic.name, key=row["key"].encode(), value=row["value"].encode(), timestamp_ms=row["start_ms"]
            )
            for row in rows
        ]
        await asyncio.gather(*sent)

    async def _commit(self, number: int) -> None:
        await self._producer.send_offsets_to_transaction({TopicPartition(self._topic.name, 0): number}, self._name)
        await self._producer.commit_transaction()

    async def _committed(self) -> int:
        """Wait until no transaction of an earlier process is open, then return the number of the next batch."""
        client = self._producer.client
        while True:
            try:
                node = await client.coordinator_lookup(CoordinationType.GROUP, self._name)
                request = _StableOffsetRequest(self._name, self._topic.name)
                answer = (await client.send(node, request, group=ConnectionGroup.COORDINATION)).to_object()
                partitions = [one for topic in answer["topics"] for one in topic["partitions"]]
                codes = [answer.get("error_code", 0), *(one["error_code"] for one in partitions)]
                if not any(codes):
                    return max(0, int(partitions[0]["offset"]))  # -1 means that no offset is committed
                if max(codes) != _UNSTABLE_OFFSET_COMMIT:
                    raise for_code(max(codes))
            except (CoordinatorLoadInProgressError, CoordinatorNotAvailableError, NotCoordinatorError):
                pass
            await asyncio.sleep(_AGAIN_S)

    async def _stop(self) -> None:
        if self._producer is not None:
            await self._producer.stop()


class _StableOffsetResponse(Response):  # type: ignore[misc]  # of a library without types, here and below
    API_KEY = 9
    API_VERSION = 7
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            CompactArray(
                ("name", CompactString()),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("offset", Int64),
                        ("leader_epoch", Int32),
                        ("metadata", CompactString()),
                        ("error_code", Int16),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("error_code", Int16),
        ("tags", TaggedFields),
    )


class _StableOffset(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = 9
    API_VERSION = 7
    RESPONSE_TYPE = _StableOffsetResponse
    SCHEMA = Schema(
        ("group_id", CompactString()),
        (
            "topics",
            CompactArray(("name", CompactString()), ("partitions", CompactArray(Int32)), ("tags", TaggedFields)),
        ),
        ("require_stable", Boolean),
        ("tags", TaggedFields),
    )


class _StableOffsetRequest(Request[OffsetFetchRequest_v1 | OffsetFetchRequest_v3 | _StableOffset]):  # type: ignore[misc]
    """An OffsetFetch request for the committed offset of partition 0.

    While a transaction that writes this offset is open, a broker answers version 7 with an error (KIP-447).
    """

    # aiokafka only has versions up to 3. Source: OffsetFetchRequest.json in Apache Kafka.
    API_KEY = 9

    def __init__(self, group: str, topic: str) -> None:
        self._group = group
        self._topic = topic

    def build(self, request_struct_class: type[RequestStruct]) -> RequestStruct:
        """Return the OffsetFetch request in the protocol version of ``request_struct_class``."""
        if request_struct_class is _StableOffset:
            return _StableOffset(self._group, [(self._topic, [0], {})], True, {})
        return request_struct_class(self._group, [(self._topic, [0])])
