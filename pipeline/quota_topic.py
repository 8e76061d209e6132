"""Writes rules and shares to the quota topic for ``balance --follow``, which divides common limits among proxies.

A rule limits a user or client-id. A share is the part of a common limit that one proxy may use. The proxies read both
from the topic. ``config.quota_record`` defines the format of the records.

The process that writes shares is called the publisher. Each of its records has a header with the id of the process. By
this id, a publisher does not change the rules of other writers, and notices a second publisher: the shares of two
publishers together would exceed the limits.
"""

import asyncio
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError, for_code
from aiokafka.protocol.admin import CreateTopicsRequest, DescribeConfigsRequest
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.structs import TopicPartition

from kafka_quota_proxy.config.quota_record import News, QuotaRecord, Rule, Share, decode, encode
from kafka_quota_proxy.pipeline.errors import PipelineError
from kafka_quota_proxy.pipeline.kafka_config import KafkaConfig
from kafka_quota_proxy.pipeline.kafka_topic import KafkaTopic

_POLICY: Final = "cleanup.policy"
# Each publication adds a record of news. Frequent compaction keeps the topic short for a proxy that has to read it.
_CONFIG: Final = {_POLICY: "compact", "segment.ms": "600000", "max.compaction.lag.ms": "600000"}
_HEADER: Final = "balance"
_BROKERS_CHOICE: Final = -1  # stands for the cluster's default.replication.factor
_TOPIC_RESOURCE: Final = 2
# How long a cluster may take to answer.
_TIMEOUT_S: Final = 30.0
_REQUEST_TIMEOUT_MS: Final = 10_000
_POLL_MS: Final = 500
_LINGER_MS: Final = 5
_NO_CONFIG: Final = KafkaConfig()


class Found(NamedTuple):
    """The rules and shares that an earlier ``balance`` process wrote, without rules that another writer has changed."""

    rules: tuple[Rule, ...]
    shares: tuple[Share, ...]
    lease_ms: int | None  # from the last news of the process; None without news


