"""Does the server's periodic work: time limits, memory, paused clients, logs of clients, and unused buckets."""

import asyncio
import logging
import resource
import select
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic_ns
from typing import Final, Protocol

from kafka_quota_proxy.config.model import ProxyConfig
from kafka_quota_proxy.config.principals import UNKNOWN
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.quota.bucket import Bucket
from kafka_quota_proxy.proxy.runtime.isolation import alone, attempt
from kafka_quota_proxy.proxy.server.clients.connection import ClientConnection
from kafka_quota_proxy.proxy.server.clients.connection_limits import MAX_BUFFERED, largest_holders
from kafka_quota_proxy.proxy.server.clients.throttle_log import ThrottleLog
from kafka_quota_proxy.proxy.server.listener_state import ListenerState
from kafka_quota_proxy.proxy.session.counters import RecentThrottles

log = logging.getLogger(__name__)

_SWEEP_EVERY_S: Final = 1.0
_EXPIRE_EVERY_S: Final = 30.0
# Linux has it: the peer has closed its side.
POLLRDHUP: Final[int] = getattr(select, "POLLRDHUP", 0)
_STATM: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = resource.getpagesize()


class _Leftover(Protocol):
    """A connection without a client. It is no longer among the connections of its listener."""

    def abort(self) -> None:
        """Close it at once."""


_Holder = ClientConnection | _Leftover


class Sweeps:
    """Does the server's periodic work on the connections of all listeners and the quotas of all brokers.

    ``config`` returns the configuration in force, and ``quotas`` returns the quotas of all brokers.
    """

    def __init__(
        self,
        listeners: Sequence[ListenerState],
        config: Callable[[], ProxyConfig],
        quotas: Callable[[], Iterable[BrokerQuotas]],
    ) -> None:
        self._listeners = listeners
        self._config = config
        self._quotas = quotas
        self._throttle_log = ThrottleLog()

    async def sweep(self) -> None:
        """Once a second, check time limits, memory and paused clients, and log which clients are throttled."""
        while True:
            await asyncio.sleep(_SWEEP_EVERY_S)
            now_ms = monotonic_ns() // 1_000_000
            self._log_throttled(now_ms)
            for listener in self._listeners:
                attempt(_log_unknown_users, listener)
                attempt(_end_lost_clients, listener)
                attempt(_sweep_sessions, listener, now_ms, self._config().max_buffered_bytes // 2)
                if listener.priorities is not None:
                    attempt(listener.priorities.scheduler.sweep_if_due, now_ms=now_ms)
                for checks in listener.timer_wheel.take(now_ms=now_ms):
                    checks.check(now_ms)
            attempt(self._bound_buffers)

    def _log_throttled(self, now_ms: int) -> None:
        newly_throttled: list[Mapping[Bucket, RecentThrottles]] = []
        for listener in self._listeners:
            newly_throttled.append(listener.counters.newly_throttled)
            listener.counters.newly_throttled = {}
        attempt(self._throttle_log.write, newly_throttled, now_ms=now_ms)

    def _bound_buffers(self) -> None:
        """If the process uses at least ``max_buffered`` memory, close the connections that hold the most.

        As many are closed as needed for the remaining ones to hold at most ``max_buffered`` together. Connections that
        are closing, and those to brokers whose clients have left, count as well.
        """
        maximum_bytes = self._config().max_buffered_bytes
        if resident_bytes() < maximum_bytes:
            return  # the whole process holds less, so its connections do too
        held: list[tuple[int, _Holder]] = []
        for listener in self._listeners:
            held += ((one.held_bytes() or 0, one) for one in tuple(listener.connections))
            held += (*listener.closing.holders(), *listener.orphans.holders())
        for holder in largest_holders(held, maximum_bytes):
            if not isinstance(holder, ClientConnection):
                attempt(holder.abort)
                continue
            if holder.listener.may_warn(MAX_BUFFERED):
                log.warning(
                    "closed %s on listener %s, and likely others: connections held more than max_buffered together",
                    holder.peer, holder.listener.name,
                    extra={
                        "event": "connection_closed", "address": holder.peer, "listener": holder.listener.name,
                        "cause": MAX_BUFFERED,
                    },
                )  # fmt: skip
            attempt(holder.abort, MAX_BUFFERED)

    async def expire_buckets(self) -> None:
        """Every half minute, remove unused buckets from the quotas of all brokers."""
        while True:
            await asyncio.sleep(_EXPIRE_EVERY_S)
            for quotas in self._quotas():
                await alone(partial(_expire_buckets_of, quotas))


async def _expire_buckets_of(quotas: BrokerQuotas) -> None:
    for _ in quotas.expire_slices(now_ms=monotonic_ns() // 1_000_000):
        await asyncio.sleep(0)


def _log_unknown_users(listener: ListenerState) -> None:
    """Warn once for each SASL mechanism whose logins do not show the user's name to the proxy."""
    while listener.counters.newly_unknown:
        log.warning(
            "listener %s: a client has logged in by SASL mechanism %s, which does not show the user's name: such "
            "clients are charged as user %s",
            listener.name, listener.counters.newly_unknown.pop(), UNKNOWN,
        )  # fmt: skip


def _end_lost_clients(listener: ListenerState) -> None:
    """End what paused clients that have gone wait for. The event loop does not notice that while reading is paused."""
    poller = select.poll()
    paused: dict[int, ClientConnection] = {}
    for connection in tuple(listener.connections):
        descriptor = connection.paused_socket()
        if descriptor is not None:
            paused[descriptor] = connection
            poller.register(descriptor, POLLRDHUP)  # POLLERR and POLLHUP are always reported
    for descriptor, events in poller.poll(0) if paused else ():
        if events & (select.POLLERR | select.POLLHUP | select.POLLNVAL):
            paused[descriptor].abort_client()
        else:
            connection = paused[descriptor]
            connection.end_paused_client()
            if not connection.is_closed and not connection.session.owes_answers:
                listener.outlive(connection)


def _sweep_sessions(listener: ListenerState, now_ms: int, most_resident_bytes: int) -> None:
    """Look at each session, and read requests to their ends that have waited for a second.

    Behind the end of a request the end of its client is noticed. If the process holds at least ``most_resident_bytes``,
    nothing more is read.
    """
    reads = resident_bytes() < most_resident_bytes
    for connection in tuple(listener.connections):
        connection.session.sweep(now_ms=now_ms)
        if reads and connection.session.has_waited_long(now_ms=now_ms):
            connection.update_reading()


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes, or a huge number if the system does not report it."""
    try:
        return int(_STATM.read_bytes().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 1 << 62
