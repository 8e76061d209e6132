"""Reads the section of the status page about throttled replication, which slows down a rebalance. Runs in a thread."""

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, Final

from kafka_quota_proxy.config.units import written_rate
from kafka_quota_proxy.proxy.admin.clients.active import pause
from kafka_quota_proxy.proxy.admin.metrics.exposition import Rest, paced
from kafka_quota_proxy.proxy.admin.status.sections import iso
from kafka_quota_proxy.proxy.quota.replication import ReplicationQuota
from kafka_quota_proxy.proxy.replication.config_watcher import ReplicationWatcher
from kafka_quota_proxy.proxy.replication.throttle import Path, Throttle
from kafka_quota_proxy.proxy.server.server import Server

MAX_ROWS: Final = 20
_CONNECTIONS: Final = 800  # between two pauses

Row = dict[str, Any]


def replication_section(server: Server, *, now_ms: int, rest: Rest = pause) -> Row | None:
    """Return what the proxy knows of throttled replication, or None if the file has no section ``replication``."""
    throttle, watcher = server.replication.throttle, server.replication.watcher
    if throttle.replication is None:
        return None
    lags = _lags(server, rest)
    rows = [*_rows(throttle, lags, now_ms)]
    rows.sort(key=itemgetter("rate"), reverse=True)
    return {"cluster": _cluster(throttle, watcher), "limits": rows[:MAX_ROWS], "total": len(rows)}


def _cluster(throttle: Throttle, watcher: ReplicationWatcher | None) -> Row | None:
    """Return what the cluster says of itself, or None before it has answered."""
    if watcher is None or not watcher.last_success_s:
        return None
    moving = throttle.view.moving
    topics = sorted({topic for topic, _ in moving})
    return {
        "read": iso(watcher.last_success_s),
        "answers": watcher.is_successful,
        "orphaned": watcher.is_orphaned,
        "moving_partitions": len(moving),
        "moving_topics": topics[:MAX_ROWS],
        "throttled_topics": len({*throttle.view.leader_replicas, *throttle.view.follower_replicas}),
    }


def _rows(throttle: Throttle, lags: dict[int, int], now_ms: int) -> Iterable[Row]:
    """Yield a row for each broker that sends or fetches, and for each path, as far as it was ever limited."""

    def row(side: str, name: str, quota: ReplicationQuota, lag: int | None = None) -> Row:
        rate = round(quota.rate.peek(now_ms=now_ms), 1)
        written = None if quota.limit is None else written_rate(quota.limit)
        limit = {"limit": quota.limit, "limit_written": written}
        return {"side": side, "name": name, "rate": rate, **limit, "bytes": quota.total, "lag": lag}

    for leader in tuple(throttle.leaders):
        if leader.known_quota is not None:
            yield row("leader", leader.name, leader.known_quota)
    for node_id, quota in throttle.followers.copy().items():
        yield row("follower", str(node_id), quota, lags.get(node_id))
    for path, quota in throttle.paths.copy().items():
        yield row("path", _path_name(path), quota)


def _path_name(path: Path) -> str:
    def end(broker: int | None, rack: str | None) -> str:
        names = (f"broker {broker}" if broker is not None else None, f"rack {rack}" if rack is not None else None)
        return " ".join(name for name in names if name) or "any"

    return f"{end(path.leader, path.leader_rack)} to {end(path.follower, path.follower_rack)}"


def _lags(server: Server, rest: Callable[[], None]) -> dict[int, int]:
    """Return the lag of each follower in offsets: the sum over its throttled partitions, as of their last fetches."""
    lags: dict[int, int] = {}
    for listener in list(server.listeners):
        for connection in paced(list(listener.connections), rest, every=_CONNECTIONS):
            follower = connection.session.follower
            limits = follower.limits if follower is not None else None
            if follower is not None and limits is not None:
                lag = sum(state.lag for state in follower.seen.copy().values())
                lags[limits.follower] = lags.get(limits.follower, 0) + lag
    return lags
