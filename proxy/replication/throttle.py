"""Determines to which replication quotas a partition is charged when a follower fetches it from a leader.

A process has one ``Throttle``. Each broker behind the proxy has a ``Leader``, which creates a ``Limits`` object for
each follower that fetches from the broker. A ``Limits`` object is valid until ``Throttle.generation`` changes.

Source: ``ReplicationQuotaManager.isThrottled`` in Apache Kafka, KIP-73.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from kafka_quota_proxy.config.model import Address, KafkaSettings, Replication
from kafka_quota_proxy.config.throttled_replicas import ThrottledReplicas
from kafka_quota_proxy.proxy.quota.replication import ReplicationQuota
from kafka_quota_proxy.proxy.replication.cluster_view import ClusterView

_NOTHING: Final = ClusterView()

# These bounds are needed because a client that poses as a follower may claim any node id, and name any partitions.
_MAX_FOLLOWERS: Final = 1_000
_MAX_KNOWN_PARTITIONS: Final = 200_000

# The throttled replicas of one side (the leaders or the followers), by topic. None stands for every replica that lags.
Lists = Mapping[str, ThrottledReplicas] | None


class Charge(NamedTuple):
    """A quota to which a fetched partition is charged, and what part of the response counts towards it."""

    quota: ReplicationQuota
    counts_all: bool  # whether in-sync replicas are charged too, as Kafka does if replicas are listed
    is_leaders: bool  # whether the whole response is charged, as Kafka's leader does, or only its records


class Throttle:
    """Holds all the replication limits that this process enforces, with the usage that is counted against them."""

    def __init__(self, replication: Replication | None, kafka: KafkaSettings) -> None:
        self.replication = replication
        self.view = _NOTHING
        self.generation = 0
        self.ask: Callable[[], None] = lambda: None  # called when a topic id is unknown
        self._samples = kafka.replication_quota_window_num
        self._window_ms = kafka.replication_quota_window_size_seconds * 1_000
        self.leaders: list[Leader] = []
        self._last_ticket = 0
        self.followers: dict[int, ReplicationQuota] = {}
        # The quotas of followers that were removed to make room for others. The usage log still reads them.
        self.departed: deque[tuple[int, ReplicationQuota]] = deque(maxlen=_MAX_FOLLOWERS)

    def update(self, replication: Replication | None, *, now_ms: int) -> None:
        """Enforce the limits of a reloaded configuration file from the next fetch on. Usage counted so far is kept."""
        self.replication = replication
        self._refresh(now_ms)

    def see(self, view: ClusterView, *, now_ms: int) -> None:
        """Enforce the limits of the cluster's own configs from the next fetch on. Usage counted so far is kept."""
        self.view = view
        self._refresh(now_ms)

    def leader(self, address: Address, node_id: int | None = None) -> "Leader":
        """Add a broker to those from which followers fetch, and return the ``Leader`` that represents it.

        If ``node_id`` is None, the ``Leader`` looks up its node id by ``address`` in the latest ``ClusterView``.
        """
        leader = Leader(self, address, node_id)
        self.leaders.append(leader)
        return leader

    def next_ticket(self) -> int:
        """Return a number for a fetch that has to wait: one more than the number that was returned last.

        When a quota has room again, the waiting fetch with the lowest number goes first.
        """
        self._last_ticket += 1
        return self._last_ticket

    def leader_rate(self, node_id: int | None) -> float | None:
        """Return the limit on what a broker sends as a leader, in bytes per second; None if there is no limit."""
        rules = self.replication
        if rules is None:
            return None
        if not rules.from_cluster:
            return rules.leader_rate
        return None if node_id is None else self.view.leader_rates.get(node_id)

    def follower_rate(self, follower: int) -> float | None:
        """Return the limit on what a broker fetches as a follower, in bytes per second; None if there is no limit."""
        rules = self.replication
        if rules is None:
            return None
        return self.view.follower_rates.get(follower) if rules.from_cluster else rules.follower_rate

    def follower_quota(self, follower: int, *, now_ms: int) -> ReplicationQuota:
        """Return the quota for everything that a follower fetches through this process."""
        quota = self.followers.get(follower)
        if quota is None:
            if len(self.followers) >= _MAX_FOLLOWERS:
                oldest = next(iter(self.followers))
                self.departed.append((oldest, self.followers.pop(oldest)))
            quota = self.followers[follower] = self.quota(self.follower_rate(follower), now_ms)
        return quota

    def lists(self) -> tuple[Lists, Lists]:
        """Return the lists of throttled replicas in force: first those for leaders, then those for followers."""
        rules = self.replication
        if rules is None:
            return {}, {}
        if rules.from_cluster:
            return self.view.leader_replicas, self.view.follower_replicas
        return rules.leader_replicas, rules.follower_replicas

    def quota(self, limit: float | None, now_ms: int) -> ReplicationQuota:
        """Return a new quota whose windows have the number and length set by Kafka's ``replication.quota.window.*``."""
        return ReplicationQuota(limit, samples=self._samples, window_ms=self._window_ms, now_ms=now_ms)

    def _refresh(self, now_ms: int) -> None:
        self.generation += 1
        leaders = ((one.known_quota, self.leader_rate(one.node_id)) for one in self.leaders)
        _change(((quota, rate) for quota, rate in leaders if quota is not None), now_ms)
        _change(((quota, self.follower_rate(follower)) for follower, quota in self.followers.items()), now_ms)


