"""Shows the progress of the demo: as a table on a terminal, as one line per second elsewhere, not at all for --json."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kafka_quota_proxy.proxy.cli.demo.workload import TOLERANCE

# As many bars as fit into 80 columns together with the numbers.
HISTORY_S: Final = 14
_BARS: Final = " ▁▂▃▄▅▆▇█"
_UNITS: Final = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientView:
    """What a display of the demo's progress shows about one client at one moment. Rates are in bytes per second."""

    name: str
    quota: float
    rate_now: float
    rate: float | None  # measured since the first second, or over whole cycles; None if not known yet
    throttle_time_ms: float  # the sum over all requests
    history: tuple[float, ...]  # the rate in each of the last HISTORY_S seconds


class Display(ABC):
    """Shows the progress of the demo. A display is a context manager, which restores the terminal on exit."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    @abstractmethod
    def note(self, text: str) -> None:
        """Print a message about the demo, in addition to its progress."""

    @abstractmethod
    def show(self, views: Sequence[ClientView], *, elapsed_s: float, planned_s: float) -> None:
        """Show the current state of the clients. The demo calls this several times a second."""


class LiveDisplay(Display):
    """Shows the demo's progress as a table that is redrawn in place. Other messages appear above the table."""

    def __init__(self) -> None:
        self._console = Console()
        self._live = Live(console=self._console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def note(self, text: str) -> None:
        """Print a line above the table."""
        self._console.print(text, highlight=False, markup=False)

    def show(self, views: Sequence[ClientView], *, elapsed_s: float, planned_s: float) -> None:
        """Redraw the table with the current state of the clients."""
        self.draw(table(views, elapsed_s=elapsed_s, planned_s=planned_s))

    def draw(self, table: Table) -> None:
        """Draw ``table`` in place of the previous one."""
        self._live.update(table, refresh=True)


class PlainDisplay(Display):
    """Shows the demo's progress by printing a line with the state of all clients every second."""

    def __init__(self) -> None:
        self._last_s = 0

    def note(self, text: str) -> None:
        """Print a line."""
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def show(self, views: Sequence[ClientView], *, elapsed_s: float, planned_s: float) -> None:
        """Print a line with the state of all clients, unless a line was already printed in this second."""
        if int(elapsed_s) > self._last_s:
            self._last_s = int(elapsed_s)
            self.note(f"{self._last_s:3d}/{planned_s:.0f} s  " + "  |  ".join(plain_line(view) for view in views))


class SilentDisplay(Display):
    """Shows no progress of the demo, for ``--json``. Other messages are printed on standard error."""

    def note(self, text: str) -> None:
        """Print a line on standard error."""
        sys.stderr.write(f"{text}\n")

    def show(self, views: Sequence[ClientView], *, elapsed_s: float, planned_s: float) -> None:
        """Show nothing."""


def table(views: Sequence[ClientView], *, elapsed_s: float, planned_s: float) -> Table:
    """Return the table that ``LiveDisplay`` draws, with a line for each client of the demo."""
    title = f"kafka-quota-proxy demo, {min(elapsed_s, planned_s):.0f} of {planned_s:.0f} s"
    out = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    out.add_column("client", no_wrap=True)
    for heading in ("quota", "now", "average", "throttled"):
        out.add_column(heading, justify="right", no_wrap=True)
    out.add_column("each second", min_width=HISTORY_S, no_wrap=True)
    for view in views:
        out.add_row(
            view.name,
            format_rate(view.quota),
            format_rate(view.rate_now),
            _average(view),
            format_seconds(view.throttle_time_ms),
            sparkline(view.history),
        )
    return out


def _average(view: ClientView) -> Text:
    if view.rate is None:
        return Text("…")
    share = view.rate / view.quota
    style = "green" if abs(share - 1) <= TOLERANCE else "yellow"
    return Text.assemble(f"{format_rate(view.rate)} ", (f"{share:.1%}", style))


def plain_line(view: ClientView) -> str:
    """Return the state of one client as text. ``PlainDisplay`` joins the texts of all clients in a line."""
    average = "" if view.rate is None else f", average {format_rate(view.rate)} ({view.rate / view.quota:.1%})"
    return (
        f"{view.name} {format_rate(view.rate_now)} of {format_rate(view.quota)}{average}, "
        f"throttled {format_seconds(view.throttle_time_ms)}"
    )


def sparkline(rates: Sequence[float]) -> str:
    """Return a string with a bar for each rate. The bar of the highest rate has the full height."""
    highest = max(rates, default=0) or 1
    return "".join(_BARS[round(rate / highest * (len(_BARS) - 1))] for rate in rates)


def format_rate(bytes_per_second: float) -> str:
    """Return a rate as text with a binary unit, such as ``1.5 MiB/s``."""
    for unit, size in _UNITS:
        if bytes_per_second >= size:
            return f"{bytes_per_second / size:.1f} {unit}/s"
    return f"{bytes_per_second:.0f} B/s"


def format_seconds(milliseconds: float) -> str:
    """Return a time as text, such as ``1.5 s``."""
    return f"{milliseconds / 1000:.1f} s"
