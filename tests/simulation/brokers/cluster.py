"""A Kafka cluster: its topics, where they live, who leads them, and what was lost."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.simulation.brokers.broker import Broker
from tests.simulation.brokers.follower import Follower
from tests.simulation.brokers.log import Batch
from tests.simulation.brokers.partition import Partition, Replica
from tests.simulation.brokers.profiles import LISTENERS, NEWEST, Listener
from tests.simulation.wire import records

if TYPE_CHECKING:
    from tests.simulation.brokers.client_quotas import QuotaEntity
    from tests.simulation.brokers.share import ShareState
    from tests.simulation.world import World

Endpoint = tuple[str, int]
_REPLICATION_MS: Final = 2.0


class Topic:
    """A topic with its id and its partitions."""

    __slots__ = ("name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: list[Partition] = []


class IsrChange(NamedTuple):
    """A replica has left the in-sync replicas of a partition, or is back.

    ``reason`` begins with "it lags" where no fault of a broker is to blame.
    """

    at_ms: float
    topic: str
    partition: int
    node_id: int
    is_in_sync: bool
    reason: str


class Lost(NamedTuple):
    """A batch that was in the log of a partition and is no more."""

    topic: str
    partition: int
    token: str


class Cluster:
    """Brokers, topics and their partitions. Brokers know of each change at once, as if the controller were one of them.

    Attributes:
        advertised: The address that each broker gives to clients of each of its listeners.
        listeners: The listeners that each broker has, by name.
        versions: The versions of each API that the brokers support.
        users: The passwords of those who may log in with SASL/PLAIN.
        is_creating_topics: Whether a Metadata request may create a topic (auto.create.topics.enable).
        failover_ms: How long it takes until the partitions of a dead broker have another leader.
        replica_lag_ms: After how long a replica that lags leaves the ISR (replica.lag.time.max.ms).
        route: Where a follower finds the inter-broker listener of a leader; None: the followers are not simulated, and
            replicas copy by themselves.
        isr_changes: When and why the in-sync replicas of partitions changed.
        lost: Batches that a crash or a new leader has cut off.
        deleted: Topics that were deleted.
    """

    def __init__(
        self,
        world: "World",
        node_ids: Sequence[int],
        *,
        listeners: "dict[str, Listener] | None" = None,
        versions: dict[int, tuple[int, int]] | None = None,
    ) -> None:
        self.world = world
        self.listeners = listeners or LISTENERS
        self.versions = versions or NEWEST
        self.cluster_id = "sim-cluster"
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.users: dict[str, str] = {}
        self.quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.share_states: dict[tuple[str | None, tuple[bytes, int]], ShareState] = {}
        self.is_creating_topics = False
        self.default_partitions = 2
        self.min_isr = 1
        self.failover_ms = 400.0
        self.replica_lag_ms = 10_000.0
        self.route: Callable[[int, int], Endpoint] | None = None
        self.followers: list[Follower] = []
        self.isr_changes: list[IsrChange] = []
        self.lost: list[Lost] = []
        self.deleted: list[Topic] = []
        self.advertised: dict[tuple[int, str], Endpoint] = {}
        self.brokers: dict[int, Broker] = {}
        self.next_producer_id = 1_000
        self._placed = 0
        self._copying: dict[Partition, None] = {}
        for node_id in node_ids:
            self.brokers[node_id] = Broker(self, node_id)
            for name, listener in self.listeners.items():
                self.advertised[node_id, name] = (f"10.0.1.{node_id}", listener.port)
        self.controller = node_ids[0]

    def start(self) -> None:
        """Start all brokers, and the watch over their in-sync replicas."""
        for broker in self.brokers.values():
            broker.start()
        if self.route is not None:
            self.start_followers(self.route)
        self._watch_isr()

    def start_followers(self, route: Callable[[int, int], Endpoint], *, version: int | None = None) -> None:
        """Copy by followers that fetch through the network, where ``route(follower, leader)`` says."""
        self.route = route
        version = version or self.versions[1][1]
        self.followers = [
            Follower(self, node_id, leader, version=version)
            for node_id in self.brokers
            for leader in self.brokers
            if node_id != leader
        ]
        for follower in self.followers:
            if self.brokers[follower.node_id].is_up:
                follower.start()

    def stop_followers(self) -> None:
        """Let no follower fetch any more. From now on replicas copy by themselves."""
        self.route = None
        for follower in self.followers:
            follower.stop()
        self.followers.clear()
        for partition in self.partitions.values():
            self._appended(partition)

    def heal(self) -> None:
        """End all faults of the brokers, and start those that are down."""
        for broker in self.brokers.values():
            broker.heal()

    # -- topics --

    def create_topic(
        self, name: str, partitions: int = 1, *, replication: int = 1, replicas: Sequence[Sequence[int]] | None = None
    ) -> Topic:
        """Create a topic. ``replicas`` places its partitions; without it they go round the brokers."""
        topic = Topic(name, self.world.random.randbytes(16))
        self.topics[name] = self.topics_by_id[topic.topic_id] = topic
        self.add_partitions(topic, partitions, replication=replication, replicas=replicas)
        return topic

    def add_partitions(
        self, topic: Topic, count: int, *, replication: int = 1, replicas: Sequence[Sequence[int]] | None = None
    ) -> None:
        """Add partitions until a topic has ``count`` of them."""
        node_ids = list(self.brokers)
        for index in range(len(topic.partitions), count):
            placed = (
                list(replicas[index])
                if replicas is not None
                else [node_ids[(self._placed + i) % len(node_ids)] for i in range(min(replication, len(node_ids)))]
            )
            self._placed += 1
            partition = Partition(topic.name, topic.topic_id, index, placed, self.world.clock.now_ms)
            partition.on_append = self._appended
            topic.partitions.append(partition)
            self.partitions[topic.name, index] = partition
            for node_id in placed:
                if not self.brokers[node_id].is_up:
                    partition.isr.remove(node_id)
            if not self.brokers[partition.leader].is_up:
                self._elect(partition)
            for follower in self.followers:
                follower.leader_changed(partition)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, also while clients use it."""
        topic = self.topics.pop(name)
        del self.topics_by_id[topic.topic_id]
        self.deleted.append(topic)
        for partition in topic.partitions:
            del self.partitions[name, partition.index]
            partition.lead(-1, self.world.clock.now_ms)
            for follower in self.followers:
                follower.leader_changed(partition)
        self.world.story.tell(f"topic {name} is deleted")

    # -- leaders --

    def move_leader(self, partition: Partition, node_id: int) -> None:
        """Let another live replica lead a partition. What it does not have is lost, as in Kafka."""
        if node_id in partition.isr and self.brokers[node_id].is_up:
            self._lead(partition, node_id, "another leader")

    def broker_down(self, node_id: int) -> None:
        """Take a dead broker out of all in-sync replicas, and find leaders for its partitions soon."""
        for follower in self.followers:
            if follower.node_id == node_id:
                follower.stop()
        for partition in self.partitions.values():
            if node_id in partition.isr and len(partition.isr) > 1:
                self._shrink(partition, node_id, "its broker is down")
            if partition.leader == node_id:
                self.world.call_later(self.failover_ms, self._elect, partition)
        if self.controller == node_id:
            self.controller = next(iter(self.live_nodes()), node_id)

    def broker_up(self, node_id: int) -> None:
        """Let a broker that is back lead what nobody else can, and catch up with the rest."""
        now_ms = self.world.clock.now_ms
        for partition in self.partitions.values():
            if partition.leader < 0:
                self._elect(partition)
            if node_id in partition.states:
                state = partition.states[node_id]
                state.caught_up_ms = state.fetched_ms = now_ms
                if self.route is None:
                    self._appended(partition)
        for follower in self.followers:
            if follower.node_id == node_id:
                follower.start()

    def empty_replicas(self, node_id: int) -> None:
        """Delete what a stopped broker has of partitions that others lead and that it is not in sync with."""
        for partition in self.partitions.values():
            if node_id in partition.states and node_id not in partition.isr and partition.leader != node_id:
                partition.states[node_id].log_end = 0

    def begin_with(self, partition: Partition, sizes: Iterable[int], *, newcomers: Iterable[int]) -> None:
        """Let a partition have batches of these sizes, of which new replicas at ``newcomers`` have nothing yet."""
        for number, size in enumerate(sizes):
            partition.append(records.Batch(f"old-{partition}-{number}", size))
        for node_id, state in partition.states.items():
            state.log_end = partition.log.end_offset
            if node_id in newcomers and node_id != partition.leader:
                state.log_end = 0
                partition.isr.remove(node_id)
        partition.advance()
        for follower in self.followers:
            follower.leader_changed(partition)

    @property
    def is_in_sync(self) -> bool:
        """Whether all replicas are in sync."""
        return all(len(partition.isr) == len(partition.replicas) for partition in self.partitions.values())

    def live_nodes(self) -> Iterable[int]:
        """Return the brokers that run, in order."""
        return (node_id for node_id, broker in self.brokers.items() if broker.is_up)

    def _elect(self, partition: Partition) -> None:
        if partition.leader >= 0 and self.brokers[partition.leader].is_up:
            return
        if (partition.topic_name, partition.index) not in self.partitions:
            return
        alive = [node_id for node_id in partition.isr if self.brokers[node_id].is_up]
        self._lead(partition, alive[0] if alive else -1, "its leader died")

    def _lead(self, partition: Partition, node_id: int, reason: str) -> None:
        if partition.leader == node_id:
            return
        self.note_lost(partition, partition.lead(node_id, self.world.clock.now_ms))
        self.world.story.tell(f"{partition} is led by {'nobody' if node_id < 0 else f'broker {node_id}'}: {reason}")
        for follower in self.followers:
            follower.leader_changed(partition)
        if node_id >= 0 and self.route is None:
            self._appended(partition)

    def note_lost(self, partition: Partition, batches: Iterable[Batch]) -> None:
        """Remember batches that are no longer in the log of a partition."""
        self.lost += (Lost(partition.topic_name, partition.index, batch.token) for batch in batches)

    # -- replicas --

    def replica_fetched(self, partition: Partition, node_id: int, offset: int) -> None:
        """Note a replica's fetch, and take it into the in-sync replicas if it has all that consumers may see."""
        partition.fetched_by(node_id, offset, self.world.clock.now_ms)
        if node_id not in partition.isr and offset >= partition.high_watermark and self.brokers[node_id].is_up:
            partition.isr.append(node_id)
            self._note_isr(partition, node_id, "it has caught up", is_in_sync=True)

    def replica_lagged(self, node_id: int, leader: int) -> None:
        """Tell the follower that a leader reads its fetch, and that something in it lags."""
        for follower in self.followers:
            if follower.hangs_up and (follower.node_id, follower.leader) == (node_id, leader):
                follower.lagged()

    def _appended(self, partition: Partition) -> None:
        """Let the replicas copy what is new after a moment, where the followers are not simulated."""
        if self.route is None and len(partition.replicas) > 1 and partition not in self._copying:
            self._copying[partition] = None
            self.world.call_later(_REPLICATION_MS, self._copied, partition, partition.log.end_offset)

    def _copied(self, partition: Partition, end_offset: int) -> None:
        del self._copying[partition]
        if partition.leader < 0 or not self.brokers[partition.leader].is_up:
            return
        end_offset = min(end_offset, partition.log.end_offset)
        for node_id in partition.replicas:
            if node_id != partition.leader and self.brokers[node_id].is_up:
                self.replica_fetched(partition, node_id, end_offset)
        if end_offset < partition.log.end_offset:
            self._appended(partition)

    def _watch_isr(self) -> None:
        now_ms = self.world.clock.now_ms
        if self.route is not None:
            for partition in self.partitions.values():
                leader = self.brokers.get(partition.leader)
                if leader is None or not leader.is_up or leader.is_stalled:
                    continue
                for node_id in list(partition.isr):
                    state = partition.states[node_id]
                    lags = node_id != partition.leader and state.log_end < partition.log.end_offset
                    if lags and now_ms - state.caught_up_ms > self.replica_lag_ms:
                        self._shrink(partition, node_id, self._why_it_lags(partition, state))
        self.world.call_later(self.replica_lag_ms / 2, self._watch_isr)

    def _why_it_lags(self, partition: Partition, state: Replica) -> str:
        for who, node_id in (("its broker", state.node_id), ("the leader", partition.leader)):
            if self.brokers[node_id].stalled_until_ms > state.caught_up_ms:
                return f"{who} has stalled"
        return f"it lags for {self.world.clock.now_ms - state.caught_up_ms:.0f} ms"

    def _shrink(self, partition: Partition, node_id: int, reason: str) -> None:
        partition.isr.remove(node_id)
        self._note_isr(partition, node_id, reason, is_in_sync=False)
        partition.advance()

    def _note_isr(self, partition: Partition, node_id: int, reason: str, *, is_in_sync: bool) -> None:
        now_ms, topic, index = self.world.clock.now_ms, partition.topic_name, partition.index
        self.isr_changes.append(IsrChange(now_ms, topic, index, node_id, is_in_sync, reason))
        verb = "joins" if is_in_sync else "leaves"
        self.world.story.tell(f"replica {node_id} {verb} the ISR of {partition}: {reason}")
