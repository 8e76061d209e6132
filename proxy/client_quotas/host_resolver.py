"""Looks up the addresses of hosts that have limits. The lookups of a host are repeated until an address is found."""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from random import shuffle
from time import monotonic_ns
from typing import Final

from kafka_quota_proxy.proxy.background.in_thread import in_thread
from kafka_quota_proxy.proxy.background.isolation import alone, repeated, report
from kafka_quota_proxy.proxy.client_quotas.rules.host_retry import MissingHosts
from kafka_quota_proxy.proxy.client_quotas.rules.ip_rules import Addresses

log = logging.getLogger(__name__)

# How many hosts without an address are looked up together.
_AT_ONCE: Final = 100
_THREADS: Final = 16
# The longest time to wait for the answers.
_LOOKUP_S: Final = 5.0
# The most hosts in a line of the log.
_NAMED: Final = 10


class Lookups:
    """Looks up the addresses of hosts in threads of its own.

    A lookup cannot be cancelled, and takes about ten seconds if the name server does not answer. If such lookups shared
    the event loop's few threads, they would delay the lookups for connections to brokers.
    """

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(_THREADS)
        self._running: dict[str, asyncio.Task[tuple[str, ...] | None]] = {}
        self._begun: set[str] = set()
        self._waiters: Counter[str] = Counter()  # the number of callers of ``find`` that wait for each host

    async def find(self, hosts: Iterable[str]) -> Addresses:
        """Return the addresses of those ``hosts`` for which an address is found within some seconds."""
        names = list(set(hosts))
        if not names:
            return {}
        # Lookups without an answer may make later ones time out. The order is random, so that these are not always the
        # same hosts.
        shuffle(names)
        tasks = {host: self._lookup(host) for host in names}
        self._waiters.update(names)
        try:
            await asyncio.wait(tasks.values(), timeout=_LOOKUP_S)
        finally:
            self._release(tasks)
        answers = {host: task.result() for host, task in tasks.items() if task.done() and not task.cancelled()}
        return {host: addresses for host, addresses in answers.items() if addresses}

    def _lookup(self, host: str) -> asyncio.Task[tuple[str, ...] | None]:
        # All callers share a lookup that is running.
        task = self._running.get(host)
        if task is None or task.done():
            task = self._running[host] = asyncio.ensure_future(alone(partial(self._resolve, host)))
            task.add_done_callback(partial(self._forget, host))
        return task

    @repeated
    def _forget(self, host: str, task: asyncio.Task[tuple[str, ...] | None]) -> None:
        if self._running.get(host) is task:
            del self._running[host]

    def _release(self, tasks: Mapping[str, asyncio.Task[tuple[str, ...] | None]]) -> None:
        self._waiters.subtract(tasks.keys())
        for host, task in tasks.items():
            if not self._waiters[host]:
                del self._waiters[host]
                if host not in self._begun:
                    task.cancel()

    async def _resolve(self, host: str) -> tuple[str, ...]:
        async with self._slots:
            self._begun.add(host)
            try:
                return await in_thread(lambda: _addresses_of(host), name="host")
            except (OSError, ValueError, RuntimeError):  # unknown host; invalid name; no thread can be started
                return ()
            finally:
                self._begun.remove(host)


def _addresses_of(host: str) -> tuple[str, ...]:
    infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(info[4][0]) for info in infos))


class HostResolver:
    """Repeatedly looks up missing hosts, which are hosts that have limits but no known address.

    ``on_found`` is awaited with the addresses that a lookup has found. This function must then call the method
    ``follow`` with the hosts that are still missing.
    """

    def __init__(self, lookups: Lookups, *, on_found: Callable[[Addresses], Awaitable[None]]) -> None:
        self._lookups = lookups
        self._on_found = on_found
        self._missing = MissingHosts()
        self._warned: set[str] = set()
        self._has_changed = asyncio.Event()

    def follow(self, missing: Set[str]) -> None:
        """Look up the hosts in ``missing`` from now on, and no others."""
        self._missing.follow(missing, now_ms=_now_ms())
        self._warned &= missing
        self._has_changed.set()

    async def run(self) -> None:
        """Look up each missing host again and again, with growing delays, until this task is cancelled."""
        while True:
            self._has_changed.clear()
            next_ms = self._missing.next_ms
            with suppress(TimeoutError):
                async with asyncio.timeout(None if next_ms is None else max(0, next_ms - _now_ms()) / 1_000):
                    await self._has_changed.wait()
            hosts = self._missing.take(_AT_ONCE, now_ms=_now_ms())
            if hosts:
                await self._look_for(hosts)

    async def _look_for(self, hosts: Sequence[str]) -> None:
        found = await self._lookups.find(hosts)
        unknown = [host for host in hosts if host not in found and host not in self._warned]
        if unknown:
            self._warned.update(unknown)
            more = f" and {len(unknown) - _NAMED} more" if len(unknown) > _NAMED else ""
            log.warning(
                "no address is known for %s%s: the quotas of these hosts do not apply; the proxy looks them up again",
                ", ".join(unknown[:_NAMED]), more,
            )  # fmt: skip
        if found:
            try:
                await self._on_found(found)
            except Exception as error:  # noqa: BLE001 - clients notice only that a limit is late
                report(error, "the limits of %s could not be applied", ", ".join(found))
            else:
                log.info("found the address of %s; its quotas apply now", ", ".join(found))


def _now_ms() -> int:
    return monotonic_ns() // 1_000_000
