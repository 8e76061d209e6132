"""Computes the replication throttles that the cluster's own configs set, and finds those that seem to be forgotten.

This module does no I/O and reads no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kafka_quota_proxy.config.model import Address, Listener, ProxyConfig
from kafka_quota_proxy.config.throttled_replicas import ThrottledReplicas, read
from kafka_quota_proxy.config.units import UNLIMITED

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"

# When to warn of a throttle without a reassignment. kafka-reassign-partitions.sh sets a throttle before it begins to
# reassign.
_WARN_AFTER_MS: Final = 10_000
_MOST_NAMED: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """Holds the part of the cluster's state from which the replication limits are computed.

    Until the cluster first answers, it contains at most node ids from the configuration file.

    Rates are in bytes per second. A broker without a rate is unlimited, and a rate of 0 stops throttled replication. A
    topic without a list has no throttled replicas. Unless ``replication.from_cluster`` is set, there are no rates or
    lists.
    """

    topic_names: Mapping[bytes, str] = field(default_factory=dict)  # by topic id, 16 bytes
    leader_rates: Mapping[int, float] = field(default_factory=dict)  # by node id
    follower_rates: Mapping[int, float] = field(default_factory=dict)
    leader_replicas: Mapping[str, ThrottledReplicas] = field(default_factory=dict)  # by topic
    follower_replicas: Mapping[str, ThrottledReplicas] = field(default_factory=dict)
    moving: frozenset[tuple[str, int]] = frozenset()  # partitions that are being reassigned
    node_ids: Mapping[Address, int] = field(default_factory=dict)  # by the address of an upstream

    @property
    def has_throttle(self) -> bool:
        """Whether any broker has a replication rate, or any topic has a list of throttled replicas."""
        return bool(self.leader_rates or self.follower_rates or self.leader_replicas or self.follower_replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """Holds what one poll read from the cluster. If a field is None, its last known value still applies."""

    brokers: tuple[int, ...]  # the node ids of all brokers
    topic_names: Mapping[bytes, str] | None = None
    broker_configs: Mapping[int, Mapping[str, str | None] | None] | None = None  # by node id, then by key
    topic_configs: Mapping[str, Mapping[str, str | None]] | None = None
    moving: frozenset[tuple[str, int]] = frozenset()


def servers_of(listeners: Iterable[Listener]) -> tuple[Address, ...]:
    """Return the addresses of the brokers to which ``listeners`` forward their clients, each address once."""
    servers: dict[Address, None] = {}
    for listener in listeners:
        if listener.upstream is not None:
            servers[listener.upstream] = None
        if listener.cluster is not None:
            servers |= dict.fromkeys(listener.cluster.bootstrap_servers)
    return tuple(servers)


def servers_behind(config: ProxyConfig) -> tuple[Address, ...]:
    """Return the addresses of the brokers behind ``inter_broker`` listeners, to which followers connect."""
    return servers_of(listener for listener in config.listeners if listener.inter_broker)


def view_of(readings: Readings, before: ClusterView) -> tuple[ClusterView, tuple[str, ...]]:
    """Return the cluster's state ``before``, updated from ``readings``, and error texts for invalid configs."""
    unread: list[str] = []
    view = replace(
        before,
        moving=readings.moving,
        leader_rates=_rates(readings, LEADER_RATE, before.leader_rates, unread),
        follower_rates=_rates(readings, FOLLOWER_RATE, before.follower_rates, unread),
        leader_replicas=_replicas(readings, LEADER_REPLICAS, before.leader_replicas, unread),
        follower_replicas=_replicas(readings, FOLLOWER_REPLICAS, before.follower_replicas, unread),
    )
    if readings.topic_names is not None:
        view = replace(view, topic_names=readings.topic_names)
    return view, tuple(unread)


class ForgottenThrottle:
    """Finds a throttle that the cluster still has a while after the last reassignment ended, and warns of it once.

    ``is_reported`` is True while the throttle that the operator was warned of is still set.
    """

    def __init__(self) -> None:
        self.is_reported = False
        self._throttle: ClusterView | None = None  # the throttle without a reassignment
        self._since_ms = 0

    def warning(self, view: ClusterView, *, now_ms: int) -> str | None:
        """Return the warning about the throttle in a view, or None if there is nothing new to warn of."""
        throttle = replace(view, topic_names={}, node_ids={})
        if view.moving or not view.has_throttle:
            self._throttle, self.is_reported = None, False
        elif throttle != self._throttle:
            self._throttle, self._since_ms, self.is_reported = throttle, now_ms, False
        elif not self.is_reported and now_ms - self._since_ms >= _WARN_AFTER_MS:
            self.is_reported = True
            return f"the cluster throttles replication while nothing is being reassigned: {_described(view)}"
        return None


def _rates(readings: Readings, key: str, before: Mapping[int, float], unread: list[str]) -> Mapping[int, float]:
    if readings.broker_configs is None:
        return before
    rates: dict[int, float] = {}
    for broker, configs in readings.broker_configs.items():
        # If a broker does not answer, its rate is kept, because the cluster stores the rate.
        known = before.get(broker)
        rate = known if configs is None else _rate(configs.get(key), f"broker {broker}: {key}", unread)
        if rate is not None:
            rates[broker] = rate
    return rates


def _rate(value: str | None, what: str, unread: list[str]) -> float | None:
    if value is None:
        return None
    if not value.isascii() or not value.isdigit() or len(value) > len(str(UNLIMITED)):
        unread.append(f"{what}={value[:80]!r} is not a number of bytes per second")
        return None
    # Kafka's Long.MAX_VALUE means unlimited.
    return float(value) if int(value) < UNLIMITED else None


def _replicas(
    readings: Readings, key: str, before: Mapping[str, ThrottledReplicas], unread: list[str]
) -> Mapping[str, ThrottledReplicas]:
    if readings.topic_configs is None:
        return before
    lists: dict[str, ThrottledReplicas] = {}
    for topic, configs in readings.topic_configs.items():
        replicas, items = read(configs.get(key) or "")
        if replicas.is_all or replicas.partitions:
            lists[topic] = replicas
        unread += (f"topic {topic}: {key}: {item[:80]!r} is not a replica" for item in items)
    return lists


def _described(view: ClusterView) -> str:
    topics = sorted(view.leader_replicas.keys() | view.follower_replicas.keys())
    brokers = sorted(view.leader_rates.keys() | view.follower_rates.keys())
    return (
        f"topics {_named(topics)}; brokers {_named(map(str, brokers))}. "
        "To remove it: kafka-reassign-partitions.sh --verify with the file of the reassignment, or kafka-configs.sh "
        f"--alter --entity-type topics --entity-name TOPIC --delete-config {LEADER_REPLICAS},{FOLLOWER_REPLICAS} and "
        f"--alter --entity-type brokers --entity-name BROKER --delete-config {LEADER_RATE},{FOLLOWER_RATE} "
        "(--entity-default for the cluster's default)"
    )


def _named(names: Iterable[str]) -> str:
    found: Sequence[str] = list(names)
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return f"{', '.join(found[:_MOST_NAMED])}{more}" if found else "none"
