"""Passes the events of a topic reader, such as the records it has read, from its thread to the event loop."""

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
    """The interface of a thread that reads a topic.

    ``proxy.client_quotas.topic.topic_reader.TopicReader`` implements it.
    """

    def start(self) -> None:
        """Start the thread, which begins to read the topic."""

    def stop(self) -> None:
        """Ask the thread to stop, and return at once."""

    def join(self, timeout_s: float) -> None:
        """Wait up to ``timeout_s`` seconds until the thread has ended."""


def topic_reader(config: ProxyConfig, topic: QuotasFrom) -> Callable[[EventHandler], ReaderThread]:
    """Return a function that creates a reader of ``topic``.

    The function takes an event handler, which the reader calls with each event.
    """
    # Imported only when needed, because it loads aiokafka.
    from kafka_quota_proxy.proxy.client_quotas.topic.topic_reader import TopicReader

    binds = tuple(listener.bind for listener in config.listeners)
    return lambda handle: TopicReader(topic, f"kafka-quota-proxy-{proxy_name(config)}", handle, binds)


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
        await asyncio.to_thread(self._reader.join, _STOP_S)

    async def _hand_over(self, event: ReaderEvent) -> None:
        """Run ``handle`` for an event on the event loop, and wait until it has finished.

        Runs in the reader's thread.
        """
        if self._loop.is_closed():
            raise asyncio.CancelledError
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._try(event), self._loop))

    async def _try(self, event: ReaderEvent) -> None:
        try:
            await self._handle(event)
        except Exception as error:
            report(error, "records of a topic could not be applied; reading them again")
            raise
