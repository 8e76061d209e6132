"""Hands the events of a reader's thread to the event loop, one after the other."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final, Protocol, TypeAlias

from kafka_quota_proxy.config.model import ProxyConfig, QuotasFrom
from kafka_quota_proxy.proxy.background.isolation import report
from kafka_quota_proxy.proxy.client_quotas.topic.reader_events import ReaderEvent
from kafka_quota_proxy.proxy.usage.log import proxy_name

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


def topic_reader(config: ProxyConfig, topic: QuotasFrom) -> Callable[[EventHandler], ReaderThread]:
    """Return a function that makes the reader of a topic, which awaits its argument with each event."""
    # Imported here: it loads aiokafka, which a proxy without a topic does not need.
    from kafka_quota_proxy.proxy.client_quotas.topic.topic_reader import TopicReader

    binds = tuple(listener.bind for listener in config.listeners)
    return lambda handle: TopicReader(topic, f"kafka-quota-proxy-{proxy_name(config)}", handle, binds)


class ReaderBridge:
    """Runs ``handle`` on the loop for each event of a reader, which waits until the event is handled.

    An exception of ``handle`` is raised in the reader.
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
        """Begin to read. Called on the loop."""
        self._loop = asyncio.get_running_loop()
        self._reader.start()

    async def stop(self) -> None:
        """Stop reading, and wait a moment for the reader to close its connections."""
        self._reader.stop()
        await asyncio.to_thread(self._reader.join, _STOP_S)

    async def _hand_over(self, event: ReaderEvent) -> None:
        """Wait until the loop has handled an event. Runs in the reader's thread."""
        if self._loop.is_closed():
            raise asyncio.CancelledError
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._try(event), self._loop))

    async def _try(self, event: ReaderEvent) -> None:
        try:
            await self._handle(event)
        except Exception as error:
            report(error, "records of a topic could not be applied; they are read again")
            raise
