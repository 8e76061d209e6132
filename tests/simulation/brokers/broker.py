"""A simulated broker: its listeners, its connections, and what can go wrong with it."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from tests.simulation.brokers.connection import Connection
from tests.simulation.brokers.handlers import HANDLERS
from tests.simulation.wire.common import Leader, NodeEndpoint, RequestHeader, WireError

if TYPE_CHECKING:
    from tests.simulation.brokers.cluster import Cluster
    from tests.simulation.brokers.fetch_sessions import Session
    from tests.simulation.brokers.log import Batch
    from tests.simulation.brokers.partition import Partition
    from tests.simulation.brokers.share import MemberKey, ShareSession
    from tests.simulation.network import End, Listening

_API_VERSIONS: Final = 18
CLIENT: Final = "client"  # the listener that clients come to
# LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, KAFKA_STORAGE_ERROR: a client tries again.
_RETRIABLE: Final = (5, 6, 19, 56)


class Broker:
    """A broker. The attributes are what the faults of a world set.

    Attributes:
        is_up: Whether it runs.
        hosts: Its two names. It moves from one to the other.
        is_stalled: Whether it reads and writes nothing, as in a long pause of its garbage collector.
        disk_ms: The range of the time that an append takes; 0 and 0 if it is done at once.
        throttle_share: The share of its responses that have a throttle time of its own, drawn from ``throttle_ms``.
        refusal_share: The share of the partitions of Produce and Fetch that it refuses with an error.
        cuts_next_response: Whether it closes the next connection that it answers, within the response.
        misnumbers_next_response: Whether its next response has the correlation id of no request.
        max_sessions: How many fetch sessions it keeps (max.incremental.fetch.session.cache.slots).
        host: Where clients reach it.
        started_ms: When it last began to run.
        stalled_until_ms: When its last stall ends, or has ended.
        held: Responses that wait for the end of a stall.
    """

    def __init__(self, cluster: "Cluster", node_id: int) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.node_id = node_id
        self.host = f"10.0.1.{node_id}"
        self.random = self.world.random_of(f"broker {node_id}")
        self.is_up = False
        self.is_stalled = False
        self.disk_ms = (0.0, 0.0)
        self.throttle_share = 0.0
        self.throttle_ms = (1, 3_000)
        self.refusal_share = 0.0
        self.cuts_next_response = self.misnumbers_next_response = False
        self.max_sessions = 1_000
        self.sessions: dict[int, Session] = {}
        self.share_sessions: dict[MemberKey, ShareSession] = {}
        self.held: list[tuple[Connection, RequestHeader, bytes, int, Sequence[Batch]]] = []
        self.connections: dict[Connection, None] = {}
        self._listening: list[Listening] = []
        self._stalls = 0
        self.stalled_until_ms = self.started_ms = 0.0
        self._has_moved = False
        self.hosts = self.host, f"10.0.4.{node_id}"  # it has two names
        for listener in cluster.listeners.values():
            for host in self.hosts:
                self.world.broker_addresses[host, listener.port] = node_id

    def __repr__(self) -> str:
        return f"broker {self.node_id}"

    # -- its life --

    def start(self) -> None:
        """Listen, and lead what was led before, unless another broker does now."""
        if self.is_up:
            return
        self.is_up = True
        self.started_ms = self.world.clock.now_ms
        for name, listener in self.cluster.listeners.items():
            for host in (self.host,) if self._has_moved and name == CLIENT else self.hosts:
                self._listening.append(self.world.network.listen((host, listener.port), self._accepting(name)))
        self.cluster.broker_up(self.node_id)
        self.world.story.tell(f"broker {self.node_id} starts")

    def crash(self, *, loses_tail: bool = False) -> None:
        """Die: reset all connections and refuse new ones.

        With ``loses_tail`` the end of its logs is lost: what it has not acknowledged and nobody else has.
        """
        if not self.is_up:
            return
        self.is_up = self.is_stalled = False
        self.stalled_until_ms = min(self.stalled_until_ms, self.world.clock.now_ms)
        self.world.story.tell(f"broker {self.node_id} crashes{' and loses the end of its logs' if loses_tail else ''}")
        for listening in self._listening:
            listening.close()
        self._listening.clear()
        self.held.clear()
        self.sessions.clear()
        self.share_sessions.clear()
        for connection in list(self.connections):
            connection.close(is_clean=False)
        self.connections.clear()
        if loses_tail:
            for partition in self.cluster.partitions.values():
                if partition.leader == self.node_id:
                    self._lose_tail(partition)
        self.cluster.broker_down(self.node_id)

    @property
    def has_moved_away(self) -> bool:
        """Whether it is not where it was at first."""
        return self.host != self.hosts[0]

    def move(self) -> None:
        """Die. From its next start on, clients reach it under its other name only."""
        self.crash()
        self._has_moved = True
        first, second = self.hosts
        self.host = second if self.host == first else first
        port = self.cluster.listeners[CLIENT].port
        self.cluster.advertised[self.node_id, CLIENT] = (self.host, port)
        self.world.story.tell(f"broker {self.node_id} moves to {self.host}")

    def _lose_tail(self, partition: "Partition") -> None:
        keep = max(
            state.log_end if node_id != self.node_id else partition.high_watermark
            for node_id, state in partition.states.items()
        )
        for batch in reversed(partition.log.batches):
            if batch.is_acknowledged or batch.base_offset < keep:
                keep = max(keep, batch.next_offset)
                break
        self.cluster.note_lost(partition, partition.truncate(keep))

    def stall(self, for_ms: float) -> None:
        """Read and write nothing for a while."""
        if not self.is_up:
            return
        self._stalls += 1
        self.is_stalled = True
        self.stalled_until_ms = max(self.stalled_until_ms, self.world.clock.now_ms + for_ms)
        self.world.story.tell(f"broker {self.node_id} stalls for {for_ms:.0f} ms")
        self.world.call_later(for_ms, self._go_on, self._stalls)

    def _go_on(self, stall: int) -> None:
        if stall != self._stalls or not self.is_stalled:
            return
        self.is_stalled = False
        self.stalled_until_ms = self.world.clock.now_ms
        held, self.held = self.held, []
        for connection, header, response, throttle_ms, batches in held:
            connection.respond(header, response, throttle_ms=throttle_ms, acknowledges=batches)
        for connection in list(self.connections):
            if not (connection.has_request or connection.is_muted):
                connection.read_on_if_buffered()

    def heal(self) -> None:
        """End all faults, and start if it is down."""
        self.disk_ms = (0.0, 0.0)
        self.throttle_share = self.refusal_share = 0.0
        self.cuts_next_response = self.misnumbers_next_response = False
        self._go_on(self._stalls)
        self.start()

    def drop_connections(self, *, is_clean: bool = False) -> None:
        """Close all connections and keep running."""
        for connection in list(self.connections):
            connection.close(is_clean=is_clean)

    def _accepting(self, listener: str) -> "Callable[[End], Connection]":
        def accept(end: "End") -> Connection:
            connection = Connection(self, end, listener)
            self.connections[connection] = None
            return connection

        return accept

    # -- requests --

    def handle(self, connection: Connection, header: RequestHeader, frame: bytes) -> None:
        """Answer a request, now or later.

        Raises:
            WireError: If the bytes are not a request.
        """
        versions = self.cluster.versions.get(header.api_key)
        if header.api_key != _API_VERSIONS and (
            versions is None or not versions[0] <= header.api_version <= versions[1]
        ):
            self.world.story.tell(
                f"broker {self.node_id} closes a connection: it lacks API {header.api_key} v{header.api_version}"
            )
            connection.close()
            return
        handler = HANDLERS.get(header.api_key)
        if handler is None:
            raise WireError(f"no handler for API {header.api_key}")
        handler(connection, header, frame)

    def draw_throttle(self) -> int:
        """Return the throttle time of the broker's own quotas for the next response, mostly 0."""
        if self.throttle_share and self.random.random() < self.throttle_share:
            return self.random.randint(*self.throttle_ms)
        return 0

    def draw_refusal(self) -> int:
        """Return the error for the next partition, mostly 0."""
        if self.refusal_share and self.random.random() < self.refusal_share:
            return self.random.choice(_RETRIABLE)
        return 0

    def draw_disk_ms(self) -> float:
        """Return how long the next append takes."""
        low, high = self.disk_ms
        return self.random.uniform(low, high) if high else 0.0

    def leader_of(self, partition: "Partition", listener: str) -> tuple[Leader, list[NodeEndpoint]]:
        """Return the leader of a partition and its address, for responses that refuse (KIP-951)."""
        leader = Leader(partition.leader, partition.leader_epoch)
        address = self.cluster.advertised.get((partition.leader, listener))
        return leader, [] if address is None else [NodeEndpoint(partition.leader, *address)]
