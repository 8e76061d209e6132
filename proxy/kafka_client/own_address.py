"""Finds out whether connections to an address would reach this proxy itself."""

import asyncio
import socket
from collections.abc import Collection, Iterable
from typing import Final

from kafka_quota_proxy.config.addresses import same_spelling
from kafka_quota_proxy.config.model import Address

_ANY_HOST: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104


async def own_bind(address: Address, binds: Collection[Address]) -> Address | None:
    """Return the listening address of this proxy that a connection to ``address`` would reach, or None.

    ``binds`` contains the addresses that this proxy listens on. The host name in ``address`` is resolved.
    """
    if not address.port or all(bind.port != address.port for bind in binds):
        return None
    return bind_of(address, await ips_here(address), binds)


async def ips_here(address: Address) -> set[str]:
    """Return those IP addresses of the host in ``address`` that belong to this machine."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        found = []
    return {str(ip[0]) for family, _, _, _, ip in found if _is_here(family, str(ip[0]))}


def bind_of(address: Address, here: Collection[str], binds: Iterable[Address]) -> Address | None:
    """Return which of ``binds`` a connection to ``address`` would reach, or None if it would reach none.

    ``here`` contains those IP addresses of the host in ``address`` that belong to this machine.
    """
    return next(
        (
            bind
            for bind in binds
            if same_spelling(bind) == same_spelling(address)
            or (bind.port == address.port and (bind.host in here or (bind.host in _ANY_HOST and here)))
        ),
        None,
    )


def _is_here(family: int, ip: str) -> bool:
    """Return whether an IP address belongs to this machine. If it does, a socket can be bound to it."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((ip, 0))
    except OSError:
        return False
    return True
