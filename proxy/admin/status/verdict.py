"""Says in one sentence whether the proxy is well, which is the first that an operator wants to know."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kafka_quota_proxy.proxy.admin.clients.rows import Overview
from kafka_quota_proxy.proxy.replication.config_watcher import ReplicationWatcher
from kafka_quota_proxy.proxy.rules.source import RuleSource
from kafka_quota_proxy.proxy.server.config_reloader import LastRead

# How many brokers without a connection are named.
_MOST_NAMED: Final = 3
_STATES: Final = {
    "starting": "the proxy starts, and clients cannot connect yet",
    "draining": "the proxy stops, and waits for open connections to end",
}


def verdict(state: str, faults: Sequence[str], overview: Overview, brokers: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence such as ``Well: 12 clients, 3 throttled, 2 brokers reached``.

    ``state`` is that of ``/readyz``, and ``faults`` are what ``faults_of`` has found.
    """
    reached = sum(broker["reached"] for broker in brokers)
    of_all = f"{reached} of {len(brokers)}" if reached < len(brokers) else str(reached)
    noun = "broker" if of_all == "1" else "brokers"
    counts = f"{count(overview.clients, 'client')}, {overview.throttled.clients} throttled, {of_all} {noun} reached"
    found = [_STATES[state], *faults] if state in _STATES else faults
    return f"Not well: {'; '.join(found)}. {counts}" if found else f"Well: {counts}"


def faults_of(
    brokers: Sequence[Mapping[str, Any]],
    last_read: LastRead,
    source: RuleSource | None,
    watcher: ReplicationWatcher | None,
) -> list[str]:
    """Return what is not well, one text for each fault, or an empty list."""
    found = list(_unreached([one for one in brokers if not one["reached"]]))
    found += [
        f"the broker {one['addresses'][0]} sends clients past the proxy, to {one['bypass']}"
        for one in [one for one in brokers if one.get("bypass")][:_MOST_NAMED]
    ]
    if last_read.is_refused:
        found.append(last_read.message)
    if source is not None and not source.is_connected:
        if source.writer is None:
            found.append(f"the quotas of quotas_from ({source.name}) cannot be read")
        elif "directory" in source.status():
            found.append(f"the store of quotas {source.name} cannot be written")
        else:
            where = "in the topic " if "topic" in source.status() else ""
            found.append(f"the store of quotas {where}{source.name} cannot be reached")
    if watcher is not None and not watcher.is_successful:
        found.append("the cluster does not say which replication it throttles")
    if watcher is not None and watcher.is_orphaned:
        found.append("the cluster throttles replication while nothing is being reassigned")
    return found


def count(number: int, noun: str) -> str:
    """Return text such as ``1 client`` or ``2 clients``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _unreached(brokers: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    if brokers:
        others = len(brokers) - _MOST_NAMED
        named = ", ".join(f"{one['addresses'][0]} ({one['reason']})" for one in brokers[:_MOST_NAMED])
        named += f" and {count(others, 'other')}" if others > 0 else ""
        yield f"{'broker' if len(brokers) == 1 else 'brokers'} {named} cannot be reached"
