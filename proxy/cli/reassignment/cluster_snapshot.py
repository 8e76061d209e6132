"""Takes snapshots of a cluster's partition reassignments through an admin client, and never writes to the cluster.

The admin client needs DESCRIBE and DESCRIBE_CONFIGS on the cluster and the topics. These are the same permissions that
``kafka-reassign-partitions.sh --list`` and ``kafka-configs.sh --describe`` need. A snapshot combines the responses of
several brokers: only the controller knows which partitions are being moved, and only the brokers with the replicas know
the sizes of logs and the rates of throttles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from aiokafka.errors import UnknownTopicOrPartitionError

from kafka_quota_proxy.config.model import ProxyConfig
from kafka_quota_proxy.config.throttled_replicas import ThrottledReplicas
from kafka_quota_proxy.config.throttled_replicas import read as read_replicas
from kafka_quota_proxy.config.units import UNLIMITED
from kafka_quota_proxy.proxy.background.admin_client import ADMIN_ERRORS, ClusterClient
from kafka_quota_proxy.proxy.background.admin_requests import ConfigKind, ConfigQuery, Configs, Partition
from kafka_quota_proxy.proxy.cli.reassignment.model import Limit, Move, Sample, Sizes, Waiting
from kafka_quota_proxy.proxy.cli.reassignment.throttles import (
    BrokerConfigs,
    ClusterThrottles,
    bursts,
    cluster_limits,
    file_limits,
    split_throttles,
    unknown_throttles,
    unlisted_moves,
)
from kafka_quota_proxy.proxy.replication.cluster_view import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
)

_CONFIGS_EVERY_MS: Final = 2_000
# The controller knows that a reassignment is over before every broker knows that the new replica is in sync. If the
# replica is still not in sync after this time, the move counts as cancelled.
_SETTLED_MS: Final = 5_000
_RESPONSE_BYTES: Final = "replica.fetch.response.max.bytes"
_FETCH_BYTES: Final = "replica.fetch.max.bytes"
_WINDOWS: Final = "replication.quota.window.num"
_WINDOW_S: Final = "replication.quota.window.size.seconds"
_OF_BROKERS: Final = (LEADER_RATE, FOLLOWER_RATE, _RESPONSE_BYTES, _FETCH_BYTES, _WINDOWS, _WINDOW_S)
_OF_TOPICS: Final = (LEADER_REPLICAS, FOLLOWER_REPLICAS)

_TopicPartition: TypeAlias = tuple[str, int]


class ReadingError(Exception):
    """A response from the cluster lacks information that a snapshot needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """Holds the state of all reassignments in the cluster at one moment."""

    sample: Sample
    limits: tuple[Limit, ...]
    # The next three are moves of earlier snapshots that the controller does not report any more.
    arrived: tuple[Move, ...]  # completed since the last snapshot
    cancelled: tuple[Move, ...]
    unsettled: tuple[Move, ...] = ()  # not known yet whether completed or cancelled
    waiting: tuple[Waiting, ...] = ()  # moves that are not in the sample, because a broker is away
    notes: tuple[str, ...]  # sentences about faults of the throttles


