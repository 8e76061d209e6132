"""Keeps measurements of rebalances in ``bench/rebalances.json``, and writes ``bench/REBALANCES.md`` from them."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

_BENCH: Final = Path(__file__).parents[3] / "bench"
_STORE: Final = _BENCH / "rebalances.json"
_PAGE: Final = _BENCH / "REBALANCES.md"
_DATE: Final = "date"
_MISSING: Final = "–"

Cells: TypeAlias = dict[str, str]
Store: TypeAlias = dict[str, dict[str, Cells]]  # title of a table -> row -> column -> cell

RATES: Final = "Growth of the new replica, MB/s"
LATENCIES: Final = "Latency of others while partitions move, p99 in ms"
COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    RATES: ("Kafka's --throttle", "Kafka's --throttle and from_cluster", "the proxy's file"),
    LATENCIES: ("no move", "Kafka's --throttle", "the proxy's file"),
}
_WHAT: Final[Mapping[str, str]] = {
    RATES: (
        "2 GB in four partitions, moved from one broker of three to another. The rate is that of the new replica's "
        "files without the first two seconds and without the first and the last tenth. Each cell is one move on "
        "clusters of its own; in the first column the brokers reach each other without a proxy, in the last one the "
        "cluster's own configs are empty."
    ),
    LATENCIES: (
        "A producer with acks=all and a consumer, 100 records of 1 kB a second each, of a topic that does not move but "
        "shares its leader and a follower with the one that does: 20 MB/s for a minute, without the first and the last "
        "five seconds, for when a move begins, its tool and new files take the two cores, whatever throttles it. A "
        "latency counts from when a record was due to when it was acknowledged, or read."
    ),
}


def put(table: str, row: str, column: str, cell: str) -> None:
    """Store one cell, and rewrite the page."""
    store = _read()
    cells = store.setdefault(table, {}).setdefault(row, {})
    cells |= {column: cell, _DATE: time.strftime("%Y-%m-%d", time.gmtime())}
    _STORE.write_text(json.dumps(store, indent=1, ensure_ascii=False) + "\n")
    _PAGE.write_text(_page(store))


def get(table: str, row: str, column: str) -> str | None:
    return _read().get(table, {}).get(row, {}).get(column)


def _read() -> Store:
    if not _STORE.exists():
        return {}
    store: Store = json.loads(_STORE.read_text())
    return store


def _page(store: Store) -> str:
    head = (
        "# Rebalances\n\n"
        "Written by `make test-rebalance`, which takes about an hour. "
        f"Machine of the last run: {_processor()}, {os.cpu_count()} cores, Linux {platform.release()}, "
        f"CPython {platform.python_version()}; all brokers, the proxy and the clients share it.\n"
    )
    return head + "".join(_table(title, store[title]) for title in COLUMNS if title in store)


def _table(title: str, rows: Mapping[str, Cells]) -> str:
    columns = COLUMNS[title]
    lines = [
        f"\n## {title}\n\n{_WHAT[title]}\n",
        f"| | {' | '.join(columns)} | measured |",
        f"| --- |{' ---: |' * len(columns)} --- |",
        *(
            f"| {row} | {' | '.join(cells.get(column, _MISSING) for column in columns)} | {cells[_DATE]} |"
            for row, cells in sorted(rows.items())
        ),
    ]
    return "\n".join(lines) + "\n"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
