"""Reads what the status page shows, as one JSON document. Runs in a thread, which pauses after every few objects."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kafka_quota_proxy.proxy.admin.clients.active import pause
from kafka_quota_proxy.proxy.admin.clients.rows import ClientTable, Overview, Row, Section
from kafka_quota_proxy.proxy.admin.metrics.exposition import Rest
from kafka_quota_proxy.proxy.admin.metrics.listeners import Reloads
from kafka_quota_proxy.proxy.admin.requests import Reply
from kafka_quota_proxy.proxy.admin.status.sections import (
    MAX_BROKERS,
    broker_rows,
    change_rows,
    cut,
    queue_section,
    reload_section,
    rules_section,
)
from kafka_quota_proxy.proxy.replication.config_watcher import ReplicationWatcher
from kafka_quota_proxy.proxy.rules.source import RuleSource
from kafka_quota_proxy.proxy.runtime.build import installed_version
from kafka_quota_proxy.proxy.server.config_reloader import LastRead
from kafka_quota_proxy.proxy.server.server import Server

_FOLDER: Final = Path(__file__).parent
_KINDS: Final = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/status.css": ("page.css", "text/css; charset=utf-8"),
    "/status.js": ("page.js", "text/javascript; charset=utf-8"),
}
# The browser loads these files and the stream from the proxy, and nothing else. It runs no script that is in the HTML.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS: Final = (
    ("Content-Security-Policy", _POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)


def page_files() -> Mapping[str, Reply]:
    """Return the response to a request for each of the page's paths."""
    return {path: _reply((_FOLDER / name).read_bytes(), kind) for path, (name, kind) in _KINDS.items()}


def _reply(content: bytes, kind: str) -> Reply:
    return Reply("200 OK", (content,), kind, (("Content-Length", str(len(content))), *_HEADERS))


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
