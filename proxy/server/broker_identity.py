"""Which ways lead to one broker, whatever it is called.

A broker is one cluster's id and one node id of that cluster. A way of which both are known belongs to that broker and
to no other. A way of which they are not known belongs to the broker that answers at the same place: at the address as
it is written, or at the numeric address that a connection has led to. Two numeric addresses behind one name may be two
brokers, so they say nothing.

No I/O, no clock.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.proxy.quota.address_limits import canonical

# What a way leads to while nothing is known of it.
NOWHERE: Final[frozenset[Address]] = frozenset()


class BrokerIdentity(NamedTuple):
    """A broker of a cluster."""

    cluster_id: str
    node_id: int

    def __str__(self) -> str:
        return f"node {self.node_id} of cluster {self.cluster_id}"


class UpstreamLocation(NamedTuple):
    """A way to a broker.

    Attributes:
        address: As the file, or the cluster, writes it.
        peers: Where connections of this way have led to, in numbers.
        identity: Of the broker at its end; None while it is not known.
    """

    address: Address
    peers: frozenset[Address] = NOWHERE
    identity: BrokerIdentity | None = None

    @property
    def places(self) -> frozenset[Address]:
        """Where the way is known to lead, and to nowhere else."""
        return self.peers | {self.address} if len(self.peers) == 1 else frozenset({self.address})


def group_by_broker(ways: Sequence[UpstreamLocation]) -> list[list[int]]:
    """Return the indexes of the ways to each broker: in their order, and so are the brokers by their first ways."""
    of_place: dict[Address, set[BrokerIdentity]] = {}
    for way in ways:
        if way.identity is not None:
            for place in way.places:
                of_place.setdefault(place, set()).add(way.identity)
    found: dict[object, list[int]] = {}
    unknown = [index for index, way in enumerate(ways) if way.identity is None]
    for one in _connected({index: ways[index].places for index in unknown}):
        identities = {identity for index in one for place in ways[index].places for identity in of_place.get(place, ())}
        for index in one:
            # Places that several brokers share do not tell them apart; then the address does, as it is written.
            key = identities if len(identities) == 1 else {ways[index].address} if identities else {-one[0] - 1}
            found.setdefault(next(iter(key)), []).append(index)
    for index, way in enumerate(ways):
        if way.identity is not None:
            found.setdefault(way.identity, []).append(index)
    return sorted(sorted(indexes) for indexes in found.values())


def node_at(
    brokers: Mapping[int, Address], places: frozenset[Address], hosts: Mapping[str, Sequence[str]]
) -> int | None:
    """Return the one broker that is told to be at one of ``places``; None where there is none, or more than one.

    Args:
        brokers: What a broker says of its cluster: addresses by node id.
        places: Where a connection leads to, or where its clients come to.
        hosts: Numeric addresses of host names.
    """
    nodes = {node_id for node_id, address in brokers.items() if not places.isdisjoint(_spellings(address, hosts))}
    return nodes.pop() if len(nodes) == 1 else None


def _spellings(address: Address, hosts: Mapping[str, Sequence[str]]) -> set[Address]:
    found = (address.host, *hosts.get(address.host, ()))
    return {address, *(Address(host=canonical(host), port=address.port) for host in found)}


def _connected(places: Mapping[int, frozenset[Address]]) -> list[list[int]]:
    """Return indexes in group_by_broker: those in one share places, each with another."""
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
