"""Reads a quota topic from its start, and then reports new records as they arrive.

The reader has a thread with its own event loop, because ten thousand rules take some tenths of a second to decode.
After any failure it reads the topic again from the start. It could otherwise miss deletions, because compaction may
have removed their tombstones.

aiokafka's consumer is not used, because it may create a missing topic, which would then not be compacted. It also does
not report that the cluster is unreachable. Import this module only if a quota topic is configured, because it loads
aiokafka.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from itertools import islice
from typing import Final

from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.fetch import FetchRequest

from kafka_quota_proxy.config.model import Address, QuotasFrom
from kafka_quota_proxy.proxy.kafka_client.client_security import connection
from kafka_quota_proxy.proxy.kafka_client.loop_thread import ClientLoop
from kafka_quota_proxy.proxy.kafka_client.topic_requests import (
    ANY_ISOLATION,
    EARLIEST,
    LATEST,
    OwnAddressError,
    leader_of,
    offset_of,
    raise_for,
    watch_leader,
    words_of,
)
from kafka_quota_proxy.proxy.rules.topic.clients import (
    EndReached,
    ReaderEvent,
    ReadFailed,
    ReadingBegan,
    RecordsRead,
)
from kafka_quota_proxy.proxy.rules.topic.record_batches import RecordBatches
from kafka_quota_proxy.proxy.runtime.isolation import persisting

# How long a broker may wait for new records before it answers a fetch.
_WAIT_MS: Final = 250
# The time limit for an answer. It also ends a connection that was cut without notice.
_ANSWER_MS: Final = 5_000
_MAX_BYTES: Final = 1_048_576
# The highest number of records that the proxy's event loop gets at a time.
_AT_ONCE: Final = 250
_STOP_S: Final = 1.0
_BACKOFF_S: Final = 0.25
_MOST_BACKOFF_S: Final = 5.0
# How often the leader of the topic is checked. A broker that is cut off from the others goes on answering fetches, and
# fetches of partition 0 also go on after more partitions were added. aiokafka's own refresh of metadata is switched
# off, because it reads all topics.
_CHECK_S: Final = 30.0
_NEVER_MS: Final = 2**31 - 1


class TopicReader:
    """A ``ReaderThread`` that awaits ``report`` with each event.

    ``binds`` contains the addresses that this proxy listens on. The reader refuses to reach the leader through these.
    """

    def __init__(
        self,
        settings: QuotasFrom,
        client_id: str,
        report: Callable[[ReaderEvent], Awaitable[None]],
        binds: Collection[Address] = (),
    ) -> None:
        self._settings = settings
        self._client_id = client_id
        self._report = report
        self._binds = binds
        self._least_end_offset = 0  # the end of the topic when reading began
        self._has_reported_end = False
        self._backoff_s = _BACKOFF_S
        self._is_stopped = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=persisting(self._run), name="quotas-from", daemon=True)

    def start(self) -> None:
        """Start the thread, which begins to read the topic."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to stop, and return at once."""
        self._is_stopped = True
        loop, task = self._loop, self._task
        if loop is not None and task is not None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(task.cancel)

    def join(self, timeout_s: float) -> None:
        """Wait up to ``timeout_s`` seconds until the thread has ended."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    # -- in the thread --

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=ClientLoop) as runner, suppress(asyncio.CancelledError):
            runner.run(self._read_for_ever())

    async def _read_for_ever(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        # If ``stop`` was called before this line, there was no task that it could cancel.
        while not self._is_stopped:
            try:
                await self._read_from_start()
            except Exception as error:  # noqa: BLE001 - aiokafka raises more than it documents
                failed = ReadFailed(words_of(error), isinstance(error, OwnAddressError))
                # The handler logs its own errors, and the reader continues.
                with suppress(Exception):
                    await self._report(failed)
            await asyncio.sleep(self._backoff_s)
            self._backoff_s = min(2 * self._backoff_s, _MOST_BACKOFF_S)

    async def _read_from_start(self) -> None:
        """Read the topic from its first record on, until something fails. Raise the failure."""
        client = AIOKafkaClient(
            request_timeout_ms=_ANSWER_MS,
            metadata_max_age_ms=_NEVER_MS,
            **connection(self._settings.client, self._client_id),
        )
        try:
            async with asyncio.timeout(2 * _ANSWER_MS / 1_000):
                await client.bootstrap()
                topic = self._settings.topic
                leader = await leader_of(client, topic, self._binds)
                offset = await offset_of(client, leader, topic, EARLIEST)
                self._least_end_offset = await offset_of(client, leader, topic, LATEST)
            await self._report(ReadingBegan())
            self._has_reported_end = False
            await self._follow(client, leader, offset)
        finally:
            with suppress(Exception):
                async with asyncio.timeout(_STOP_S):
                    await client.close()

    async def _follow(self, client: AIOKafkaClient, leader: int, offset: int) -> None:
        topic = self._settings.topic
        watching = asyncio.ensure_future(watch_leader(client, topic, self._binds, leader=leader, every_s=_CHECK_S))
        try:
            while not watching.done():
                offset = await self._fetch(client, leader, offset)
        finally:
            watching.cancel()
            # The error of this task is raised below, unless a fetch has failed.
            (ended,) = await asyncio.gather(watching, return_exceptions=True)
        raise ended

    async def _fetch(self, client: AIOKafkaClient, leader: int, offset: int) -> int:
        """Fetch records from ``offset`` on and report them as events. Return the offset for the next fetch."""
        request = FetchRequest(
            _WAIT_MS, 1, _MAX_BYTES, ANY_ISOLATION, [(self._settings.topic, [(0, offset, _MAX_BYTES)])]
        )
        answer = await client.send(leader, request)
        raise_for(getattr(answer, "error_code", 0))  # responses have this field from version 7 on
        throttle_time_ms = getattr(answer, "throttle_time_ms", 0)
        if not answer.topics:
            # A broker answers a throttled client at once, with an answer that has no topics.
            await asyncio.sleep(max(throttle_time_ms, _WAIT_MS) / 1_000)
            return offset
        ((_, ((_, error_code, end_offset, *_, data),)),) = answer.topics
        raise_for(error_code)
        # A new leader may answer a fetch with a high watermark that is too low. The offset that it returned for LATEST
        # is always right.
        end_offset = max(end_offset, self._least_end_offset)
        batches = RecordBatches(data or b"", offset)
        records = batches.records()
        reported = offset
        while portion := tuple(islice(records, _AT_ONCE)):
            reported = portion[-1].offset + 1
            await self._report(RecordsRead(portion, reported, is_whole=not batches.is_within))
        if reported < batches.next_offset and self._has_reported_end:
            await self._report(RecordsRead((), batches.next_offset))
        if batches.next_offset >= end_offset and not self._has_reported_end:
            await self._report(EndReached(batches.next_offset))
            self._has_reported_end = True
            self._backoff_s = _BACKOFF_S
        if throttle_time_ms > 0:
            # The broker reads nothing from this connection during the throttle time, so the next answer would be late.
            await asyncio.sleep(throttle_time_ms / 1_000)
        return batches.next_offset
