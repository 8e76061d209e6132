"""All brokers of one cluster, and the ports of each listener in front of them.

``see`` is the one door through which news of brokers come: from a session, before the response that told of them goes
on to its client, and from asking the cluster every few seconds. A broker that joins has its port before any client hears
of it, because the port is bound at once, in the same step.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from itertools import cycle
from time import monotonic_ns
from typing import Final

from config.model import Address, Cluster
from protocol.errors import ProtocolError
from proxy.account import Listening, Policy
from proxy.addresses import Addresses
from proxy.cluster import Membership
from proxy.connection import ClientConnection, Gate, Port
from proxy.discovery import ask
from proxy.quota.broker import BrokerQuotas
from proxy.upstream import Upstream

log = logging.getLogger(__name__)

_ASK_EVERY_S: Final = 5.0
_ASK_AGAIN_S: Final = 1.0


class Front:
    """One listener in front of the cluster: a bootstrap port and a port for each broker."""

    def __init__(self, port: Port, bind_host: str, cluster: Cluster, policy: Policy, fleet: "Fleet") -> None:
        self.port = port
        self.policy = policy
        self.membership = Membership(cluster)
        self.addresses = Addresses(fleet.see)
        self.gates: dict[int, Gate] = {}
        self._bind_host = bind_host
        self._fleet = fleet
        self._servers: dict[int, asyncio.Server] = {}
        self._turn = 0

    def accept(self) -> ClientConnection:
        """Return the protocol of a client at the bootstrap port: it is led to one broker after the other."""
        gates = [gate for gate in self.gates.values() if gate.upstream.is_reachable] or list(self.gates.values())
        self._turn += 1
        gate = gates[self._turn % len(gates)] if gates else self._gate(self._fleet.next_bootstrap())
        return gate.accept()

    def follow(self, brokers: Mapping[int, Address], *, is_all: bool, now_ms: int) -> None:
        """Open and close ports, so that there is one for each broker."""
        changes = self.membership.see(brokers, is_all=is_all, now_ms=now_ms)
        for node_id in changes.without_port:
            cluster = self.membership.cluster
            log.error(
                "listener %s: broker %d has no port, broker_ports are %d-%d (first port + node id): "
                "its partitions are without a leader for clients; give it more ports",
                self.port.name, node_id, cluster.first_port, cluster.last_port,
            )  # fmt: skip
        for node_id, address in changes.joined.items():
            self._open(node_id, address)
        for node_id in changes.left:
            self._close(node_id)

    def close(self) -> None:
        """Take no more clients."""
        for server in self._servers.values():
            server.close()

    def _open(self, node_id: int, address: Address) -> None:
        port = self.membership.cluster.port_of(node_id)
        if port is None:
            return
        try:
            bound = self._fleet.listen(Address(host=self._bind_host, port=port))
        except OSError as error:
            log.error("listener %s: no port for broker %d: %s", self.port.name, node_id, error)  # noqa: TRY400
            self.membership.brokers.pop(node_id)  # so that it is tried again
            return
        gate = self.gates[node_id] = self._gate(self._fleet.upstream(node_id, address))
        self.addresses.told[node_id] = (self.membership.cluster.advertised_host.encode(), port)
        self._fleet.serve(bound, gate, on_serving=lambda server: self._servers.__setitem__(node_id, server))
        log.info("listening on %s:%d (%s) -> broker %d at %s", self._bind_host, port, self.port.name, node_id, address)

    def _close(self, node_id: int) -> None:
        self.gates.pop(node_id, None)
        self.addresses.told.pop(node_id, None)
        server = self._servers.pop(node_id, None)
        if server is not None:
            server.close()
        log.info("listener %s: broker %d has left", self.port.name, node_id)

    def _gate(self, upstream: Upstream) -> Gate:
        return Gate(self.port, upstream, Listening(self.policy, upstream.quotas, self.port.counters, self.addresses))