class SnapshotReader:
    """Takes snapshots of a cluster's reassignments.

    ``admin`` is a connected client with blocking calls. ``clock_ms`` returns the milliseconds of a monotonic clock.
    """

    def __init__(self, admin: ClusterClient, config: ProxyConfig, *, clock_ms: Callable[[], int]) -> None:
        self._admin = admin
        self._replication = config.replication
        self._leaders = _leaders_behind(config)
        self._proxied = len({listener.upstream for listener in config.listeners if listener.inter_broker})
        self._clock_ms = clock_ms
        self._moving: frozenset[Move] = frozenset()
        self._gone_since_ms: Mapping[Move, int] = {}  # when each unsettled move was first missing
        self._throttles = ClusterThrottles()
        self._racks: Mapping[int, str | None] = {}
        self._throttles_at_ms: int | None = None
        self._throttles_for: frozenset[Move] = frozenset()

    def read(self) -> ClusterSnapshot:
        """Ask the cluster for the state of all its reassignments.

        Raises ReadingError if a topic cannot be described, or a broker does not report the size of a log. If the
        cluster does not respond, raises one of ``proxy.background.admin_client.ADMIN_ERRORS``.
        """
        moving = {
            Move(topic, partition, follower)
            for (topic, partition), adding in self._admin.reassignments().items()
            for follower in adding
        }
        gone = (self._moving | self._gone_since_ms.keys()) - moving
        partitions = self._partitions({move.topic for move in moving | gone})
        moving = {move for move in moving if (move.topic, move.partition) in partitions}
        moves, waiting = self._sizes(moving, partitions)
        now_ms = self._clock_ms()
        self._read_throttles(moves, now_ms)
        arrived = {move for move in gone if _has_arrived(move, partitions)}
        cancelled = {move for move in gone - arrived if now_ms - self._gone_since_ms.get(move, now_ms) >= _SETTLED_MS}
        unsettled = gone - arrived - cancelled
        self._gone_since_ms = {move: self._gone_since_ms.get(move, now_ms) for move in unsettled}
        self._moving = frozenset(moving)
        limits = tuple(self._limits(moves))
        return ClusterSnapshot(
            sample=Sample(time_ms=now_ms, moves=moves),
            limits=limits,
            arrived=tuple(sorted(arrived)),
            cancelled=tuple(sorted(cancelled)),
            unsettled=tuple(sorted(unsettled)),
            waiting=tuple(waiting),
            notes=(
                *unknown_throttles(self._throttles),
                *unlisted_moves(moves, self._throttles),
                *bursts(moves, limits, self._throttles),
                *self._split_throttles(moves),
            ),
        )

    def _limits(self, moves: Mapping[Move, Sizes]) -> Iterable[Limit]:
        yield from cluster_limits(moves, self._throttles)
        if self._replication is not None:
            yield from file_limits(moves, self._replication, leaders=self._leaders, racks=self._racks)

    def _split_throttles(self, moves: Mapping[Move, Sizes]) -> Iterable[str]:
        if self._replication is None:
            return ()
        return split_throttles(moves, self._replication, leaders=self._leaders, proxied=self._proxied)

    def _partitions(self, topics: Iterable[str]) -> dict[_TopicPartition, Partition]:
        names = sorted(topics)
        if not names:
            return {}
        found: dict[_TopicPartition, Partition] = {}
        for topic in self._admin.metadata(names).topics:
            if topic.error_code not in (0, UnknownTopicOrPartitionError.errno):  # unknown: it was deleted meanwhile
                raise ReadingError(f"topic {topic.name} cannot be described: Kafka's error {topic.error_code}")
            for partition in topic.partitions:
                found[topic.name, partition.number] = partition
        return found

    def _sizes(
        self, moving: Iterable[Move], partitions: Mapping[_TopicPartition, Partition]
    ) -> tuple[dict[Move, Sizes], list[Waiting]]:
        """Return the sizes of the moves whose brokers answer, and the other moves."""
        moves = sorted(moving)
        led: list[Move] = []
        waiting: list[Waiting] = []
        wanted: dict[str, set[int]] = {}
        brokers: set[int] = set()
        for move in moves:
            partition = partitions[move.topic, move.partition]
            if partition.leader < 0:
                candidates = set(partition.in_sync or partition.replicas) - {move.follower}
                waiting.append(Waiting(move, tuple(sorted(candidates)), "the partition has no leader"))
                continue
            led.append(move)
            brokers |= {partition.leader, move.follower}
            wanted.setdefault(move.topic, set()).add(move.partition)
        if not led:
            return {}, waiting
        sizes, failures = self._admin.log_sizes(
            {topic: sorted(numbers) for topic, numbers in wanted.items()}, sorted(brokers)
        )
        found: dict[Move, Sizes] = {}
        for move in led:
            partition = partitions[move.topic, move.partition]
            away = next((broker for broker in (partition.leader, move.follower) if broker in failures), None)
            if away is None:
                found[move] = _sizes_of(move, partition, moves, sizes)
            else:
                waiting.append(Waiting(move, (away,), str(failures[away]) or repr(failures[away])))
        return found, waiting

    def _read_throttles(self, moves: Mapping[Move, Sizes], now_ms: int) -> None:
        """Read the throttles from the cluster if the last ones are two seconds old, or if a move is new."""
        is_fresh = self._throttles_at_ms is not None and now_ms - self._throttles_at_ms < _CONFIGS_EVERY_MS
        if not moves or (is_fresh and moves.keys() <= self._throttles_for):
            return
        self._throttles_at_ms, self._throttles_for = now_ms, frozenset(moves)
        brokers = sorted({sizes.leader for sizes in moves.values()} | {move.follower for move in moves})
        topics = sorted({move.topic for move in moves})
        queries = [ConfigQuery(ConfigKind.BROKER, (str(broker),), _OF_BROKERS, broker) for broker in brokers]
        *answers, of_all_topics = self._admin.configs(
            [*queries, ConfigQuery(ConfigKind.TOPIC, tuple(topics), _OF_TOPICS)]
        )
        # A broker may have gone away since it was asked for sizes. The next snapshot will say so.
        of_brokers = {
            broker: _values(answer)[str(broker)]
            for broker, answer in zip(brokers, answers, strict=True)
            if not isinstance(answer, ADMIN_ERRORS)
        }
        of_topics = _values(of_all_topics)
        self._throttles = ClusterThrottles(
            brokers={broker: _broker_configs(values) for broker, values in of_brokers.items()},
            # A broker that lets this client read its configs returns a value for some of them, at least the default.
            unknown=tuple(broker for broker, values in of_brokers.items() if not values),
            leader_replicas=_lists(of_topics, LEADER_REPLICAS),
            follower_replicas=_lists(of_topics, FOLLOWER_REPLICAS),
        )
        paths = () if self._replication is None else self._replication.paths
        if any(path.leader_rack is not None or path.follower_rack is not None for path in paths):
            self._racks = self._admin.metadata(()).racks


