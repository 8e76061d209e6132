"""Reads what the status page shows, as one JSON document. Runs in a thread, which pauses after every few objects."""

import json
from collections.abc import Callable
from time import monotonic_ns
from typing import Any, Final

from kafka_quota_proxy.proxy.admin.clients.active import pause
from kafka_quota_proxy.proxy.admin.clients.rows import ClientTable, Overview, Row, Section
from kafka_quota_proxy.proxy.admin.metrics.exposition import Rest
from kafka_quota_proxy.proxy.admin.metrics.listeners import Reloads
from kafka_quota_proxy.proxy.admin.status.replication import replication_section
from kafka_quota_proxy.proxy.admin.status.sections import (
    MAX_BROKERS,
    broker_rows,
    change_rows,
    cut,
    queue_section,
    reload_section,
    rules_section,
)
from kafka_quota_proxy.proxy.admin.status.verdict import faults_of, verdict
from kafka_quota_proxy.proxy.runtime.build import installed_version
from kafka_quota_proxy.proxy.server.server import Server

MAX_THROTTLED: Final = 50
MAX_NEAR: Final = 20
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


class StatusReader:
    """Reads the state of a proxy for its status page. ``readiness`` returns the body of the response to ``/readyz``."""

    def __init__(self, server: Server, reloads: Reloads, readiness: Callable[[], dict[str, object]]) -> None:
        self._server = server
        self._reloads = reloads
        self._readiness = readiness
        self._table = ClientTable(server)

    def read(self, *, rest: Rest = pause) -> dict[str, Any]:
        """Return the document. Calls ``rest`` after every few rows to let the event loop run."""
        server, manager, last_read = self._server, self._server.quota_manager, self._reloads.last_read
        overview = self._table.overview(most_throttled=MAX_THROTTLED, most_near=MAX_NEAR, rest=rest)
        brokers = broker_rows(server)
        state = str(self._readiness()["state"])
        faults = faults_of(brokers, last_read, manager.source, server.replication.watcher)
        sentence = verdict(state, faults, overview, brokers)
        return {
            "time": overview.time,
            "version": installed_version(),
            "state": state,
            "well": sentence.startswith("Well"),
            "verdict": sentence,
            "clients": _clients(overview),
            "brokers": brokers[:MAX_BROKERS],
            "more_brokers": max(0, len(brokers) - MAX_BROKERS),
            "reload": reload_section(last_read),
            "rules": rules_section(manager),
            "changes": change_rows(manager.change_log),
            "queues": queue_section(server),
            "replication": replication_section(server, now_ms=monotonic_ns() // 1_000_000, rest=rest),
        }


def encoded(document: dict[str, Any], *, rest: Rest = pause) -> bytes:
    """Return the document as JSON in ASCII, encoded in pieces so that the event loop can run between them."""
    pieces = []
    for key, value in document.items():
        pieces.append(f"{_encode(key)}:{_encode(value)}")
        rest()
    return f"{{{','.join(pieces)}}}".encode()


def _clients(overview: Overview) -> dict[str, Any]:
    return {
        "clients": overview.clients,
        "total": overview.total,
        "throttled": _section(overview.throttled),
        "near": _section(overview.near),
    }


def _section(section: Section) -> dict[str, Any]:
    return section._asdict() | {"rows": [_bounded(row) for row in section.rows]}


def _bounded(row: Row) -> Row:
    """Return a row whose rule has names of a bounded length. Those of the client are bounded already."""
    rule = row["rule"]
    return row if rule is None else row | {"rule": {key: text and cut(text) for key, text in rule.items()}}
