"""The event loop that serves clients: uvloop's, with dials that do not wait long for silent IP addresses (RFC 8305)."""

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from typing import Any, Final

import uvloop

from kafka_quota_proxy.proxy.kafka_client.loop_thread import NEXT_AFTER_S

_MAX_REMEMBERED: Final = 1_024  # hosts

# As ``socket.connect`` takes it: the host, the port, and more for IPv6.
_SocketAddress = tuple[Any, ...]
# With its family.
_Destination = tuple[int, _SocketAddress]
_Connected = tuple[socket.socket, _SocketAddress]


class ServingLoop(uvloop.Loop):
    """The event loop that serves clients. A silent IP address of a host costs its dials a moment only.

    uvloop would try the addresses one after the other, each until the system gives up after two minutes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._answered: dict[tuple[str, int], _SocketAddress] = {}

    async def create_connection(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        local_addr: tuple[str, int] | None = None,
        **options: Any,  # noqa: ANN401 - those of uvloop
    ) -> tuple[Any, Any]:
        """Connect as uvloop does. If a host has several IP addresses, the first that answers is used.

        The next connection to this host and port begins with that address. The caller limits the time.

        Raises:
            OSError: The host was not found, or none of its IP addresses can be reached.
            UnicodeError: The host is no name in DNS.
        """
        connect: Callable[..., Coroutine[Any, Any, tuple[Any, Any]]] = partial(
            super().create_connection, protocol_factory, **options
        )
        if host is None or port is None or _is_ip(host):
            return await connect(host, port, local_addr=local_addr)
        if options.get("ssl") and options.get("server_hostname") is None:
            connect = partial(connect, server_hostname=host)
        found = await self.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        destinations = list(dict.fromkeys((int(family), to) for family, _, _, _, to in found))
        last = self._answered.get((host, port))
        destinations.sort(key=lambda one: one[1] != last)
        if len(destinations) == 1:
            return await connect(destinations[0][1][0], port, local_addr=local_addr)
        connected, answered = await _first_to_answer(destinations, local_addr)
        if len(self._answered) >= _MAX_REMEMBERED:
            self._answered.clear()
        self._answered[host, port] = answered
        return await connect(sock=connected)


async def _first_to_answer(destinations: list[_Destination], local_addr: tuple[str, int] | None) -> _Connected:
    """Connect to the destinations, each a moment after the one before it or when that one fails. Return the first.

    The sockets to all others are closed.
    """
    tasks: list[asyncio.Task[_Connected]] = []
    pending: set[asyncio.Task[_Connected]] = set()
    first: asyncio.Task[_Connected] | None = None
    failures: list[str] = []
    rest = iter(destinations)
    try:
        while first is None:
            if (destination := next(rest, None)) is not None:
                tasks.append(asyncio.get_running_loop().create_task(_try(destination, local_addr)))
                pending.add(tasks[-1])
            elif not pending:
                raise OSError("; ".join(failures) or "the host has no IP address")
            timeout_s = None if destination is None else NEXT_AFTER_S
            done, pending = await asyncio.wait(pending, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                error = task.exception()
                if error is None:
                    first = task
                elif isinstance(error, OSError):
                    failures.append(str(error))
                else:
                    raise error
        return first.result()
    finally:
        for task in tasks:
            task.cancel()
        for task, ended in zip(tasks, await asyncio.gather(*tasks, return_exceptions=True), strict=True):
            if task is not first and isinstance(ended, tuple):
                ended[0].close()


async def _try(destination: _Destination, local_addr: tuple[str, int] | None) -> _Connected:
    family, to = destination
    try:
        attempt = socket.socket(family, socket.SOCK_STREAM)
        try:
            attempt.setblocking(False)
            if local_addr is not None:
                attempt.bind(local_addr)
            await asyncio.get_running_loop().sock_connect(attempt, to)
        except BaseException:
            attempt.close()
            raise
    except OSError as error:
        raise OSError(f"{to[0]}: {_words(error)}") from error
    return attempt, to


def _words(error: OSError) -> str:
    # uvloop's own text names the address again. Errors of name resolution have negative numbers.
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)


def _is_ip(host: str) -> bool:
    with suppress(ValueError):
        return bool(ip_address(host))
    return False
