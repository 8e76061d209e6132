"""Gives blocking callers access to a Kafka topic that this program writes. Its clients run in a thread of their own."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from aiokafka.conn import collect_hosts, create_conn
from aiokafka.errors import KafkaConnectionError

from kafka_quota_proxy.pipeline.errors import PipelineError
from kafka_quota_proxy.proxy.background.loop_thread import LoopThread

_CLIENT_ID: Final = "kafka-quota-pipeline"
# The time after which an unreachable cluster is reported.
_CONNECT_S: Final = 15.0
_CONNECT_AGAIN_S: Final = 0.5
_CLOSE_S: Final = 1.0
# The errors of aiokafka, of sockets, TLS and timeouts, and those for responses that aiokafka does not understand.
_FAULTS: Final = (RuntimeError, OSError, ValueError, AssertionError)

T = TypeVar("T")


class KafkaTopic:
    """Runs the coroutines of aiokafka clients, and turns their failures into messages for users.

    ``servers`` has the form ``HOST:PORT,HOST:PORT…``. ``security`` contains aiokafka's keyword arguments for SASL and
    TLS. ``on_close`` closes the clients, and is cancelled if it takes longer than a second.
    """

    def __init__(
        self, servers: str, topic: str, security: Mapping[str, object], on_close: Callable[[], Awaitable[None]]
    ) -> None:
        self.name = topic
        self.where = f"--to kafka://{servers}/{topic}"
        self.keywords: dict[str, Any] = {"bootstrap_servers": servers.split(","), "client_id": _CLIENT_ID, **security}
        self._servers = servers
        self._security = security
        self._on_close = on_close
        self._thread: LoopThread | None = None

    def run(self, work: Coroutine[Any, Any, T], *, timeout_s: float) -> T:
        """Run ``work`` on the event loop, and return its result. Raises PipelineError if it fails or takes too long."""
        if self._thread is None:
            # Failures arrive as exceptions. aiokafka would log them too, with stack traces.
            logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
            self._thread = LoopThread("kafka-topic", on_close=self._close)
        try:
            return self._thread.run(_within(work, timeout_s))
        except _FAULTS as error:
            raise PipelineError(f"{self.where}: {type(error).__name__}: {error}".rstrip(": ")) from error

    def close(self) -> None:
        """Close all connections to the brokers, and end the thread in which the clients run."""
        if self._thread is not None:
            self._thread.close()

    async def wait_for_broker(self) -> None:
        """Return as soon as a broker accepts a connection and the login.

        Tries again for some seconds if no broker can be reached, and then raises the exception of the last attempt.
        aiokafka's own start would not say why it found no broker.
        """
        loop = asyncio.get_running_loop()
        # A failed client leaves futures behind, and nothing retrieves their exceptions.
        loop.set_exception_handler(lambda *_: None)
        deadline = loop.time() + _CONNECT_S
        while True:
            for host, port, _ in collect_hosts(self._servers):
                try:
                    connection = await create_conn(
                        host, port, client_id=_CLIENT_ID, request_timeout_ms=int(_CONNECT_S * 1_000), **self._security
                    )
                except (OSError, KafkaConnectionError) as error:
                    if isinstance(error, ssl.SSLError) or loop.time() > deadline:
                        raise
                else:
                    connection.close()
                    return
            await asyncio.sleep(_CONNECT_AGAIN_S)

    async def _close(self) -> None:
        with suppress(*_FAULTS):
            async with asyncio.timeout(_CLOSE_S):
                await self._on_close()


async def _within(work: Awaitable[T], timeout_s: float) -> T:
    try:
        async with asyncio.timeout(timeout_s) as timeout:
            return await work
    except TimeoutError:
        if not timeout.expired():
            raise
        raise TimeoutError(f"no answer within {timeout_s:g} s") from None
