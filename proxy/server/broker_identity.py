"""Finds out which of the addresses that the proxy connects to lead to the same broker, however they are written.

Such an address is an upstream. A broker is identified by its cluster's id and its node id. If this identity is unknown
for the broker at an upstream, the places of the upstream are compared with those of other upstreams. A place is the
address as it is written except for a final dot, or the numeric address that connections have reached. If connections
have reached several numeric addresses, these are not used, because each may belong to another broker.

This module does no I/O and reads no clock.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kafka_quota_proxy.config.addresses import canonical, same_spelling
from kafka_quota_proxy.config.model import Address

# The numeric addresses of an upstream that no connection has reached yet.
NOWHERE: Final[frozenset[Address]] = frozenset()


class BrokerIdentity(NamedTuple):
    """Identifies a broker by the id of its cluster and its node id."""

    cluster_id: str
    node_id: int

    def __str__(self) -> str:
        return f"node {self.node_id} of cluster {self.cluster_id}"


class UpstreamLocation(NamedTuple):
    """Holds what is known about the broker to which an upstream leads.

    ``peers`` contains the numeric addresses that connections to the upstream have reached.
    """

    address: Address
    peers: frozenset[Address] = NOWHERE
    identity: BrokerIdentity | None = None

    @property
    def places(self) -> frozenset[Address]:
        """The configured address, and its numeric address if connections have reached only one."""
        written = same_spelling(self.address)
        return self.peers | {written} if len(self.peers) == 1 else frozenset({written})


def group_by_broker(upstreams: Sequence[UpstreamLocation]) -> list[list[int]]:
    """Group upstreams by broker. Return the indexes of the upstreams in each group, in ascending order."""
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
            # If several identified brokers share the places, the address as it is written decides.
            written = same_spelling(upstreams[index].address)
            key = identities if len(identities) == 1 else {written} if identities else {-one[0] - 1}
            found.setdefault(next(iter(key)), []).append(index)
    for index, upstream in enumerate(upstreams):
        if upstream.identity is not None:
            found.setdefault(upstream.identity, []).append(index)
    return sorted(sorted(indexes) for indexes in found.values())


def node_at(
    brokers: Mapping[int, Address], places: frozenset[Address], hosts: Mapping[str, Sequence[str]]
) -> int | None:
    """Return the node id of the broker that advertises one of the addresses in ``places``.

    Return None if no broker or several brokers do. ``brokers`` contains the advertised addresses by node id. ``hosts``
    contains the numeric addresses of host names.
    """
    nodes = {node_id for node_id, address in brokers.items() if leads_to(address, places, hosts)}
    return nodes.pop() if len(nodes) == 1 else None


def leads_to(address: Address, places: frozenset[Address], hosts: Mapping[str, Sequence[str]]) -> bool:
    """Return whether ``address`` is one of ``places``. ``hosts`` contains the numeric addresses of host names."""
    return not places.isdisjoint(_spellings(address, hosts))


def _spellings(address: Address, hosts: Mapping[str, Sequence[str]]) -> set[Address]:
    found = (address.host, *hosts.get(address.host, ()))
    return {address, same_spelling(address), *(Address(host=canonical(host), port=address.port) for host in found)}


def _connected(places: Mapping[int, frozenset[Address]]) -> list[list[int]]:
    """Group the indexes of upstreams that have a place in common, directly or through other upstreams."""
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
