"""Reads the metrics of throttled replication (KIP-73), such as rates and limits of brokers."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from kafka_quota_proxy.proxy.admin.metrics.exposition import PROXY, Family, Metric, Namespace, labels
from kafka_quota_proxy.proxy.quota.replication import ReplicationQuota
from kafka_quota_proxy.proxy.replication.config_watcher import ReplicationWatcher
from kafka_quota_proxy.proxy.replication.throttle import Throttle
from kafka_quota_proxy.proxy.server.listener_state import ListenerState

_RATE: Final = "bytes per second, over the windows of Kafka's measure"

_OF_WATCHER: Final[tuple[Metric[ReplicationWatcher], ...]] = (
    ("replication_throttle_orphaned",
     "Whether the cluster's configs throttle replication while nothing is being reassigned.",
     lambda watcher: watcher.is_orphaned),
    ("cluster_poll_successful", "Whether the cluster answered the last query.", lambda watcher: watcher.is_successful),
    ("cluster_poll_timestamp_seconds", "When the cluster last answered, Unix time; 0 if it never did.",
     lambda watcher: watcher.last_success_s),
)  # fmt: skip


# For each broker, its labels and its quota.
_Rows: TypeAlias = Sequence[tuple[str, ReplicationQuota]]


def replication_metrics(
    throttle: Throttle, watcher: ReplicationWatcher | None, listeners: Iterable[ListenerState], now_ms: int
) -> Iterator[Family]:
    """Yield the metrics of throttled replication (KIP-73), or nothing if no limit on replication has ever been set."""
    leaders = [
        (labels(broker=one.name), one.known_quota) for one in tuple(throttle.leaders) if one.known_quota is not None
    ]
    followers = [(labels(broker=str(node_id)), quota) for node_id, quota in throttle.followers.copy().items()]
    if throttle.replication is None and not leaders and not followers:
        return
    yield from _of_quotas("leader_replication", "leaderreplication", "sent as a leader", leaders, now_ms)
    yield from _of_quotas("follower_replication", "followerreplication", "fetched as a follower", followers, now_ms)
    yield from _of_partitions(listeners)
    yield from PROXY.single_values(_OF_WATCHER, watcher)


def _of_quotas(name: str, kafka_name: str, which: str, rows: _Rows, now_ms: int) -> Iterator[Family]:
    def rate(quota: ReplicationQuota) -> float:
        return quota.rate.peek(now_ms=now_ms)

    metrics: tuple[Metric[ReplicationQuota], ...] = (
        (f"{name}_throttled_rate", f"Throttled replicas' bytes {which}, {_RATE}.", rate),
        (f"{name}_throttled_limit", "The current limit, bytes per second.", lambda quota: quota.limit),
        (f"{name}_throttled_bytes_total", f"Throttled replicas' bytes {which}.", lambda quota: quota.total),
    )
    yield from PROXY.table(metrics, rows)
    help_ = f"The same as {PROXY.prefix}_{name}_throttled_rate."
    yield from Namespace("kafka_server").table([(f"{kafka_name}_byte_rate", help_, rate)], rows)


def _of_partitions(listeners: Iterable[ListenerState]) -> Iterator[Family]:
    """Yield two metrics: the lag of each follower, and the rate of writes to each throttled partition.

    The lag of a follower is the sum over its throttled partitions.
    """
    lags: dict[str, int] = {}
    rates: dict[tuple[str, str], float] = {}
    for listener in listeners:
        for connection in tuple(listener.connections):
            follower = connection.session.follower
            limits = follower.limits if follower is not None else None
            if follower is None or limits is None:
                continue
            broker = str(limits.follower)
            for (topic, partition), state in follower.seen.copy().items():
                lags[broker] = lags.get(broker, 0) + state.lag
                name = limits.name_of(topic, is_id=follower.has_ids) or topic.hex()
                rates[name, str(partition)] = max(rates.get((name, str(partition)), 0.0), state.bytes_in_rate)
    yield PROXY.gauge(
        "sum_replica_lag",
        "Lag of a follower's throttled replicas in offsets, as of their last fetches.",
        [(labels(broker=broker), lag) for broker, lag in lags.items()],
    )
    yield PROXY.gauge(
        "partition_bytes_in_rate",
        "What is written to a throttled partition, bytes per second: how fast its high watermark moves, in the bytes "
        "that an offset had when it was last fetched.",
        [(labels(topic=topic, partition=partition), rate) for (topic, partition), rate in rates.items()],
    )
