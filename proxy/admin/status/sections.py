"""Reads the sections of the status page about brokers, the configuration file, changes of quotas and queues.

This code runs in a thread. Each section has a bounded number of rows, and each name a bounded length.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.config.terms import written_terms
from kafka_quota_proxy.proxy.rules.administration import QuotaManager
from kafka_quota_proxy.proxy.rules.audit import MAX_TEXT, ChangeLog, RecentChange
from kafka_quota_proxy.proxy.rules.model import StoredRule
from kafka_quota_proxy.proxy.rules.text import shown_limit, shown_name, shown_term
from kafka_quota_proxy.proxy.server.brokers.broker import Broker, Upstream
from kafka_quota_proxy.proxy.server.brokers.faults import Fault
from kafka_quota_proxy.proxy.server.config_reloader import LastRead
from kafka_quota_proxy.proxy.server.server import Server

Row = dict[str, Any]


MAX_BROKERS: Final = 100
MAX_FAULTS: Final = 20
MAX_USERS: Final = 5


def broker_rows(server: Server) -> list[Row]:
    """Return a row for each broker behind the proxy. A broker may have several addresses."""
    faults, upstreams_of = server.brokers.faults(), dict[Broker, list[Upstream]]()
    for upstream in server.brokers.in_use:
        upstreams_of.setdefault(upstream.broker, []).append(upstream)
    rows = [
        _broker_row(_node_id(some), {one.address: faults.pop(one.address, one.fault) for one in some}, some)
        for some in upstreams_of.values()
    ]
    rows += (_broker_row(None, {address: fault}) for address, fault in faults.items())
    rows.sort(key=lambda row: (row["reached"], row["node_id"] is None, row["node_id"] or 0))
    return rows


def reload_section(last_read: LastRead) -> Row:
    """Return what came of the last time that the configuration file was read."""
    return {
        "time": iso(last_read.time_s),
        "event": last_read.event,
        "message": last_read.message,
        "faults": [cut(str(fault)) for fault in last_read.faults[:MAX_FAULTS]],
        "more_faults": max(0, len(last_read.faults) - MAX_FAULTS),
        "needs_restart": last_read.needs_restart[:MAX_FAULTS],
    }


def rules_section(manager: QuotaManager) -> Row:
    """Return the sources of the rules, and how many rules come from each."""
    rules, source = manager.rules, manager.source
    return {
        "of_file": len(rules.sources),
        "source": source and cut(source.name),
        "of_source": len(rules.stored),
        "hidden": rules.overruled,
        "connected": source is None or source.is_connected,
    }


def change_rows(change_log: ChangeLog | None) -> list[Row] | None:
    """Return the last changes of quotas, the newest first, or None if this proxy has no store of quotas."""
    return None if change_log is None else [_change(one) for one in reversed(change_log.recent.copy())]


def queue_section(server: Server) -> list[Row] | None:
    """Return the state of the fair call queue of each listener that has one, or None if none has."""
    return [
        {
            "listener": listener.name,
            "users": [
                {"identity": cut(user.identity), "level": user.level, "share": round(user.share, 4)}
                for user in priorities.scheduler.top(MAX_USERS)
            ],
            "average_response_ms": [round(time_ms, 3) for time_ms in priorities.scheduler.average_response_ms],
            "brokers": [
                {
                    "upstream": str(upstream.address),
                    "queue_sizes": queue.dispatcher.queue.sizes,
                    "in_flight": queue.dispatcher.in_flight,
                    "max_in_flight": queue.dispatcher.limit,
                }
                for upstream in server.brokers.upstreams_of(listener)[:MAX_BROKERS]
                if (queue := upstream.broker.queue) is not None
            ],
        }
        for listener in server.listeners
        if (priorities := listener.priorities) is not None
    ] or None


def iso(time_s: float) -> str:
    """Return a Unix time as text in UTC, to the millisecond."""
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def cut(text: str) -> str:
    """Return a text, or its beginning if it is long. Clients choose their names, which may have 32,767 bytes."""
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"


def _broker_row(node_id: int | None, faults: Mapping[Address, Fault | None], upstreams: Iterable[Upstream] = ()) -> Row:
    """Return the row of a broker. It is reached if one of its addresses is."""
    fault = None if None in faults.values() else next(iter(faults.values()))
    bypass = next((one.bypass for one in upstreams if one.bypass is not None), None)
    return {
        "node_id": node_id,
        "addresses": [str(address) for address in faults],
        "reached": fault is None,
        "failures": sum(one.failures for one in upstreams),
        "reason": fault and fault.reason,
        "detail": fault and cut(fault.detail),
        "bypass": bypass and str(bypass),
    }


def _node_id(upstreams: Iterable[Upstream]) -> int | None:
    for upstream in upstreams:
        if upstream.broker.identity is not None:
            return upstream.broker.identity.node_id
        if upstream.broker.leader is not None and upstream.broker.leader.node_id is not None:
            return upstream.broker.leader.node_id
    return None


def _change(change: RecentChange) -> Row:
    outcome, origin = change.outcome, change.origin
    old, new = _shown(outcome.old), _shown(outcome.new)
    entity = ", ".join(f"{kind} {'<default>' if name is None else shown_name(name)}" for kind, name in outcome.entity)
    return {
        "time": iso(change.unix_ms / 1_000),
        "principal": cut(origin.principal),
        "address": origin.address,
        "listener": origin.listener,
        "entity": cut(entity),
        "result": outcome.result,
        "changed": [
            {"key": key, "old": old.get(key), "new": new.get(key)}
            for key in {**old, **new}
            if old.get(key) != new.get(key)
        ],
    }


def _shown(rule: StoredRule | None) -> Mapping[str, str]:
    if rule is None:
        return {}
    limits = {key: shown_limit(key, value) for key, value in rule.limits.items()}
    return limits | {key: cut(shown_term(value)) for key, value in written_terms(rule.terms).items()}