def _leaders_behind(config: ProxyConfig) -> frozenset[int] | None:
    """Return the node ids of the brokers behind inter-broker listeners, or None if they are unknown.

    They are unknown if there is no such listener, or if one of these listeners has no configured node id.
    """
    believed = [listener for listener in config.listeners if listener.inter_broker]
    node_ids = frozenset(listener.node_id for listener in believed if listener.node_id is not None)
    return node_ids if believed and all(listener.node_id is not None for listener in believed) else None


def _has_arrived(move: Move, partitions: Mapping[_TopicPartition, Partition]) -> bool:
    partition = partitions.get((move.topic, move.partition))
    return partition is not None and move.follower in partition.in_sync


def _sizes_of(
    move: Move, partition: Partition, moves: Iterable[Move], sizes: Mapping[tuple[int, str, int], int]
) -> Sizes:
    leader = partition.leader
    of_leader = sizes.get((leader, move.topic, move.partition))
    if of_leader is None:
        raise ReadingError(
            f"broker {leader} does not report the size of {move.topic}-{move.partition}: "
            "the admin client needs DESCRIBE on the cluster"
        )
    on_their_way = {other.follower for other in moves if other[:2] == move[:2]}
    return Sizes(
        leader=leader,
        leader_bytes=of_leader,
        follower_bytes=sizes.get((move.follower, move.topic, move.partition), 0),  # it may not be there yet
        in_sync_followers=len(set(partition.in_sync) - on_their_way - {leader}),
    )


def _values(answer: Sequence[Configs] | Exception) -> dict[str, dict[str, str]]:
    """Return the configs that have a value, keyed by topic or broker name. If ``answer`` is an exception, raise it."""
    if isinstance(answer, Exception):
        raise answer
    return {
        configs.name: {key: value for key, value in configs.values.items() if value is not None} for configs in answer
    }


def _lists(of_topics: Mapping[str, Mapping[str, str]], key: str) -> dict[str, ThrottledReplicas]:
    return {topic: read_replicas(values[key])[0] for topic, values in of_topics.items() if values.get(key)}


def _broker_configs(values: Mapping[str, str]) -> BrokerConfigs:
    return BrokerConfigs(
        leader_rate=_rate(values.get(LEADER_RATE)),
        follower_rate=_rate(values.get(FOLLOWER_RATE)),
        response_bytes=int(values.get(_RESPONSE_BYTES, BrokerConfigs().response_bytes)),
        fetch_bytes=int(values.get(_FETCH_BYTES, BrokerConfigs().fetch_bytes)),
        window_ms=int(values.get(_WINDOWS, "11")) * int(values.get(_WINDOW_S, "1")) * 1_000,
    )


def _rate(value: str | None) -> float | None:
    return None if value is None or int(value) >= UNLIMITED else float(value)
