"""Drains all connections when the server stops.

If all connections closed at once, all clients would reconnect at once. So the connections are drained one after the
other within the first half of the timeout. The second half is left for slow responses.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic_ns
from typing import Final

from kafka_quota_proxy.proxy.runtime.isolation import attempt
from kafka_quota_proxy.proxy.server.clients.tls_handshake import TlsHandshakes
from kafka_quota_proxy.proxy.server.listener_state import ListenerState

log = logging.getLogger(__name__)

_STEP_S: Final = 0.02
# The longest time between the drains of two connections, so that a few connections do not take half of the time.
_MAX_APART_MS: Final = 5
_CAUSE: Final = "shutdown"


async def drain_connections(
    listeners: Sequence[ListenerState], handshakes: Sequence[TlsHandshakes], timeout_ms: int, hurry: asyncio.Event
) -> None:
    """Drain every connection, one after the other. Close the rest after the timeout, or as soon as ``hurry`` is set."""
    connections = [connection for listener in listeners for connection in listener.connections]
    log.info("stopping: waiting at most %d ms for %d connections to end", timeout_ms, len(connections))
    started_ms = monotonic_ns() // 1_000_000
    for connection in connections:
        connection.release()
    done = 0
    while any(one.open_count.total or one.outlived or one.broker_count for one in listeners):
        passed_ms = monotonic_ns() // 1_000_000 - started_ms
        if passed_ms >= timeout_ms or hurry.is_set():
            break
        due = due_after(passed_ms, len(connections), timeout_ms)
        for connection in connections[done:due]:
            connection.drain(_CAUSE)
        done = due
        if done == len(connections):
            for one in handshakes:
                one.close()
            for listener in listeners:
                for connection in tuple(listener.connections):  # also those accepted when the drain began
                    connection.drain(_CAUSE)
        with suppress(TimeoutError):
            async with asyncio.timeout(_STEP_S):
                await hurry.wait()
    for one in handshakes:
        one.close()
    left = [connection for listener in listeners for connection in listener.connections]
    if left:
        level = logging.INFO if hurry.is_set() else logging.WARNING
        log.log(level, "stopping: %d connections did not end in time and were closed", len(left))
    for connection in left:
        attempt(connection.close, _CAUSE)


def due_after(passed_ms: int, connections: int, timeout_ms: int) -> int:
    """Return how many of the connections should have been drained ``passed_ms`` after the begin of the drain."""
    spread_ms = min(timeout_ms // 2, connections * _MAX_APART_MS)
    return connections if passed_ms >= spread_ms else 1 + connections * passed_ms // spread_ms
