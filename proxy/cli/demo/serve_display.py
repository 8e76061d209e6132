"""Shows the clients of ``demo --serve``: as a table on a terminal, and as a line for each change elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from rich.table import Table
from rich.text import Text

from kafka_quota_proxy.proxy.cli.demo.display import LiveDisplay, PlainDisplay, format_rate, format_seconds
from kafka_quota_proxy.proxy.cli.demo.served_clients import ServedClient

# More rows do not fit on a usual terminal.
_MAX_ROWS: Final = 20


class LiveClients(LiveDisplay):
    """Shows the clients as a table that is redrawn in place."""

    interval_s: Final = 0.5

    def show_clients(self, clients: Sequence[ServedClient]) -> None:
        """Redraw the table."""
        self.draw(clients_table(clients))


class PlainClients(PlainDisplay):
    """Prints a line for each client about which something has changed."""

    interval_s: Final = 2.0

    def __init__(self) -> None:
        super().__init__()
        self._lines: dict[object, str] = {}

    def show_clients(self, clients: Sequence[ServedClient]) -> None:
        """Print a line for each client whose line differs from the last one."""
        for client in clients:
            line = client_line(client)
            if self._lines.get(client.client) != line:
                self._lines[client.client] = line
                self.note(line)


ClientsDisplay: TypeAlias = LiveClients | PlainClients


def clients_table(clients: Sequence[ServedClient]) -> Table:
    """Return the table that ``LiveClients`` draws. Of many clients it has the busiest."""
    shown = sorted(clients, key=lambda one: one.produce_rate + one.fetch_rate, reverse=True)[:_MAX_ROWS]
    has_orders = any(one.on_demand_ms for one in shown)
    has_others = any(one.other_limits for one in shown)
    out = Table(box=None, padding=(0, 2, 0, 0), caption_justify="left", caption=_caption(len(clients), len(shown)))
    out.add_column("user")
    out.add_column("client-id")
    for heading in ("produce", "limit", "fetch", "limit", "throttled", *["on demand"] * has_orders):
        out.add_column(heading, justify="right", no_wrap=True)
    if has_others:
        out.add_column("other limits")
    for one in sorted(shown, key=lambda one: one.client):
        cells = [
            _name(one.client.user),
            _name(one.client.client_id),
            format_rate(one.produce_rate, limit=one.produce_limit),
            _limit(one.produce_limit),
            format_rate(one.fetch_rate, limit=one.fetch_limit),
            _limit(one.fetch_limit),
            format_seconds(one.throttle_time_ms),
        ]
        cells += [format_seconds(one.on_demand_ms)] * has_orders + [", ".join(one.other_limits)] * has_others
        out.add_row(*map(Text, cells))
    return out


def client_line(one: ServedClient) -> str:
    """Return the state of a client as a line of text."""
    parts = [
        f"client-id {_name(one.client.client_id)} (user {_name(one.client.user)}): "
        f"produce {_of(one.produce_rate, one.produce_limit)}",
        f"fetch {_of(one.fetch_rate, one.fetch_limit)}",
        *one.other_limits,
        f"throttled {format_seconds(one.throttle_time_ms)}",
    ]
    if one.on_demand_ms:
        parts.append(f"on demand {format_seconds(one.on_demand_ms)}")
    return ", ".join(parts)


def _caption(clients: int, shown: int) -> str | None:
    if not clients:
        return "No client has connected yet."
    return f"and {clients - shown} quieter clients" if clients > shown else None


def _of(rate: float, limit: float | None) -> str:
    return format_rate(rate) if limit is None else f"{format_rate(rate, limit=limit)} of {_limit(limit)}"


def _limit(limit: float | None) -> str:
    return "-" if limit is None else format_rate(limit, limit=limit)


def _name(name: str) -> str:
    if not name:
        return "(any)"
    return name if name.isprintable() else repr(name)
