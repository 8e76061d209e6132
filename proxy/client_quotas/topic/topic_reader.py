"""Reads a quota topic from its start, and then follows it, in a thread with a loop of its own.

A topic of ten thousand rules takes some tenths of a second to decode, which would hold up clients on their loop.
Fetches are sent here, one after the other, because aiokafka's consumer does not report that the cluster is unreachable,
nor when the fetch was sent that reached the end of the topic; a lease counts from then. A consumer might also create
the topic, which would not be compacted.

Any failure ends the connection, and the topic is read from its start: compaction may have removed tombstones meanwhile.
Imported only where a topic is configured, because it loads aiokafka.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from itertools import islice
from time import monotonic_ns
from typing import Final

from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.fetch import FetchRequest

from kafka_quota_proxy.config.model import Address, QuotasFrom
from kafka_quota_proxy.proxy.background.client_security import connection
from kafka_quota_proxy.proxy.background.isolation import persisting
from kafka_quota_proxy.proxy.client_quotas.topic.reader_events import (
    EndReached,
    ReaderEvent,
    ReadFailed,
    ReadingBegan,
    RecordsRead,
)
from kafka_quota_proxy.proxy.client_quotas.topic.record_batches import RecordBatches
from kafka_quota_proxy.proxy.client_quotas.topic.topic_requests import (
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

# How long a broker may wait for new records. A lease counts from the fetch before, and may end up to twice that early.
_WAIT_MS: Final = 250
# The limit for a whole answer, also on a connection that was cut without notice.
_ANSWER_MS: Final = 5_000
_MAX_BYTES: Final = 1_048_576
# The number of records that the loop gets at a time.
_AT_ONCE: Final = 250
_STOP_S: Final = 1.0
_BACKOFF_S: Final = 0.25
_MOST_BACKOFF_S: Final = 5.0
# How often the topic's leader is checked: a partitioned broker goes on answering, and so does partition 0 after others
# were added. aiokafka's own refresh of metadata, which reads all topics, never runs.
_CHECK_S: Final = 30.0
_NEVER_MS: Final = 2**31 - 1


class TopicReader:
    """See ``ReaderThread``. It awaits ``report`` with each event; ``binds``: the addresses of this proxy."""

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
        self._end_offset = 0  # the last known end of the topic
        self._since_ms: int | None = None  # when the fetch was sent that reached the end
        self._has_reported_end = False
        self._backoff_s = _BACKOFF_S
        self._is_stopped = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=persisting(self._run), name="quotas-from", daemon=True)

    def start(self) -> None:
        """See ``ReaderThread``."""
        self._thread.start()

    def stop(self) -> None:
        """See ``ReaderThread``."""
        self._is_stopped = True
        loop, task = self._loop, self._task
        if loop is not None and task is not None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(task.cancel)

    def join(self, timeout_s: float) -> None:
        """See ``ReaderThread``."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    # -- in the thread --

    def _run(self) -> None:
        with asyncio.Runner() as runner, suppress(asyncio.CancelledError):
            runner.run(self._read_for_ever())

    async def _read_for_ever(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        # A stop before this had nothing to cancel.
        while not self._is_stopped:
            try:
                await self._read_from_start()
            except Exception as error:  # noqa: BLE001 - aiokafka raises more than it documents
                failed = ReadFailed(words_of(error), isinstance(error, OwnAddressError))
                # A fault of the handler is reported there; the reader continues.
                with suppress(Exception):
                    await self._report(failed)
            await asyncio.sleep(self._backoff_s)
            self._backoff_s = min(2 * self._backoff_s, _MOST_BACKOFF_S)

    async def _read_from_start(self) -> None:
        """Read the topic until something fails, and raise the failure."""
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
            # Its error is raised unless a fetch has failed.
            (ended,) = await asyncio.gather(watching, return_exceptions=True)
        raise ended

    async def _fetch(self, client: AIOKafkaClient, leader: int, offset: int) -> int:
        """Fetch from ``offset``, report the records, and return the next offset."""
        sent_ms = monotonic_ns() // 1_000_000
        request = FetchRequest(
            _WAIT_MS, 1, _MAX_BYTES, ANY_ISOLATION, [(self._settings.topic, [(0, offset, _MAX_BYTES)])]
        )
        answer = await client.send(leader, request)
        raise_for(getattr(answer, "error_code", 0))  # from version 7 on
        throttle_time_ms = getattr(answer, "throttle_time_ms", 0)
        if not answer.topics:
            # A broker answers a throttled client at once, and without the topic.
            await asyncio.sleep(max(throttle_time_ms, _WAIT_MS) / 1_000)
            return offset
        ((_, ((_, error_code, end_offset, *_, data),)),) = answer.topics
        raise_for(error_code)
        # A new leader may answer a fetch with a high watermark below the real one; the latest offset is always right.
        end_offset = max(end_offset, self._least_end_offset)
        if end_offset < self._end_offset:
            self._since_ms = None  # the topic was created again
        batches = RecordBatches(data or b"", offset)
        records = batches.records()
        reported = offset
        while portion := tuple(islice(records, _AT_ONCE)):
            reported = portion[-1].offset + 1
            await self._report(RecordsRead(portion, self._since_ms, reported, is_whole=not batches.is_within))
        if reported < batches.next_offset and self._has_reported_end:
            await self._report(RecordsRead((), self._since_ms, batches.next_offset))
        self._end_offset = max(batches.next_offset, end_offset)
        if batches.next_offset >= end_offset:
            if not self._has_reported_end:
                await self._report(EndReached(batches.next_offset))
                self._has_reported_end = True
                self._backoff_s = _BACKOFF_S
            self._since_ms = sent_ms
        if throttle_time_ms > 0:
            # The broker reads nothing from this connection until then, and the next answer would be late.
            await asyncio.sleep(throttle_time_ms / 1_000)
        return batches.next_offset
