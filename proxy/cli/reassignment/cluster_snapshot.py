"""Reads from a cluster which replicas a reassignment moves, and how large their logs are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from aiokafka.errors import UnknownTopicOrPartitionError

from kafka_quota_proxy.proxy.cli.reassignment.progress import Move, Sample, Sizes, Waiting
from kafka_quota_proxy.proxy.kafka_client.admin_client import ClusterClient
from kafka_quota_proxy.proxy.kafka_client.admin_requests import Partition

_TopicPartition: TypeAlias = tuple[str, int]


class ReadingError(Exception):
    """A response from the cluster lacks information that a snapshot needs."""


def read_snapshot(admin: ClusterClient, *, clock_ms: Callable[[], int]) -> Sample:
    """Ask a cluster for all its moves and their sizes. ``clock_ms`` returns the milliseconds of a monotonic clock.

    Raises ReadingError if a topic cannot be described, or a broker does not report the size of a log. If the cluster
    does not respond, raises one of ``proxy.kafka_client.admin_client.ADMIN_ERRORS``.
    """
    moving = {
        Move(topic, partition, follower)
        for (topic, partition), adding in admin.reassignments().items()
        for follower in adding
    }
    partitions = _partitions(admin, {move.topic for move in moving})
    moves = sorted(move for move in moving if (move.topic, move.partition) in partitions)
    waiting: list[Waiting] = []
    led: list[Move] = []
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
        return Sample(time_ms=clock_ms(), moves={}, waiting=tuple(waiting))
    sizes, failures = admin.log_sizes({topic: sorted(numbers) for topic, numbers in wanted.items()}, sorted(brokers))
    now_ms = clock_ms()
    found: dict[Move, Sizes] = {}
    for move in led:
        partition = partitions[move.topic, move.partition]
        away = next((broker for broker in (partition.leader, move.follower) if broker in failures), None)
        if away is None:
            found[move] = _sizes_of(move, partition, moves, sizes)
        else:
            waiting.append(Waiting(move, (away,), str(failures[away]) or repr(failures[away])))
    return Sample(time_ms=now_ms, moves=found, waiting=tuple(waiting))


def _partitions(admin: ClusterClient, topics: Iterable[str]) -> dict[_TopicPartition, Partition]:
    names = sorted(topics)
    if not names:
        return {}
    found: dict[_TopicPartition, Partition] = {}
    for topic in admin.metadata(names).topics:
        if topic.error_code not in (0, UnknownTopicOrPartitionError.errno):  # unknown: it was deleted meanwhile
            raise ReadingError(f"topic {topic.name} cannot be described: Kafka's error {topic.error_code}")
        for partition in topic.partitions:
            found[topic.name, partition.number] = partition
    return found


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
