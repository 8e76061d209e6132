"""Looks up the IP addresses of brokers' host names, in threads."""

import asyncio
import socket
from collections.abc import Iterable, Mapping
from functools import partial
from random import shuffle
from typing import Final, TypeAlias

from kafka_quota_proxy.proxy.runtime.in_thread import in_thread
from kafka_quota_proxy.proxy.runtime.isolation import alone

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
        self._running: dict[str, asyncio.Task[tuple[str, ...] | None]] = {}  # all callers of ``find`` share them

    async def find(self, hosts: Iterable[str]) -> Addresses:
        """Return the addresses of those ``hosts`` for which an address is found within some seconds."""
        names = list(set(hosts))
        # Lookups without an answer may make later ones time out. The order is random, so that these are not always the
        # same hosts.
        shuffle(names)
        tasks = {host: self._running.get(host) or self._begin(host) for host in names}
        if tasks:
            await asyncio.wait(tasks.values(), timeout=_LOOKUP_S)
        done = ((host, task) for host, task in tasks.items() if task.done() and not task.cancelled())
        return {host: found for host, task in done if (found := task.result())}

    def close(self) -> None:
        """Cancel all lookups."""
        for task in self._running.values():
            task.cancel()

    def _begin(self, host: str) -> asyncio.Task[tuple[str, ...] | None]:
        task = self._running[host] = asyncio.get_running_loop().create_task(alone(partial(self._resolve, host)))
        task.add_done_callback(lambda _: self._running.pop(host, None))
        return task

    async def _resolve(self, host: str) -> tuple[str, ...]:
        async with self._slots:
            try:
                return await in_thread(lambda: _addresses_of(host), name="host")
            except (OSError, ValueError, RuntimeError):  # unknown host; invalid name; no thread can be started
                return ()


def _addresses_of(host: str) -> tuple[str, ...]:
    infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(info[4][0]) for info in infos))
