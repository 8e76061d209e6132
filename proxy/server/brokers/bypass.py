"""Finds out whether a broker sends clients past the proxy, by advertising the address at which the proxy reaches it.

In front of a single broker (``upstream``) addresses are not rewritten, so the broker must advertise the proxy. Only an
address that surely leads to the broker counts: others may be those of proxies elsewhere, or of a load balancer.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.proxy.kafka_client.own_address import ips_here, own_bind
from kafka_quota_proxy.proxy.server.brokers.host_lookups import Lookups
from kafka_quota_proxy.proxy.server.brokers.identity import leads_to

T = TypeVar("T")


async def bypassed(
    advertised: Iterable[Address],
    places: Mapping[T, frozenset[Address]],
    binds: Collection[Address],
    lookups: Lookups,
) -> dict[T, Address]:
    """Return the keys of ``places`` to whose brokers one of the ``advertised`` addresses leads directly, with it.

    ``places`` contains the addresses at which the proxy reaches each broker, and ``binds`` those at which the proxy
    listens.
    """
    ports = {place.port for some in places.values() for place in some}
    near = [address for address in advertised if address.port in ports]
    hosts = await lookups.find(address.host for address in near)
    found: dict[T, Address] = {}
    for address in near:
        if await own_bind(address, binds) is None:
            for key, some in places.items():
                if leads_to(address, some, hosts) or await _are_here(address, some):
                    found[key] = address
    return found


async def _are_here(address: Address, places: Iterable[Address]) -> bool:
    """Return whether ``address`` is one of this machine, and the broker listens on the same port of this machine."""
    same_port = [place for place in places if place.port == address.port]
    return bool(same_port and await ips_here(address) and any([await ips_here(place) for place in same_port]))
