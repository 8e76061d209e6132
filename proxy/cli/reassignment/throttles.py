"""Which throttle holds for which move: by the operator's file, and by the dynamic configs of the cluster.

Both may be there, and then both count. Kafka's own throttle needs two things in two places, a rate at the broker
and a list at the topic; where one was lost the move runs free, which is said.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kafka_quota_proxy.config.model import Replication, ReplicationPath
from kafka_quota_proxy.config.throttled_replicas import ThrottledReplicas
from kafka_quota_proxy.proxy.cli.reassignment.model import Holder, Limit, Move, Side, Sizes, Source
from kafka_quota_proxy.proxy.cli.reassignment.phrases import duration_text, rate_text, size_text
from kafka_quota_proxy.proxy.cli.reassignment.progress import first_responses_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfigs:
    """What a broker's configs say of replication. A rate of None is no throttle; bytes per second."""

    leader_rate: float | None = None  # leader.replication.throttled.rate
    follower_rate: float | None = None
    response_bytes: int = 10 << 20  # replica.fetch.response.max.bytes
    fetch_bytes: int = 1 << 20  # replica.fetch.max.bytes, of each partition
    window_ms: int = 11_000  # replication.quota.window.num times replication.quota.window.size.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterThrottles:
    """What a cluster's configs say. Brokers by node id, lists by topic; a topic without a list has no throttle."""

    brokers: Mapping[int, BrokerConfigs] = field(default_factory=dict)
    leader_replicas: Mapping[str, ThrottledReplicas] = field(default_factory=dict)
    follower_replicas: Mapping[str, ThrottledReplicas] = field(default_factory=dict)
    unknown: tuple[int, ...] = ()  # brokers that do not tell their configs


_NOBODY = BrokerConfigs()


def cluster_limits(moves: Mapping[Move, Sizes], cluster: ClusterThrottles) -> list[Limit]:
    """Return the throttles of the cluster, as Kafka's brokers enforce them, that hold for any of the moves."""
    return [
        *_by_side(
            Side.LEADER,
            _listed_at_leader(moves, cluster.leader_replicas),
            lambda move: moves[move].leader,
            lambda node: cluster.brokers.get(node, _NOBODY).leader_rate,
            source=Source.CLUSTER,
            charges_in_sync=True,
        ),
        *_by_side(
            Side.FOLLOWER,
            _listed_at_follower(moves, cluster.follower_replicas),
            lambda move: move.follower,
            lambda node: cluster.brokers.get(node, _NOBODY).follower_rate,
            source=Source.CLUSTER,
        ),
    ]


def file_limits(
    moves: Mapping[Move, Sizes],
    replication: Replication,
    *,
    leaders: Collection[int] | None,
    racks: Mapping[int, str | None],
) -> list[Limit]:
    """Return the throttles of the file that hold for any of the moves.

    Args:
        moves: What is on its way.
        replication: The section of the file.
        leaders: Node ids of the brokers behind the proxy; None: all.
        racks: Of each broker that has one.
    """
    behind = {move: sizes for move, sizes in moves.items() if leaders is None or sizes.leader in leaders}
    at_leader = replication.leader_replicas
    at_follower = replication.follower_replicas
    return [
        *_by_side(
            Side.LEADER,
            behind if at_leader is None else _listed_at_leader(behind, at_leader),
            lambda move: moves[move].leader,
            lambda _: replication.leader_rate,
            source=Source.FILE,
            charges_in_sync=at_leader is not None,
        ),
        *_by_side(
            Side.FOLLOWER,
            behind if at_follower is None else _listed_at_follower(behind, at_follower),
            lambda move: move.follower,
            lambda _: replication.follower_rate,
            source=Source.FILE,
        ),
        *_by_path(behind, replication, racks),
    ]


def untold(cluster: ClusterThrottles) -> Iterator[str]:
    """Yield a sentence for each broker whose throttle is not known."""
    for broker in cluster.unknown:
        yield f"whether broker {broker} has a throttle is not known: reading its configs takes DESCRIBE_CONFIGS"


def unlisted(moves: Mapping[Move, Sizes], cluster: ClusterThrottles) -> Iterator[str]:
    """Yield a sentence for each topic whose moves run free because only one half of Kafka's throttle is there."""
    sides = (
        ("leader", _listed_at_leader(moves, cluster.leader_replicas), lambda move: moves[move].leader),
        ("follower", _listed_at_follower(moves, cluster.follower_replicas), lambda move: move.follower),
    )
    for side, listed, broker_of in sides:
        free: dict[tuple[str, int], None] = {}
        for move in sorted(moves.keys() - listed):
            broker = broker_of(move)
            configs = cluster.brokers.get(broker, _NOBODY)
            if (configs.leader_rate if side == "leader" else configs.follower_rate) is not None:
                free[move.topic, broker] = None
        for topic, broker in free:
            yield (
                f"{topic} is not throttled at its {side} {broker}: that broker has a rate, but not all partitions on "
                f"their way are in {side}.replication.throttled.replicas of the topic"
            )


