"""Writes the usage log to a Kafka topic, with aiokafka's idempotent producer.

The producer's work would delay clients on the main event loop. So it runs on an event loop of its own, in the thread in
which a ``Sink`` writes the usage log. This module is imported only if a topic is configured, because it loads aiokafka.
After a failed write, a new producer sends the unacknowledged records again. The topic may therefore contain a record
twice, with the same key and ``start_ms``.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from kafka_quota_proxy.config.model import UsageTopic
from kafka_quota_proxy.proxy.kafka_client.client_security import connection
from kafka_quota_proxy.proxy.kafka_client.loop_thread import ClientLoop
from kafka_quota_proxy.proxy.usage.record import Batch

CLIENT_ID: Final = "kafka-quota-proxy"
# How many records are sent before their acknowledgements are awaited.
_AT_ONCE: Final = 500
_REQUEST_TIMEOUT_MS: Final = 10_000
_TIMEOUT_S: Final = 30.0
_STOP_TIMEOUT_S: Final = 2.0


class TopicWriter:
    """A ``Writer`` that sends each record of the usage log to one topic, as a message of its own."""

    name = "topic"
    rotate_from_ms = None

    def __init__(self, settings: UsageTopic, proxy: str) -> None:
        self._settings = settings
        self._client_id = f"{CLIENT_ID}-{proxy}"
        self._runner: asyncio.Runner | None = None
        self._producer: AIOKafkaProducer | None = None
        self._batch: Batch | None = None  # the unfinished batch
        self._left: list[tuple[bytes, bytes]] = []  # keys and values of its unsent records

    def begin(self) -> int:
        """Connect to the cluster. Return 0, which means that the last logged interval is unknown.

        Raises:
            Exception: If the cluster cannot be reached, or a password or certificate file cannot be used.
        """
        self._run(self._start())
        return 0

    def write(self, batch: Batch, *, now_ms: int) -> None:
        """Send all records of a batch. After a failure, call it again with the same batch to send the rest.

        Raises:
            Exception: If the cluster cannot be reached, or some records were not acknowledged in time.
        """
        if batch is not self._batch:
            self._batch, self._left = batch, list(zip(batch.keys(), batch.lines(), strict=True))
        self._run(self._send(batch.start_ms))
        self._batch = None

    def complete(self) -> None:
        """Do nothing. For a usage log in files, this method closes the current file, but here no file is written."""

    def end(self) -> None:
        """Disconnect from the cluster."""
        if self._runner is not None:
            with suppress(Exception):
                self._run(self._stop())
            self._close_loop()

    def _run(self, work: Coroutine[Any, Any, object]) -> None:
        if self._runner is None:
            self._runner = asyncio.Runner(loop_factory=ClientLoop)
        try:
            self._runner.run(work)
        except BaseException:
            # An idempotent producer retries for ever, even while it stops. Closing the event loop ends its tasks.
            self._close_loop()
            raise

    def _close_loop(self) -> None:
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    async def _start(self) -> AIOKafkaProducer:
        if self._producer is not None:
            return self._producer
        producer = AIOKafkaProducer(
            enable_idempotence=True,
            linger_ms=5,
            max_batch_size=256 * 1024,
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
            **connection(self._settings.client, self._client_id),
        )
        self._producer = producer
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await producer.start()
        except BaseException:
            await self._stop()
            raise
        return producer

    async def _send(self, start_ms: int) -> None:
        producer = await self._start()
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                while self._left:
                    await self._send_some(producer, start_ms)
        except BaseException:
            # After a failed delivery the producer's sequence has a gap, so it is replaced.
            await self._stop()
            raise

    async def _send_some(self, producer: AIOKafkaProducer, start_ms: int) -> None:
        some = list(islice(self._left, _AT_ONCE))
        sent = [
            await producer.send(self._settings.topic, key=key, value=value, timestamp_ms=start_ms)
            for key, value in some
        ]
        results = await asyncio.gather(*sent, return_exceptions=True)
        failures = [
            result if isinstance(result, Exception) else KafkaError(f"given up: {result!r}")
            for result in results
            if isinstance(result, BaseException)
        ]
        self._left[: len(some)] = [
            one for one, result in zip(some, results, strict=True) if isinstance(result, BaseException)
        ]
        if failures:
            raise failures[0]

    async def _stop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                async with asyncio.timeout(_STOP_TIMEOUT_S):
                    await producer.stop()
            except Exception:  # noqa: BLE001 - its connections may still be open
                with suppress(Exception):
                    async with asyncio.timeout(_STOP_TIMEOUT_S):
                        await producer.client.close()
