"""Runs an event loop in a thread of its own, for asyncio clients that decode large answers.

On the event loop that serves clients, the decoding would delay every connection.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, Final, TypeVar

from kafka_quota_proxy.proxy.runtime.isolation import attempt

T = TypeVar("T")

# How long an IP address of a host has for itself before the next one is tried, too (RFC 8305, 5).
NEXT_AFTER_S: Final = 0.25


class ClientLoop(asyncio.SelectorEventLoop):
    """An event loop for the proxy's own Kafka clients. A silent IP address of a broker costs them a moment only."""

    async def create_connection(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401
        """Connect as asyncio does, but try the IP addresses of a host side by side. aiokafka has no option for it."""
        return await super().create_connection(*args, happy_eyeballs_delay=NEXT_AFTER_S, **options)


class LoopThread:
    """Runs coroutines on the event loop of a thread, for callers in other threads.

    ``close`` runs ``on_close`` as the last coroutine, for example to close connections.
    """

    def __init__(self, name: str, *, on_close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._on_close = on_close
        # With a loop_factory, the Runner does not change the event loop of the calling thread.
        self._runner = asyncio.Runner(loop_factory=ClientLoop)
        self._loop = self._runner.get_loop()
        self._closing = asyncio.Event()
        self._lock = threading.Lock()
        self._is_closed = False
        self._calls: set[Future[Any]] = set()
        self._thread = threading.Thread(target=attempt, args=(self._run,), name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` on the thread's event loop. Wait for its result and return it.

        Raises:
            ConnectionAbortedError: ``close`` was called before ``work`` ended.
        """
        with self._lock:
            if self._is_closed:
                work.close()
                raise ConnectionAbortedError("the client was closed")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._calls.add(future)
        try:
            return future.result()
        except CancelledError:
            work.close()
            raise ConnectionAbortedError("the client was closed meanwhile") from None
        finally:
            self._calls.discard(future)

    def close(self) -> None:
        """Run ``on_close``, and end the thread. Calls of ``run`` that are still waiting in other threads fail."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._runner.run(self._until_closed())
        finally:
            with self._lock:
                self._is_closed = True
            self._runner.close()
            for call in tuple(self._calls):  # only calls that the event loop has not begun are left
                call.cancel()

    async def _until_closed(self) -> None:
        await self._closing.wait()
        await self._on_close()