class Leader:
    """Represents a broker behind the proxy from which followers fetch, and limits what it sends.

    One quota limits what the broker sends to all followers together.
    """

    __slots__ = ("_address", "_node_id", "known_quota", "throttle")

    def __init__(self, throttle: Throttle, address: Address, node_id: int | None) -> None:
        self.throttle = throttle
        self.known_quota: ReplicationQuota | None = None  # None until a follower fetches under a limit
        self._address = address
        self._node_id = node_id

    @property
    def node_id(self) -> int | None:
        """The broker's node id; None while it is unknown."""
        return self.throttle.view.node_ids.get(self._address) if self._node_id is None else self._node_id

    @property
    def name(self) -> str:
        """The broker's name in metrics: its node id, or its address while the node id is unknown."""
        node_id = self.node_id
        return str(self._address) if node_id is None else str(node_id)

    def quota(self, *, now_ms: int) -> ReplicationQuota:
        """Return the quota for everything that this broker sends to throttled replicas."""
        if self.known_quota is None:
            self.known_quota = self.throttle.quota(self.throttle.leader_rate(self.node_id), now_ms)
        return self.known_quota

    def join(self, unused: "Leader") -> None:
        """Take over the node id of ``unused``, which turned out to be the same broker before any follower fetched."""
        if self._node_id is None:
            self._node_id = unused._node_id  # noqa: SLF001 - another one of the same class
        self.throttle.leaders.remove(unused)
        self.throttle.generation += 1

    def limits(self, follower: int, *, now_ms: int) -> "Limits":
        """Return a new ``Limits`` object, which finds the quotas for a follower's fetches from this leader."""
        return Limits(self, follower, now_ms=now_ms)


class Limits:
    """Determines to which quotas each partition is charged when one follower fetches from one leader."""

    __slots__ = ("_sides", "_throttle", "follower", "generation", "is_active", "known", "leader_id")

    def __init__(self, leader: Leader, follower: int, *, now_ms: int) -> None:
        throttle = self._throttle = leader.throttle
        self.generation = throttle.generation
        self.follower = follower
        self.leader_id = leader.node_id
        self.known: dict[tuple[bytes, int], tuple[Charge, ...]] = {}  # results of ``charges``
        self._sides = tuple(self._find(leader, now_ms)) if throttle.replication else ()
        # A side without a limit only measures, and a side with an empty list throttles nothing.
        self.is_active = any(
            charge.quota.limit is not None and (lists is None or lists) for charge, lists, _ in self._sides
        )

    def charges(self, topic: bytes, partition: int, *, is_id: bool) -> tuple[Charge, ...]:
        """Return the quotas to which a partition is charged, or an empty tuple if the partition is not throttled.

        ``topic`` is the topic's id if ``is_id`` is True, and otherwise its name in UTF-8.
        """
        charges = self.known.get((topic, partition))
        if charges is not None:
            return charges
        name = self.name_of(topic, is_id=is_id)
        charges = tuple(charge for charge, lists, broker in self._sides if _is_listed(lists, name, partition, broker))
        if name is None:
            self._throttle.ask()
        else:
            if len(self.known) >= _MAX_KNOWN_PARTITIONS:
                self.known.clear()
            self.known[topic, partition] = charges
        return charges

    def find(
        self,
        partitions: Iterable[tuple[bytes, int]],
        found: dict[tuple[bytes, int], tuple[Charge, ...]],
        *,
        is_id: bool,
    ) -> None:
        """Add the throttled partitions among ``partitions`` to ``found``, each with the quotas to charge."""
        known = self.known
        for key in partitions:
            charges = known.get(key)
            if charges is None:
                charges = self.charges(*key, is_id=is_id)
            if charges:
                found[key] = charges

    @property
    def quotas(self) -> Iterator[ReplicationQuota]:
        """All quotas to which fetches of this follower may be charged, even if no partition is throttled."""
        return (charge.quota for charge, _, _ in self._sides)

    def name_of(self, topic: bytes, *, is_id: bool) -> str | None:
        """Return a topic's name; None if ``topic`` is an unknown id."""
        return self._throttle.view.topic_names.get(topic) if is_id else topic.decode("utf-8", "replace")

    def _find(self, leader: Leader, now_ms: int) -> Iterator[tuple[Charge, Lists, int | None]]:
        """Yield the quota of each side, its throttled replicas, and the node id of its broker, if that is known."""
        throttle, follower = self._throttle, self.follower
        leaders, followers = throttle.lists()
        quota = leader.quota(now_ms=now_ms)
        yield Charge(quota, leaders is not None, is_leaders=True), leaders, self.leader_id
        quota = throttle.follower_quota(follower, now_ms=now_ms)
        yield Charge(quota, followers is not None, is_leaders=False), followers, follower


def _is_listed(lists: Lists, name: str | None, partition: int, broker: int | None) -> bool:
    if lists is None:
        return True
    replicas = lists.get(name) if name is not None else None
    if replicas is None:
        return False
    if broker is None:  # the node id is unknown, so any listed replica counts
        return replicas.is_all or any(partition in listed for listed in replicas.partitions.values())
    return replicas.holds(partition, broker)


def _change(limits: Iterable[tuple[ReplicationQuota, float | None]], now_ms: int) -> None:
    for quota, limit in limits:
        quota.change(limit, now_ms=now_ms)
