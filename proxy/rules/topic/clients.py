"""Defines what reads a quota topic and what writes to it, and passes what is read from the thread to the event loop.

A reader first reports ``ReadingBegan``. Then ``RecordsRead`` reports the records that are in the topic, some at a time.
``EndReached`` follows once, when all of them have been reported. After that, ``RecordsRead`` reports new records as
they arrive. ``ReadFailed`` may be reported at any time. The reader then starts again from the first record, with
``ReadingBegan``.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from kafka_quota_proxy.proxy.rules.topic.record_table import TopicRecord
from kafka_quota_proxy.proxy.runtime.in_thread import in_thread
from kafka_quota_proxy.proxy.runtime.isolation import report

_STOP_S: Final = 1.0

# The key and the value of a record. The value None deletes the key.
Record: TypeAlias = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class ReadingBegan:
    """Reported when the reader begins to read the topic from its first record, for the first time or again."""


@dataclass(frozen=True, slots=True)
class RecordsRead:
    """The next records of the topic. If ``is_whole`` is false, they end in the middle of a batch."""

    records: tuple[TopicRecord, ...]
    next_offset: int = 0  # all records before it have been reported
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class EndReached:
    """Reported when all records up to the end of the topic have been reported. ``next_offset`` is the end offset."""

    next_offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """Reported when the topic cannot be read. The reader will try again.

    If ``is_own_fault`` is true, the leader's address leads to this proxy itself. Further attempts then fail, too, until
    the configuration is corrected.
    """

    reason: str
    is_own_fault: bool = False


ReaderEvent = ReadingBegan | RecordsRead | EndReached | ReadFailed
EventHandler: TypeAlias = Callable[[ReaderEvent], Awaitable[None]]


class ReaderThread(Protocol):
    """The interface of a thread that reads a topic, and awaits an ``EventHandler`` with each event."""

    def start(self) -> None:
        """Start the thread, which begins to read the topic."""

    def stop(self) -> None:
        """Ask the thread to stop, and return at once."""

    def join(self, timeout_s: float) -> None:
        """Wait up to ``timeout_s`` seconds until the thread has ended."""


class NotWrittenError(Exception):
    """Raised if a ``TopicWriter`` cannot write to its topic or read from it.

    Attributes:
        may_be_there: True if the records may be in the topic, or may be appended later.
        is_final: True if another attempt to write the same records would also fail.
    """

    def __init__(self, message: str, *, may_be_there: bool = False, is_final: bool = False) -> None:
        super().__init__(message)
        self.may_be_there = may_be_there
        self.is_final = is_final


class TopicWriter(Protocol):
    """Writes records to a topic. Make only one call at a time. A call that fails raises ``NotWrittenError``."""

    async def end_offset(self) -> int:
        """Return the end offset of the topic: the offset of the last record plus 1."""

    async def append(self, records: Sequence[Record]) -> int:
        """Write all of ``records``, or none of them, and return the offset of the first record."""

    async def configuration(self) -> Mapping[str, str] | None:
        """Return the configuration of the topic, or None if the cluster refuses to describe it."""

    async def close(self) -> None:
        """Close the connection to the cluster."""


class ReaderBridge:
    """Runs ``handle`` on the event loop for each event of a topic reader, such as records that were read.

    The reader, which has its own thread, waits until ``handle`` returns. If ``handle`` raises an exception, the reader
    reads the topic again from its start.
    """

    def __init__(
        self,
        make_reader: Callable[[EventHandler], ReaderThread],
        handle: Callable[[ReaderEvent], Coroutine[None, None, None]],
    ) -> None:
        self._reader = make_reader(self._hand_over)
        self._handle = handle
        self._loop: asyncio.AbstractEventLoop

    def start(self) -> None:
        """Start the reader thread. Call this on the event loop that is to handle what the thread reads."""
        self._loop = asyncio.get_running_loop()
        self._reader.start()

    async def stop(self) -> None:
        """Stop the reader, and wait up to a second until its connections are closed."""
        self._reader.stop()
        await in_thread(lambda: self._reader.join(_STOP_S), name="topic")

    async def _hand_over(self, event: ReaderEvent) -> None:
        """Run ``handle`` on the event loop, and wait until it has finished. This runs in the reader's thread."""
        if self._loop.is_closed():
            raise asyncio.CancelledError
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._try(event), self._loop))

    async def _try(self, event: ReaderEvent) -> None:
        try:
            await self._handle(event)
        except Exception as error:
            report(error, "records of a topic could not be applied; reading them again")
            raise