def spread(
    moves: Mapping[Move, Sizes], replication: Replication, *, leaders: Collection[int] | None, proxied: int
) -> Iterator[str]:
    """Yield a sentence for each follower that the file's throttle may hold for in part only.

    Args:
        moves: What is on its way.
        replication: The section of the file.
        leaders: Node ids of the brokers behind the proxy; None: they are not known.
        proxied: How many brokers are behind it.
    """
    if replication.follower_rate is None:
        return
    for follower in sorted({move.follower for move in moves}):
        of = sorted({sizes.leader for move, sizes in moves.items() if move.follower == follower})
        past = of if leaders is None else [leader for leader in of if leader not in leaders]
        if len(of) > 1 and (past if leaders is not None else len(of) > proxied):
            rate = rate_text(replication.follower_rate)
            yield (
                f"broker {follower} fetches from {len(of)} leaders, and this file's throttle of it, {rate}, holds at "
                f"each proxy for itself: behind proxies of their own it may be up to {len(of)} times that; give each "
                "proxy its share, or let one proxy serve all brokers"
            )


def bursts(moves: Mapping[Move, Sizes], limits: Iterable[Limit], cluster: ClusterThrottles) -> Iterator[str]:
    """Yield a sentence for each follower whose first responses do not fit into its quota's window (KIP-73)."""
    leader_rates = {limit.holder.leader: limit.rate for limit in limits if _is_kafkas(limit, Side.LEADER)}
    follower_rates = {limit.holder.follower: limit.rate for limit in limits if _is_kafkas(limit, Side.FOLLOWER)}
    for follower in sorted({move.follower for move in moves}):
        configs = cluster.brokers.get(follower, _NOBODY)
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
                f"broker {follower} comes in bursts: its first responses, {len(by_leader)} of up to "
                f"{size_text(response_bytes)}, are {duration_text(takes_ms)} of its throttle, and its window is "
                f"{duration_text(configs.window_ms)}; from {rate_text(fits)} on they fit, or with a lower "
                "replica.fetch.response.max.bytes"
            )


def _is_kafkas(limit: Limit, side: Side) -> bool:
    return limit.source is Source.CLUSTER and limit.holder.side is side


def _listed_at_leader(moves: Mapping[Move, Sizes], lists: Mapping[str, ThrottledReplicas]) -> set[Move]:
    return {
        move
        for move, sizes in moves.items()
        if move.topic in lists and lists[move.topic].holds(move.partition, sizes.leader)
    }


def _listed_at_follower(moves: Mapping[Move, Sizes], lists: Mapping[str, ThrottledReplicas]) -> set[Move]:
    return {move for move in moves if move.topic in lists and lists[move.topic].holds(move.partition, move.follower)}


def _by_side(
    side: Side,
    moves: Iterable[Move],
    broker_of: Callable[[Move], int],
    rate_of: Callable[[int], float | None],
    *,
    source: Source,
    charges_in_sync: bool = False,
) -> Iterator[Limit]:
    together: dict[int, set[Move]] = {}
    for move in moves:
        together.setdefault(broker_of(move), set()).add(move)
    for broker, its in together.items():
        rate = rate_of(broker)
        if rate is not None:
            holder = Holder(side, broker, None) if side is Side.LEADER else Holder(side, None, broker)
            yield Limit(source=source, holder=holder, rate=rate, moves=frozenset(its), charges_in_sync=charges_in_sync)


def _by_path(moves: Mapping[Move, Sizes], replication: Replication, racks: Mapping[int, str | None]) -> Iterator[Limit]:
    """Yield a limit for each path: all that fits a rule shares it. Of several that fit, each holds."""
    at_leader, at_follower = replication.leader_replicas, replication.follower_replicas
    listed = set(moves)
    if not replication.from_cluster and at_leader is not None and at_follower is not None:
        listed = _listed_at_leader(moves, at_leader) | _listed_at_follower(moves, at_follower)
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
    """Return whence and where to, as "broker 1 to rack b"."""
    ends = ((path.leader, path.leader_rack), (path.follower, path.follower_rack))
    words = [
        " of ".join(
            [*([f"broker {broker}"] if broker is not None else []), *([f"rack {rack}"] if rack is not None else [])]
        )
        or "anywhere"
        for broker, rack in ends
    ]
    return f"from {words[0]} to {words[1]}"
