"""What all simulated clients share: metadata, connections to brokers, back-off, and an orderly end."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.clients.connection import Connection, Setting, ignore
from tests.simulation.clients.greeting import greet
from tests.simulation.wire import transfer
from tests.simulation.wire.api import AnyApi
from tests.simulation.wire.common import NO_TOPIC_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.simulation.ledger import Exchange
    from tests.simulation.scheduler import Event
    from tests.simulation.world import World

BOOTSTRAP: Final = -1
# The connection to a broker as a group's coordinator is another than that for data, as in Java.
COORDINATOR: Final = 1 << 30
_PATIENCE_MS: Final = 5_000.0
_FOREVER_MS: Final = 1e9


class Client(ABC):
    """A client with metadata of its topics and a connection to each broker that it needs.

    Attributes:
        connections: The open ones, by the node id, or ``COORDINATOR`` + the node id, or ``BOOTSTRAP``.
        addresses: Where each broker is, as the metadata says.
        leaders: The leader of each partition, by topic and partition; -1 is none.
        controller: The node id of the broker that takes changes of topics and quotas.
        topic_ids: The id of each topic.
        on_lost: Called with the key of each connection that is lost.
        is_stopping: Whether ``stop`` was called.
    """

    def __init__(self, world: "World", setting: Setting, topics: "Sequence[str]" = ()) -> None:
        self.world = world
        self.random = world.random_of(setting.name)
        self.setting = setting
        self.profile = setting.profile
        self.topics = list(topics)
        self.connections: dict[int, Connection] = {}
        self.addresses: dict[int, tuple[str, int]] = {}
        self.leaders: dict[tuple[str, int], int] = {}
        self.controller = -1
        self.topic_ids: dict[str, bytes] = {}
        self.topic_names: dict[bytes, str] = {}
        self.on_lost: list[Callable[[int], None]] = []
        self.is_started = self.is_stopping = False
        self._failures: dict[int, int] = {}
        self._retry_at_ms: dict[int, float] = {}
        self._metadata_due_ms = 0.0
        self._metadata_failures = 0
        self._is_asking = False
        self._is_pumping = self._pumps_again = False
        self._wake: Event | None = None
        self._wake_ms = 0.0
        self._patience: Event | None = None

    # -- the life of an actor --

    def start(self) -> None:
        """Connect and begin to work."""
        self.is_started = True
        self.pump()

    def stop(self, patience_ms: float = _PATIENCE_MS) -> None:
        """Send nothing new, wait ``patience_ms`` for the responses that are due, then close."""
        if self.is_stopping:
            return
        self.is_stopping = True
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        if self.setting.is_patient:
            patience_ms = _FOREVER_MS
        elif self.setting.habits.stalls:  # what it has not sent to the end stays so while others wait
            patience_ms *= 12
        self._patience = self.world.call_later(patience_ms, self._close_all)
        half_closes = self.setting.habits.half_closes
        if half_closes:
            for connection in list(self.connections.values()):
                if self.random.random() < half_closes:
                    connection.half_close()
        self.pump()

    @property
    def is_done(self) -> bool:
        """Whether the client has stopped and has no connection left."""
        return self.is_stopping and not self.connections

    def _close_all(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        for connection in list(self.connections.values()):
            connection.close()

    # -- what a kind of client does --

    @abstractmethod
    def work(self) -> None:
        """Send what can be sent now. Called after each change."""

    def farewell(self) -> bool:
        """Send the last requests, once all others are answered. Return whether there were any."""
        return False

    def needs_metadata(self) -> bool:
        """Return whether the client asks for metadata at all."""
        return True

    def pump(self) -> None:
        """Do all work that can be done now."""
        if self._is_pumping:
            self._pumps_again = True
            return
        self._is_pumping = True
        try:
            for _ in range(100):
                self._pumps_again = False
                self._pump_once()
                if not self._pumps_again:
                    break
        finally:
            self._is_pumping = False

    def _pump_once(self) -> None:
        if self.is_stopping:
            if any(connection.in_flight for connection in self.connections.values()):
                return
            if self._patience is None or not self.farewell():
                self._close_all()
            return
        if not self.is_started:
            return
        now_ms = self.world.clock.now_ms
        if not self._is_asking and self.needs_metadata():
            if now_ms >= self._metadata_due_ms:
                self._ask_metadata()
            else:
                self.wake_in(self._metadata_due_ms - now_ms)
        self.work()

    def wake_in(self, delay_ms: float) -> None:
        """Call ``pump`` after ``delay_ms`` at the latest. As there is one alarm, each pump sets it anew."""
        if self.is_stopping:
            return
        at_ms = self.world.clock.now_ms + delay_ms
        if self._wake is not None:
            if self._wake_ms <= at_ms:
                return
            self._wake.cancel()
        self._wake_ms = at_ms
        self._wake = self.world.call_later(max(delay_ms, 0.0) + 0.001, self._woken)

    def _woken(self) -> None:
        self._wake = None
        self.pump()

    # -- connections --

    def version(self, connection: Connection, api: AnyApi) -> int:
        """Return the version of an API that both sides speak, and the simulation too."""
        api_key, known = api.key, api.versions
        version: int = min(self.profile.versions.get(api_key, known[0]), known[-1])
        if connection.versions is not None:
            version = min(version, connection.versions.get(api_key, version))
        return max(version, int(known[0]))

    def connection_to(self, key: int) -> Connection | None:
        """Return the connection if it can send now. Else connect, if the back-off allows, and return None."""
        connection = self.connections.get(key)
        if connection is None:
            self._connect(key)
            return None
        return connection if connection.can_send else None

    def _connect(self, key: int) -> None:
        now_ms = self.world.clock.now_ms
        retry_at_ms = self._retry_at_ms.get(key, 0.0)
        if now_ms < retry_at_ms:
            self.wake_in(retry_at_ms - now_ms)
            return
        node: int | None = None
        if key == BOOTSTRAP:
            address = self.random.choice(self.setting.bootstrap)
        else:
            node = key - COORDINATOR if key >= COORDINATOR else key
            if node not in self.addresses:
                self.refresh_metadata()
                return
            host, port = self.addresses[node]
            address = host, port + self.setting.port_offset
        self.connections[key] = Connection(self.world, self.setting, self, address, node, key, greet)

    def changed(self, connection: Connection) -> None:
        """Go on."""
        if self._failures and connection.is_greeted:
            self._failures.pop(connection.key, None)
        self.pump()

    def lost(self, connection: Connection) -> None:
        """Back off, and look where the partitions are now."""
        key = connection.key
        del self.connections[key]
        if not self.is_stopping:
            profile = self.profile
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            backoff_ms = min(
                profile.reconnect_backoff_ms * 2 ** min(failures - 1, 20), profile.reconnect_backoff_max_ms
            )
            backoff_ms *= self.random.uniform(0.8, 1.2)
            self._retry_at_ms[key] = self.world.clock.now_ms + backoff_ms
            self.refresh_metadata()
            self.wake_in(backoff_ms)
            for tell in self.on_lost:
                tell(key)
        self.pump()

    # -- metadata --

    def refresh_metadata(self) -> None:
        """Ask for metadata soon, not before the back-off."""
        backoff_ms = self.retry_backoff_ms(self._metadata_failures)
        due_ms = self.world.clock.now_ms + backoff_ms
        if due_ms < self._metadata_due_ms:
            self._metadata_due_ms = due_ms
            self.wake_in(backoff_ms)

    def retry_backoff_ms(self, failures: int) -> float:
        """Return how long to wait before a retry."""
        profile = self.profile
        return min(profile.retry_backoff_ms * float(2 ** min(failures, 20)), profile.retry_backoff_max_ms)

    def any_connection(self) -> Connection | None:
        """Return a connection that can send now, else connect to some broker and return None."""
        usable = [connection for connection in self.connections.values() if connection.can_send]
        if usable:
            return usable[0] if len(usable) == 1 else self.random.choice(usable)
        key = BOOTSTRAP
        if self.setting.forgets_bootstrap and self.addresses:
            key = min(self.addresses, key=lambda node: self._retry_at_ms.get(node, 0.0))
        if key not in self.connections:
            self._connect(key)
        return None

    def _ask_metadata(self) -> None:
        connection = self.any_connection()
        if connection is None:
            return
        self._is_asking = True
        topics = [transfer.AskedTopic(topic) for topic in self.topics]
        self.ask(connection, transfer.metadata, self._told, self._not_told, topics=topics)

    def _not_told(self, _exchange: "Exchange") -> None:
        self._is_asking = False
        self._metadata_failures += 1
        self._metadata_due_ms = self.world.clock.now_ms + self.retry_backoff_ms(self._metadata_failures)
        self.wake_in(self.retry_backoff_ms(self._metadata_failures))

    def _told(self, result: transfer.MetadataResponse, _exchange: "Exchange") -> None:
        self._is_asking = False
        now_ms = self.world.clock.now_ms
        is_whole = self._take_metadata(result)
        self._metadata_failures = 0 if is_whole else self._metadata_failures + 1
        wait_ms = self.profile.metadata_age_ms if is_whole else self.retry_backoff_ms(self._metadata_failures)
        self._metadata_due_ms = now_ms + wait_ms
        self.wake_in(wait_ms)

    def _take_metadata(self, result: transfer.MetadataResponse) -> bool:
        is_whole = bool(result.brokers)
        self.controller = result.controller_id
        for broker in result.brokers:
            self.addresses[broker.node_id] = (broker.host, broker.port)
        for topic in result.topics:
            if topic.error_code or topic.name is None:
                is_whole = False
                continue
            if topic.topic_id != NO_TOPIC_ID:
                self.topic_ids[topic.name] = topic.topic_id
                self.topic_names[topic.topic_id] = topic.name
            for partition in topic.partitions:
                self.leaders[topic.name, partition.partition] = partition.leader
                if partition.leader < 0:
                    is_whole = False
        return is_whole

    def ask(
        self,
        connection: Connection,
        api: AnyApi,
        on_response: "Callable[[Any, Exchange], None]",
        on_failure: "Callable[[Exchange], None]" = ignore,
        *,
        detail: Any = None,
        timeout_ms: float = 0.0,
        **fields: Any,
    ) -> None:
        """Send a request that has a response, in the version that both sides speak."""
        connection.ask(api, self.version(connection, api), on_response, on_failure, detail=detail,
                       timeout_ms=timeout_ms, fields=fields)  # fmt: skip
