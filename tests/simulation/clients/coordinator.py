"""Finds the broker that coordinates a group."""

from typing import TYPE_CHECKING

from tests.simulation.clients.client import COORDINATOR, Client
from tests.simulation.wire import groups

if TYPE_CHECKING:
    from tests.simulation.clients.connection import Connection
    from tests.simulation.ledger import Exchange

LOADING = 14
NOT_AVAILABLE = 15
NOT_COORDINATOR = 16


class Coordinator:
    """The coordinator of one group, as a client knows it. ``node`` is None as long as it is not found."""

    def __init__(self, client: Client, group: str) -> None:
        self.node: int | None = None
        self._client = client
        self._group = group
        self._is_asking = False
        self._due_ms = 0.0
        client.on_lost.append(self._lost)

    def connection(self) -> "Connection | None":
        """Return a connection to the coordinator that can send now. Else find it, or connect, and return None."""
        client = self._client
        if self.node is None:
            self._find()
            return None
        return client.connection_to(self._key(self.node))

    def _key(self, node: int) -> int:
        return node if self._client.profile.shares_coordinator else COORDINATOR + node

    def _lost(self, key: int) -> None:
        if self.node is not None and key == self._key(self.node):
            self.forget()

    def forget(self) -> None:
        """Find the coordinator anew: it is another one now, or it is out of reach."""
        self.node = None
        self._due_ms = self._client.world.clock.now_ms + self._client.profile.retry_backoff_ms

    def _find(self) -> None:
        client = self._client
        now_ms = client.world.clock.now_ms
        if self._is_asking:
            return
        if now_ms < self._due_ms:
            client.wake_in(self._due_ms - now_ms)
            return
        connection = client.any_connection()
        if connection is None:
            return
        self._is_asking = True
        client.ask(connection, groups.find_coordinator, self._found, self._not_found, keys=[self._group])

    def _not_found(self, _exchange: "Exchange") -> None:
        self._is_asking = False
        self.forget()
        self._client.wake_in(self._client.profile.retry_backoff_ms)

    def _found(self, result: groups.FindCoordinatorResponse, exchange: "Exchange") -> None:
        coordinator = result.coordinators[0]
        if coordinator.error_code:
            self._not_found(exchange)
            return
        self._is_asking = False
        self.node = coordinator.node_id
        self._client.addresses[coordinator.node_id] = (coordinator.host, coordinator.port)
