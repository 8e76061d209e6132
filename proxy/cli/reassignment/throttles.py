"""Finds the throttles of each move, in the proxy's configuration file and in the dynamic configs of the cluster.

If a move has throttles from both sources, both apply. Kafka throttles a move only if the broker has a rate and the
topic's list of throttled replicas contains the move. If a broker has a rate but the list lacks the move, the report
warns about it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import TypeAlias

from kafka_quota_proxy.config.model import Replication, ReplicationPath
from kafka_quota_proxy.config.throttled_replicas import ThrottledReplicas
from kafka_quota_proxy.proxy.cli.reassignment.human_units import duration_text, rate_text, size_text
from kafka_quota_proxy.proxy.cli.reassignment.model import Holder, Limit, Move, Side, Sizes, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfigs:
    """Holds one broker's configs that affect replication.

    The throttles ``leader_rate`` and ``follower_rate`` are in bytes per second, or None if there is no throttle.
    """

    leader_rate: float | None = None  # leader.replication.throttled.rate
    follower_rate: float | None = None
    response_bytes: int = 10 << 20  # replica.fetch.response.max.bytes
    fetch_bytes: int = 1 << 20  # replica.fetch.max.bytes, of each partition
    window_ms: int = 11_000  # replication.quota.window.num times replication.quota.window.size.seconds


_Lists: TypeAlias = Mapping[
    str, ThrottledReplicas
]  # throttled replicas by topic; a topic without a list is not throttled


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterThrottles:
    """Holds the replication configs of a cluster's brokers and topics. Brokers are identified by node id."""

    brokers: Mapping[int, BrokerConfigs] = field(default_factory=dict)
    leader_replicas: _Lists = field(default_factory=dict)
    follower_replicas: _Lists = field(default_factory=dict)
    unknown: tuple[int, ...] = ()  # brokers with configs that this client cannot read

    def configs(self, node_id: int) -> BrokerConfigs:
        """Return the configs of a broker, or Kafka's defaults if its configs are unknown."""
        return self.brokers.get(node_id, _NO_CONFIGS)

    def rate(self, side: Side, node_id: int) -> float | None:
        """Return the throttle that a broker has as a leader or as a follower (``side``), or None if it has none."""
        configs = self.configs(node_id)
        return configs.leader_rate if side is Side.LEADER else configs.follower_rate

    def listed(self, side: Side, moves: Mapping[Move, Sizes]) -> dict[Move, Sizes]:
        """Return the moves that their topic lists as throttled, at the leader or at the follower (``side``)."""
        return _listed(side, moves, self.leader_replicas if side is Side.LEADER else self.follower_replicas)


_NO_CONFIGS = BrokerConfigs()
_SIDES = (Side.LEADER, Side.FOLLOWER)


def cluster_limits(moves: Mapping[Move, Sizes], cluster: ClusterThrottles) -> Iterator[Limit]:
    """Yield the throttles that Kafka's brokers themselves apply to the copying of any replica in ``moves``."""
    for side in _SIDES:
        for broker, its in _by_broker(side, cluster.listed(side, moves)).items():
            rate = cluster.rate(side, broker)
            if rate is not None:
                yield _limit(Source.CLUSTER, side, broker, rate, its, charges_in_sync=side is Side.LEADER)


def file_limits(
    moves: Mapping[Move, Sizes],
    replication: Replication,
    *,
    leaders: Collection[int] | None,
    racks: Mapping[int, str | None],
) -> Iterator[Limit]:
    """Yield the throttles of the proxy's configuration file that apply to any of the moves.

    ``leaders`` contains the node ids of the brokers behind the proxy, or is None if all brokers count as behind it.
    ``racks`` contains the rack of each broker.
    """
    behind = {move: sizes for move, sizes in moves.items() if leaders is None or sizes.leader in leaders}
    for side, rate, lists in (
        (Side.LEADER, replication.leader_rate, replication.leader_replicas),
        (Side.FOLLOWER, replication.follower_rate, replication.follower_replicas),
    ):
        if rate is not None:
            listed = behind if lists is None else _listed(side, behind, lists)
            charges_in_sync = side is Side.LEADER and lists is not None
            for broker, its in _by_broker(side, listed).items():
                yield _limit(Source.FILE, side, broker, rate, its, charges_in_sync=charges_in_sync)
    yield from _by_path(behind, replication, racks)


