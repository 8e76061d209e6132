"""Finds out which of the brokers that a Metadata response lists has sent it, by the places of its sender.

A place is the address of an upstream as it is written except for a final dot, or the numeric address that connections
have reached. If connections have reached several numeric addresses, these are not used, because each may belong to
another broker.

This module does no I/O and reads no clock.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafka_quota_proxy.config.addresses import canonical, same_spelling
from kafka_quota_proxy.config.model import Address


class BrokerIdentity(NamedTuple):
    """Identifies a broker by the id of its cluster and its node id."""

    cluster_id: str
    node_id: int

    def __str__(self) -> str:
        return f"node {self.node_id} of cluster {self.cluster_id}"


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
