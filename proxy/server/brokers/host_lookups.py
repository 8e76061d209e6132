"""Looks up the IP addresses of brokers' host names, in threads."""

import asyncio
import socket
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from random import shuffle
from typing import Final, TypeAlias

from kafka_quota_proxy.proxy.runtime.in_thread import in_thread
from kafka_quota_proxy.proxy.runtime.isolation import alone, repeated

# The IP addresses of hosts, by host name.
Addresses: TypeAlias = Mapping[str, tuple[str, ...]]

_THREADS: Final = 16
# The longest time to wait for the answers.
_LOOKUP_S: Final = 5.0


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