def unknown_throttles(cluster: ClusterThrottles) -> Iterator[str]:
    """Yield a sentence of warning for each broker whose throttle cannot be read."""
    for broker in cluster.unknown:
        yield f"the throttle of broker {broker} is unknown: reading its configs needs DESCRIBE_CONFIGS"


def unlisted_moves(moves: Mapping[Move, Sizes], cluster: ClusterThrottles) -> Iterator[str]:
    """Yield a sentence for each topic and broker where the broker has a throttle that some of the topic's moves escape.

    These moves are missing from the topic's list of throttled replicas.
    """
    for side in _SIDES:
        free: dict[tuple[str, int], None] = {}
        for move in sorted(moves.keys() - cluster.listed(side, moves).keys()):
            broker = _broker(side, move, moves[move])
            if cluster.rate(side, broker) is not None:
                free[move.topic, broker] = None
        for topic, broker in free:
            yield (
                f"{topic} is not throttled at its {side.value} {broker}: that broker has a rate, but the topic's "
                f"{side.value}.replication.throttled.replicas does not list all moving partitions"
            )


def split_throttles(
    moves: Mapping[Move, Sizes], replication: Replication, *, leaders: Collection[int] | None, proxied: int
) -> Iterator[str]:
    """Yield a warning for each follower that may exceed its throttle because it fetches through several proxies.

    ``leaders`` contains the node ids of the brokers behind this proxy, or is None if they are unknown. ``proxied`` is
    the number of these brokers.
    """
    if replication.follower_rate is None:
        return
    for follower in sorted({move.follower for move in moves}):
        of = {sizes.leader for move, sizes in moves.items() if move.follower == follower}
        bypasses_proxy = len(of) > proxied if leaders is None else not of <= set(leaders)
        if len(of) > 1 and bypasses_proxy:
            rate = rate_text(replication.follower_rate)
            yield (
                f"broker {follower} fetches from {len(of)} leaders; each proxy applies this file's throttle of {rate} "
                f"by itself: with one proxy per leader the follower may get up to {len(of)} times that; give each "
                "proxy its share, or let one proxy serve all brokers"
            )


def bursts(moves: Mapping[Move, Sizes], limits: Iterable[Limit], cluster: ClusterThrottles) -> Iterator[str]:
    """Yield a warning for each follower that fetches in bursts.

    A follower does so if its first responses, at its throttle, take longer than the window of its quota (KIP-73).
    """
    leader_rates = {limit.holder.leader: limit.rate for limit in limits if _is_kafkas(limit, Side.LEADER)}
    follower_rates = {limit.holder.follower: limit.rate for limit in limits if _is_kafkas(limit, Side.FOLLOWER)}
    for follower in sorted({move.follower for move in moves}):
        configs = cluster.configs(follower)
        by_leader: dict[int, int] = {}
        for move, sizes in moves.items():
            if move.follower == follower:
                by_leader[sizes.leader] = by_leader.get(sizes.leader, 0) + configs.fetch_bytes
        response_bytes = min(configs.response_bytes, max(by_leader.values()))
        rates = [leader_rates[leader] for leader in by_leader if leader in leader_rates]
        takes_ms = first_responses_ms(
            leaders=len(by_leader),
            response_bytes=response_bytes,
            leader_rate=min(rates, default=None),
            follower_rate=follower_rates.get(follower),
        )
        if takes_ms is not None and takes_ms > configs.window_ms:
            fits = len(by_leader) * response_bytes * 1_000 / configs.window_ms
            yield (
                f"broker {follower} fetches in bursts: its first responses, {len(by_leader)} of up to "
                f"{size_text(response_bytes)}, take {duration_text(takes_ms)} at its throttle, and its window is "
                f"{duration_text(configs.window_ms)}; set at least {rate_text(fits)}, or a lower "
                "replica.fetch.response.max.bytes"
            )


