"""Hands the events of a reader's thread to the event loop, one after the other."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final, Protocol, TypeAlias

from kafka_quota_proxy.proxy.background.isolation import report
from kafka_quota_proxy.proxy.client_quotas.topic.reader_events import ReaderEvent

_STOP_S: Final = 1.0

EventHandler: TypeAlias = Callable[[ReaderEvent], Awaitable[None]]


class ReaderThread(Protocol):
    """Reads a topic in a thread of its own: ``proxy.client_quotas.topic.topic_reader``."""

    def start(self) -> None:
        """Begin to read."""

    def stop(self) -> None:
        """Stop soon."""

    def join(self, timeout_s: float) -> None:
        """Wait until it has stopped."""


class ReaderBridge:
    """Runs a handler on the loop for each event of a reader, which waits until the event is handled.

    Args:
        reader: Returns the reader. It is given a function, which it awaits with each event.
        hear: The handler, run on the loop. Its exceptions are raised in the reader.
    """

    def __init__(
        self, reader: Callable[[EventHandler], ReaderThread], hear: Callable[[ReaderEvent], Coroutine[None, None, None]]
    ) -> None:
        self._reader = reader(self._tell)
        self._hear = hear
        self._loop: asyncio.AbstractEventLoop

    def start(self) -> None:
        """Begin to read. Called on the loop."""
        self._loop = asyncio.get_running_loop()
        self._reader.start()

    async def stop(self) -> None:
        """Stop reading. Waits a moment for the reader to close its connections."""
        self._reader.stop()
        await asyncio.to_thread(self._reader.join, _STOP_S)

    async def _tell(self, told: ReaderEvent) -> None:
        """Have the loop handle an event, and wait for that. Runs in the reader's thread."""
        if self._loop.is_closed():
            raise asyncio.CancelledError
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._heard(told), self._loop))

    async def _heard(self, told: ReaderEvent) -> None:
        try:
            await self._hear(told)
        except Exception as error:
            report(error, "records of a topic could not be applied; they are read again")
            raise
