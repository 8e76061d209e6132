"""Whether an address leads to this proxy itself."""

import asyncio
import socket
from collections.abc import Collection, Iterable
from typing import Final

from kafka_quota_proxy.config.model import Address

_ANY_HOST: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104


async def own_bind(address: Address, binds: Collection[Address]) -> Address | None:
    """Return which of the proxy's ``binds`` an address leads to; None where it leads to none, or nobody knows where.

    Only where a port is the same is the host looked up, in a thread.
    """
    if not address.port or all(bind.port != address.port for bind in binds):
        return None
    try:
        found = await asyncio.get_running_loop().getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        found = []
    here = {str(to[0]) for family, _, _, _, to in found if _is_here(family, str(to[0]))}
    return bind_of(address, here, binds)


def bind_of(address: Address, here: Collection[str], binds: Iterable[Address]) -> Address | None:
    """Return the bind that an address leads to; ``here`` has those IP addresses of its host that this machine has."""
    return next(
        (
            bind
            for bind in binds
            if bind.port == address.port
            and (bind.host == address.host or bind.host in here or (bind.host in _ANY_HOST and here))
        ),
        None,
    )


def _is_here(family: int, ip: str) -> bool:
    """Whether this machine has the address: only its own can be bound."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((ip, 0))
    except OSError:
        return False
    return True
