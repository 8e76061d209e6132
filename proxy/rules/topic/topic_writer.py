"""Writes records to a quota topic that several proxies share.

Each call of ``append`` writes one batch as a whole or not at all, and never twice (acks=all, idempotent).

aiokafka's producer is not used, because it may create the topic, retries forever, and does not report whether a failed
batch may have been appended. Import this module only if a quota topic is configured, because it loads aiokafka.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from aiokafka import errors
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.admin import DescribeConfigsRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import InitProducerIdRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from kafka_quota_proxy.config.model import Address, QuotasFrom
from kafka_quota_proxy.proxy.kafka_client.client_security import connection
from kafka_quota_proxy.proxy.kafka_client.topic_requests import (
    LATEST,
    NoTopicError,
    OwnAddressError,
    leader_of,
    offset_of,
    raise_for,
    words_of,
)
from kafka_quota_proxy.proxy.rules.topic.clients import NotWrittenError, Record
from kafka_quota_proxy.proxy.runtime.in_thread import in_thread

T = TypeVar("T")

# The time limit for all attempts of one call together. Later requests wait during that time, too.
_ATTEMPTS_MS: Final = 5_000
_BACKOFF_S: Final = 0.1
_STOP_S: Final = 1.0
_NEVER_MS: Final = 2**31 - 1
_ACKS_ALL: Final = -1
_MAGIC: Final = 2
_GZIP: Final = 1
# Larger batches are compressed. The largest request makes a batch of some megabytes, and brokers accept 1 MiB.
_COMPRESSED_BYTES: Final = 16_384
_MOST_BYTES: Final = 16 * 1_048_576
_TOPIC_RESOURCE: Final = 2
_FULL_ERRORS: Final = (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError)
_DENIED_ERRORS: Final = (errors.TopicAuthorizationFailedError, errors.ClusterAuthorizationFailedError)
# After these errors a batch was certainly not appended. After other errors it may have been appended. With acks=all a
# broker appends a batch and then waits for the replicas. During that time it may find that it is no longer the leader,
# that the topic was deleted, or that the disk fails (``DelayedProduce.tryComplete`` in Apache Kafka).
_NOT_TAKEN_ERRORS: Final = (errors.LeaderNotAvailableError, errors.NotEnoughReplicasError)
_FORGOTTEN_ERRORS: Final = (errors.OutOfOrderSequenceNumber, errors.UnknownProducerId, errors.InvalidProducerEpoch)


class Writer:
    """A ``TopicWriter`` that keeps one connection, to the leader of the topic's only partition.

    ``binds`` contains the addresses that this proxy listens on. The writer refuses to reach the leader through these.
    """

    def __init__(self, settings: QuotasFrom, client_id: str, binds: Collection[Address] = ()) -> None:
        self._settings = settings
        self._client_id = client_id
        self._binds = binds
        self._client: AIOKafkaClient | None = None
        self._leader = -1
        self._producer: tuple[int, int] | None = None  # id and epoch
        self._sequence = 0

    async def end_offset(self) -> int:
        """Return the end offset of the topic: the offset of the last record plus 1."""
        return await self._retry(self._end_offset, _Attempt())

    async def append(self, records: Sequence[Record]) -> int:
        """Write records as one batch, wait until all in-sync replicas have it, and return the batch's first offset."""
        attempt = _Attempt()
        try:
            return await self._retry(lambda: self._append(records, attempt), attempt)
        except BaseException:
            # The broker may or may not have used up the sequence numbers, so the next batch gets a new producer id.
            self._producer = None
            raise

    async def configuration(self) -> Mapping[str, str] | None:
        """Return the configuration of the topic, or None if the cluster refuses to describe it."""
        return await self._retry(self._configuration, _Attempt())

    async def close(self) -> None:
        """Close the connection, if there is one. The next call opens a new one."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):
                async with asyncio.timeout(_STOP_S):
                    await client.close()

    # -- attempts

    async def _retry(self, work: Callable[[], Awaitable[T]], attempt: "_Attempt") -> T:
        """Await ``work()`` repeatedly until it succeeds, and return its result.

        Raises:
            NotWrittenError: No attempt succeeded within ``_ATTEMPTS_MS``, or another attempt cannot succeed.
        """
        reason = words_of(TimeoutError())
        with suppress(TimeoutError):
            async with asyncio.timeout(_ATTEMPTS_MS / 1_000):
                while True:
                    try:
                        return await work()
                    except _FULL_ERRORS:
                        text = "the topic accepts no batch of this size; change fewer quotas at once"
                        raise NotWrittenError(text, may_be_there=attempt.may_be_there, is_final=True) from None
                    except (*_DENIED_ERRORS, OwnAddressError, NoTopicError) as error:
                        # The next call must look for the leader again.
                        await self.close()
                        raise NotWrittenError(_words(error), may_be_there=attempt.may_be_there) from error
                    except Exception as error:  # noqa: BLE001 - the library raises more than it documents
                        reason = _words(error)
                        attempt.failed(error)
                        if isinstance(error, _FORGOTTEN_ERRORS):
                            self._producer = None
                    await self.close()
                    if attempt.may_be_there and self._producer is None:
                        break
                    await asyncio.sleep(_BACKOFF_S)
        await self.close()
        # The last attempt may still be under way.
        raise NotWrittenError(reason, may_be_there=attempt.may_be_there or attempt.is_sent)

    async def _connected(self) -> AIOKafkaClient:
        if self._client is None:
            keywords = await in_thread(lambda: connection(self._settings.client, self._client_id), name="topic")
            client = self._client = AIOKafkaClient(
                request_timeout_ms=_ATTEMPTS_MS, metadata_max_age_ms=_NEVER_MS, **keywords
            )
            await client.bootstrap()
            self._leader = await leader_of(client, self._settings.topic, self._binds)
        return self._client

    async def _end_offset(self) -> int:
        return await offset_of(await self._connected(), self._leader, self._settings.topic, LATEST)

    async def _append(self, records: Sequence[Record], attempt: "_Attempt") -> int:
        client = await self._connected()
        if self._producer is None:
            # The second argument is the transaction timeout, which does not matter here.
            answer = await client.send(self._leader, InitProducerIdRequest(None, 0))
            raise_for(answer.error_code)
            self._producer, self._sequence = (answer.producer_id, answer.producer_epoch), 0
        data = await in_thread(partial(_batch, records, *self._producer, self._sequence), name="topic")
        attempt.is_sent = True
        request = ProduceRequest(None, _ACKS_ALL, _ATTEMPTS_MS, [(self._settings.topic, [(0, data)])])
        answer = await client.send(self._leader, request)
        ((_, ((_, error_code, offset, *_),)),) = answer.topics
        raise_for(error_code)
        self._sequence = (self._sequence + len(records)) % 2**31
        return int(offset)

    async def _configuration(self) -> Mapping[str, str] | None:
        client = await self._connected()
        request = DescribeConfigsRequest([(_TOPIC_RESOURCE, self._settings.topic, None)])
        answer = await client.send(self._leader, request)
        ((error_code, _, _, _, entries),) = answer.resources
        return None if error_code else {name: value for name, value, *_ in entries}


class _Attempt:
    """The state of one call of ``Writer`` during all of its attempts.

    Attributes:
        is_sent: Whether a request with the batch of records has been sent and not answered yet.
        may_be_there: Whether a request has failed after which the batch may be in the topic, or be appended later.
    """

    def __init__(self) -> None:
        self.is_sent = False
        self.may_be_there = False

    def failed(self, error: Exception) -> None:
        if self.is_sent and not isinstance(error, (*_NOT_TAKEN_ERRORS, *_FORGOTTEN_ERRORS)):
            self.may_be_there = True
        self.is_sent = False


def _batch(records: Sequence[Record], producer_id: int, epoch: int, sequence: int) -> bytes:
    size_bytes = sum(len(key) + len(value or b"") for key, value in records)
    builder = DefaultRecordBatchBuilder(
        _MAGIC,
        _GZIP if size_bytes >= _COMPRESSED_BYTES else 0,
        is_transactional=0,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        batch_size=_MOST_BYTES,
    )
    for offset, (key, value) in enumerate(records):
        if builder.append(offset, None, key, value, []) is None:
            raise errors.MessageSizeTooLargeError
    return bytes(builder.build())


def _words(error: Exception) -> str:
    if isinstance(error, _DENIED_ERRORS):
        return (
            "the cluster does not allow it: this client needs the rights READ, WRITE and DESCRIBE for the topic, and "
            "IDEMPOTENT_WRITE for clusters before Kafka 3.0"
        )
    return words_of(error)