class QuotaTopic:
    """The publisher's connection to the quota topic.

    ``kafka`` holds the settings of the Kafka clients, and an unusable setting raises InputError. Records that the
    broker does not acknowledge within ``delivery_ms`` are dropped, and never reach the topic later.
    """

    def __init__(self, servers: str, topic: str, kafka: KafkaConfig = _NO_CONFIG, *, delivery_ms: int) -> None:
        self._topic = KafkaTopic(servers, topic, kafka.client_keywords(), self._stop)
        self._delivery_ms = delivery_ms
        self._partition = TopicPartition(topic, 0)
        self._id = uuid.uuid4().hex[:12].encode()
        self._producer: Any = None  # aiokafka has no types
        self._consumer: Any = None

    def begin(self) -> Found:
        """Connect to the cluster, create the topic if it does not exist, and read it.

        Return the rules and shares that an earlier ``balance`` process wrote. Raises PipelineError if the topic cannot
        be reached or has a wrong configuration.
        """
        return self._topic.run(self._begin(), timeout_s=_TIMEOUT_S)

    def publish(self, records: Iterable[QuotaRecord]) -> None:
        """Write records to the quota topic in this order, and wait until the broker has acknowledged them.

        If a record is not acknowledged in time, close the connections to the cluster and raise PipelineError. Some of
        the records may have been written nevertheless.
        """
        try:
            self._topic.run(self._publish([encode(one) for one in records]), timeout_s=self._delivery_ms / 1_000)
        except PipelineError:
            # An idempotent producer of aiokafka retries for ever, so a share could arrive after the end of its lease.
            self.end()
            raise

    def check_alone(self) -> None:
        """Read the topic's new records. Raises PipelineError if that fails or if another process publishes shares."""
        publishers = {publisher for publisher, _ in self._topic.run(self._to_end(), timeout_s=_TIMEOUT_S)}
        if publishers - {None, self._id}:
            raise PipelineError(
                f"{self._topic.where}: another balance --follow writes to this topic, and the shares of both exceed "
                "the limits; end one of them. The proxies return to the common rules when their leases expire"
            )

    def end(self) -> None:
        """Close the connections to the cluster. Records that the broker has not acknowledged yet are dropped."""
        self._topic.close()

    async def _begin(self) -> Found:
        await self._topic.wait_for_broker()
        keywords = self._topic.keywords
        self._producer = AIOKafkaProducer(
            enable_idempotence=True,
            linger_ms=_LINGER_MS,
            request_timeout_ms=min(_REQUEST_TIMEOUT_MS, self._delivery_ms),
            **keywords,
        )
        await self._producer.start()
        await self._check_topic()
        await self._producer.partitions_for(self._topic.name)
        self._consumer = AIOKafkaConsumer(
            request_timeout_ms=_REQUEST_TIMEOUT_MS, auto_offset_reset="earliest", enable_auto_commit=False, **keywords
        )
        self._consumer.assign([self._partition])
        await self._consumer.start()
        return _found(await self._to_end())

    async def _stop(self) -> None:
        if self._producer is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(0):  # with more time, it would deliver the remaining records
                    await self._producer.stop()
            await self._producer.client.close()
        if self._consumer is not None:
            await self._consumer.stop()

    async def _publish(self, messages: Sequence[tuple[bytes, bytes | None]]) -> None:
        sent = [
            await self._producer.send(self._topic.name, value, key, partition=0, headers=[(_HEADER, self._id)])
            for key, value in messages
        ]
        await asyncio.gather(*sent)

    async def _check_topic(self) -> None:
        """Create the topic if it does not exist. Raises PipelineError if its configuration is wrong or unreadable."""
        try:
            partitions = await self._partitions()
        except UnknownTopicOrPartitionError:
            await self._create()
            return
        policy = await self._policy()
        if partitions != 1:
            raise PipelineError(
                f"{self._topic.where}: has {partitions} partitions, and the order of records is that of one only; name "
                "another topic, or create this one again with one partition and cleanup.policy=compact"
            )
        if policy is None:
            raise PipelineError(
                f"{self._topic.where}: its configuration cannot be read, and so not whether rules would expire in it; "
                "grant DESCRIBE_CONFIGS for the topic"
            )
        if policy != _CONFIG[_POLICY]:
            raise PipelineError(
                f"{self._topic.where}: has {_POLICY}={policy}, and rules and shares would expire with its retention; "
                f"set {_POLICY}={_CONFIG[_POLICY]} (kafka-configs --alter --add-config), or name another topic"
            )

    async def _ask(self, request: Any) -> Any:  # noqa: ANN401
        client = self._producer.client
        return await client.send(client.get_random_node(), request)

    async def _partitions(self) -> int:
        # The last argument keeps brokers from creating the topic, which would not be compacted.
        answer = await self._ask(MetadataRequest([self._topic.name], False))
        ((error_code, _, *_, partitions),) = answer.topics
        if error_code:
            raise for_code(error_code)
        return len(partitions)

    async def _create(self) -> None:
        client = self._producer.client
        await client.force_metadata_update()  # the response names the controller
        topic: tuple[object, ...] = (self._topic.name, 1, _BROKERS_CHOICE, [], list(_CONFIG.items()))
        request = CreateTopicsRequest([topic], _REQUEST_TIMEOUT_MS, False)
        answer = await client.send(client.cluster.controller.nodeId, request)
        ((_, error_code, *message),) = answer.topic_errors
        if error_code and for_code(error_code) is not TopicAlreadyExistsError:  # another process was faster
            raise for_code(error_code)(*message)

    async def _policy(self) -> str | None:
        """Return the cleanup policy of the topic, or None if this program is not authorized to read it."""
        answer = await self._ask(DescribeConfigsRequest([(_TOPIC_RESOURCE, self._topic.name, [_POLICY])]))
        ((_, _, _, _, entries),) = answer.resources
        return {name: value for name, value, *_ in entries}.get(_POLICY)

    async def _to_end(self) -> list[tuple[bytes | None, QuotaRecord]]:
        """Read the topic from the last read to its end. Return each record with the id of its publisher.

        The id is None if the record was not written by a ``balance`` process.
        """
        found: list[tuple[bytes | None, QuotaRecord]] = []
        end = (await self._consumer.end_offsets([self._partition]))[self._partition]
        while await self._consumer.position(self._partition) < end:
            for message in (await self._consumer.getmany(timeout_ms=_POLL_MS)).get(self._partition, ()):
                record = decode(message.key, message.value)
                if isinstance(record, Rule | Share | News):
                    found.append((dict(message.headers).get(_HEADER), record))
        return found


def _found(records: Iterable[tuple[bytes | None, QuotaRecord]]) -> Found:
    rules: dict[tuple[object, ...], Rule] = {}
    shares: dict[tuple[object, ...], Share] = {}
    lease_ms: int | None = None
    for publisher, record in records:
        if isinstance(record, News):
            lease_ms = record.lease_ms or lease_ms
        elif isinstance(record, Share):
            _keep(shares, (record.proxy, record.user, record.client_id), record)
        elif not isinstance(record, Rule):
            continue  # rules set at a proxy are left alone
        elif publisher is not None:
            _keep(rules, (record.user, record.client_id), record)
        else:
            rules.pop((record.user, record.client_id), None)
    return Found(tuple(rules.values()), tuple(shares.values()), lease_ms)


def _keep(kept: dict[tuple[object, ...], Any], key: tuple[object, ...], record: Rule | Share) -> None:
    if record.limits:
        kept[key] = record
    else:
        kept.pop(key, None)
