"""Where hosts are that have a limit: asked of the system, and again of those that it does not know."""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import suppress
from time import monotonic_ns
from typing import Final

from proxy.quota_store.addresses import Addresses
from proxy.quota_store.hosts import MissingHosts

log = logging.getLogger(__name__)

# The system looks for some at a time. What it has not found by then is not known.
_AT_ONCE: Final = 100
_LOOKUP_S: Final = 5.0
_NAMED: Final = 10  # in a line of the log


async def find_hosts(hosts: Iterable[str]) -> Addresses:
    """Return the addresses of hosts, those that have any and were found in some seconds."""
    loop = asyncio.get_running_loop()
    found: dict[str, tuple[str, ...]] = {}

    async def look_up(host: str) -> None:
        with suppress(OSError, UnicodeError):
            infos = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            found[host] = tuple(dict.fromkeys(str(info[4][0]) for info in infos))

    names = sorted(hosts)
    with suppress(TimeoutError):
        async with asyncio.timeout(_LOOKUP_S):
            for begin in range(0, len(names), _AT_ONCE):
                await asyncio.gather(*(look_up(host) for host in names[begin : begin + _AT_ONCE]))
    return found


class HostFinder:
    """Looks for hosts until they are found.

    Args:
        on_found: Is told where some are; it is to say ``follow`` then.
    """

    def __init__(self, *, on_found: Callable[[Addresses], None]) -> None:
        self._on_found = on_found
        self._missing = MissingHosts()
        self._said: set[str] = set()
        self._has_changed = asyncio.Event()

    def follow(self, missing: Set[str]) -> None:
        """Look for these, and for no others."""
        self._missing.follow(missing, now_ms=_now_ms())
        self._said &= missing
        self._has_changed.set()

    async def run(self) -> None:
        """Look, until cancelled."""
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
        found = await find_hosts(hosts)
        self._say([host for host in hosts if host not in found and host not in self._said])
        if found:
            try:
                self._on_found(found)
            except Exception:
                # Of a fault here no client is to hear anything but that a limit is late.
                log.exception("the limits of %s could not be put in force", ", ".join(found))

    def _say(self, lost: Sequence[str]) -> None:
        if lost:
            self._said.update(lost)
            more = f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
            log.warning(
                "no address is known of %s%s: the quotas of these hosts do not hold; they are looked for again",
                ", ".join(lost[:_NAMED]), more,
            )  # fmt: skip


def _now_ms() -> int:
    return monotonic_ns() // 1_000_000
