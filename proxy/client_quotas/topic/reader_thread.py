"""Between the thread that reads a topic and the loop that hears of it: one thing after the other."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final, Protocol, TypeAlias

from kafka_quota_proxy.proxy.background.isolation import report
from kafka_quota_proxy.proxy.client_quotas.topic.reader_events import ReaderEvent

_STOP_S: Final = 1.0

EventHandler: TypeAlias = Callable[[ReaderEvent], Awaitable[None]]


class ReaderThread(Protocol):
    """What reads a topic, in a thread of its own: ``proxy.client_quotas.topic.topic_reader``."""

    def start(self) -> None:
        """Begin to tell."""

    def stop(self) -> None:
        """Have it end, soon."""

    def join(self, timeout_s: float) -> None:
        """Wait until it has."""


class ReaderBridge:
    """Has the loop hear what a reader tells, who waits with each thing until it is heard.

    Args:
        reader: Returns who reads, and awaits what it is given here with each thing that he tells.
        hear: Is run on the loop with it. What it raises the reader meets.
    """

    def __init__(
        self, reader: Callable[[EventHandler], ReaderThread], hear: Callable[[ReaderEvent], Coroutine[None, None, None]]
    ) -> None:
        self._reader = reader(self._tell)
        self._hear = hear
        self._loop: asyncio.AbstractEventLoop

    def start(self) -> None:
        """Begin to read; on the loop."""
        self._loop = asyncio.get_running_loop()
        self._reader.start()

    async def stop(self) -> None:
        """Read no more. Waits a moment for the reader to let go of the cluster."""
        self._reader.stop()
        await asyncio.to_thread(self._reader.join, _STOP_S)

    async def _tell(self, told: ReaderEvent) -> None:
        """Have the loop hear, and wait until it has. In the reader's thread."""
        if self._loop.is_closed():
            raise asyncio.CancelledError
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._heard(told), self._loop))

    async def _heard(self, told: ReaderEvent) -> None:
        try:
            await self._hear(told)
        except Exception as error:
            report(error, "what a topic tells could not be taken up; it is read again")
            raise
