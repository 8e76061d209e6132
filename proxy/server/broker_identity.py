"""Which upstreams lead to the same broker, however they are written.

A broker is identified by its cluster's id and its node id. Upstreams with the same identity lead to the same broker. An
upstream without one leads to the broker that answers at the same place: at the address as it is written, or at the
numeric address that a connection has reached. Two numeric addresses behind one name may be two brokers, so they prove
nothing.

No I/O, no clock.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.proxy.quota.address_limits import canonical

# The places of an upstream that no connection has reached.
NOWHERE: Final[frozenset[Address]] = frozenset()


class BrokerIdentity(NamedTuple):
    """A broker of a cluster."""

    cluster_id: str
    node_id: int

    def __str__(self) -> str:
        return f"node {self.node_id} of cluster {self.cluster_id}"


class UpstreamLocation(NamedTuple):
    """The known facts about where an upstream leads. ``peers``: the numeric addresses that connections reached."""

    address: Address
    peers: frozenset[Address] = NOWHERE
    identity: BrokerIdentity | None = None

    @property
    def places(self) -> frozenset[Address]:
        """The addresses that belong to this broker alone, as far as is known."""
        return self.peers | {self.address} if len(self.peers) == 1 else frozenset({self.address})


def group_by_broker(upstreams: Sequence[UpstreamLocation]) -> list[list[int]]:
    """Return the indexes of each broker's upstreams, in order; brokers are ordered by their first upstream."""
    of_place: dict[Address, set[BrokerIdentity]] = {}
    for upstream in upstreams:
        if upstream.identity is not None:
            for place in upstream.places:
                of_place.setdefault(place, set()).add(upstream.identity)
    found: dict[object, list[int]] = {}
    unknown = [index for index, upstream in enumerate(upstreams) if upstream.identity is None]
    for one in _connected({index: upstreams[index].places for index in unknown}):
        identities = {
            identity for index in one for place in upstreams[index].places for identity in of_place.get(place, ())
        }
        for index in one:
            # If several brokers share the places, the address as it is written decides.
            key = identities if len(identities) == 1 else {upstreams[index].address} if identities else {-one[0] - 1}
            found.setdefault(next(iter(key)), []).append(index)
    for index, upstream in enumerate(upstreams):
        if upstream.identity is not None:
            found.setdefault(upstream.identity, []).append(index)
    return sorted(sorted(indexes) for indexes in found.values())


def node_at(
    brokers: Mapping[int, Address], places: frozenset[Address], hosts: Mapping[str, Sequence[str]]
) -> int | None:
    """Return the one broker that advertises one of ``places``; None if there is none, or more than one.

    Args:
        brokers: The addresses that brokers advertise, by node id.
        places: Where connections of the proxy lead, or where clients connect to.
        hosts: The numeric addresses of host names.
    """
    nodes = {node_id for node_id, address in brokers.items() if not places.isdisjoint(_spellings(address, hosts))}
    return nodes.pop() if len(nodes) == 1 else None


def _spellings(address: Address, hosts: Mapping[str, Sequence[str]]) -> set[Address]:
    found = (address.host, *hosts.get(address.host, ()))
    return {address, *(Address(host=canonical(host), port=address.port) for host in found)}


def _connected(places: Mapping[int, frozenset[Address]]) -> list[list[int]]:
    """Return the connected groups of indexes: within a group, each index shares a place with another."""
    left, found = dict(places), []
    while left:
        first = next(iter(left))
        reached, group = set(left.pop(first)), [first]
        while near := [index for index, own in left.items() if not reached.isdisjoint(own)]:
            for index in near:
                reached |= left.pop(index)
            group += near
        found.append(group)
    return found