def first_responses_ms(
    *, leaders: int, response_bytes: int, leader_rate: float | None, follower_rate: float | None
) -> float | None:
    """Return how long a follower's first responses take at its throttle, or None if it has no throttle.

    The first responses of all leaders arrive before any of their bytes are counted. If they take longer than the
    quota's window, they exceed the throttle, and each window begins with a burst. ``leaders`` is the number of leaders
    that the follower fetches from, and ``response_bytes`` the size of each response. ``follower_rate`` is the throttle
    for all leaders together, and ``leader_rate`` the throttle for each leader.

    Source: question 5 of KIP-73, with the follower's throttle instead of its network speed.
    """
    rates = [
        rate for rate in (None if leader_rate is None else leader_rate * leaders, follower_rate) if rate is not None
    ]
    if not rates:
        return None
    return leaders * response_bytes * 1_000 / min(rates) if min(rates) > 0 else inf


def _is_kafkas(limit: Limit, side: Side) -> bool:
    return limit.source is Source.CLUSTER and limit.holder.side is side


def _broker(side: Side, move: Move, sizes: Sizes) -> int:
    return sizes.leader if side is Side.LEADER else move.follower


def _listed(side: Side, moves: Mapping[Move, Sizes], lists: _Lists) -> dict[Move, Sizes]:
    return {
        move: sizes
        for move, sizes in moves.items()
        if move.topic in lists and lists[move.topic].holds(move.partition, _broker(side, move, sizes))
    }


def _by_broker(side: Side, moves: Mapping[Move, Sizes]) -> dict[int, set[Move]]:
    by_broker: dict[int, set[Move]] = {}
    for move, sizes in moves.items():
        by_broker.setdefault(_broker(side, move, sizes), set()).add(move)
    return by_broker


def _limit(
    source: Source, side: Side, broker: int, rate: float, moves: Iterable[Move], *, charges_in_sync: bool
) -> Limit:
    holder = Holder(side, broker, None) if side is Side.LEADER else Holder(side, None, broker)
    return Limit(source=source, holder=holder, rate=rate, moves=frozenset(moves), charges_in_sync=charges_in_sync)


def _by_path(moves: Mapping[Move, Sizes], replication: Replication, racks: Mapping[int, str | None]) -> Iterator[Limit]:
    """Yield the throttle of each path in the configuration file that applies to any of the moves."""
    at_leader, at_follower = replication.leader_replicas, replication.follower_replicas
    listed = moves
    if not replication.from_cluster and at_leader is not None and at_follower is not None:
        listed = _listed(Side.LEADER, moves, at_leader) | _listed(Side.FOLLOWER, moves, at_follower)
    for path in replication.paths:
        its = frozenset(move for move in listed if _fits(path, moves[move].leader, move.follower, racks))
        if its:
            holder = Holder(Side.PATH, path.leader, path.follower, _ends(path))
            yield Limit(source=Source.FILE, holder=holder, rate=path.rate, moves=its)


def _fits(path: ReplicationPath, leader: int, follower: int, racks: Mapping[int, str | None]) -> bool:
    return (
        path.leader in (None, leader)
        and path.follower in (None, follower)
        and path.leader_rack in (None, racks.get(leader))
        and path.follower_rack in (None, racks.get(follower))
    )


def _ends(path: ReplicationPath) -> str:
    """Return words for the two ends between which a path limits replication, as "from broker 1 to rack b"."""
    ends = ((path.leader, path.leader_rack), (path.follower, path.follower_rack))
    words = [
        " of ".join(
            [*([f"broker {broker}"] if broker is not None else []), *([f"rack {rack}"] if rack is not None else [])]
        )
        or "anywhere"
        for broker, rack in ends
    ]
    return f"from {words[0]} to {words[1]}"
