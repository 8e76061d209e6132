"""Shows the progress of the demo: as a table on a terminal, as one line per second elsewhere, not at all for --json."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kafka_quota_proxy.config.units import scaled, written_rate
from kafka_quota_proxy.proxy.cli.demo.workload import TOLERANCE

# How many bars the chart has for each client. It fits into 80 columns.
BARS: Final = 54
_HEIGHTS: Final = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientView:
    """What a display of the demo's progress shows about one client at one moment. Rates are in bytes per second."""

    name: str
    quota: float
    rate_now: float
    rate: float | None  # measured under the quota, after the burst, or over whole cycles; None if not known yet
    throttle_time_ms: float  # the sum over all requests
    is_limited: bool  # whether the quota is in force
    history: tuple[float, ...]  # the rate of each bar, up to BARS bars from the beginning of the demo


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the demo is. In the first ``free_s`` seconds, the clients have no limit."""

    elapsed_s: float
    planned_s: float
    free_s: float

    @property
    def bar_s(self) -> float:
        """The time of each bar of the chart. All bars are the whole demo, which may last longer than planned."""
        return (self.planned_s if self.elapsed_s < self.planned_s + 1 else self.elapsed_s) / BARS


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
    def show(self, views: Sequence[ClientView], progress: Progress) -> None:
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

    def show(self, views: Sequence[ClientView], progress: Progress) -> None:
        """Redraw the table with the current state of the clients."""
        self.draw(Group(table(views, progress), "", chart(views, progress)))

    def draw(self, table: RenderableType) -> None:
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

    def show(self, views: Sequence[ClientView], progress: Progress) -> None:
        """Print a line with the state of all clients, unless a line was already printed in this second."""
        if int(progress.elapsed_s) > self._last_s:
            self._last_s = int(progress.elapsed_s)
            self.note(
                f"{self._last_s:3d}/{progress.planned_s:.0f} s  " + "  |  ".join(plain_line(view) for view in views)
            )


class SilentDisplay(Display):
    """Shows no progress of the demo, for ``--json``. Other messages are printed on standard error."""

    def note(self, text: str) -> None:
        """Print a line on standard error."""
        sys.stderr.write(f"{text}\n")

    def show(self, views: Sequence[ClientView], progress: Progress) -> None:
        """Show nothing."""


def table(views: Sequence[ClientView], progress: Progress) -> Table:
    """Return the table that ``LiveDisplay`` draws, with a line for each client of the demo."""
    planned_s = progress.planned_s
    title = f"kafka-quota-proxy demo, {min(progress.elapsed_s, planned_s):.0f} of {planned_s:.0f} s"
    out = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    out.add_column("client", no_wrap=True)
    for heading in ("now", "quota", "average", "throttled"):
        out.add_column(heading, justify="right", no_wrap=True)
    for view in views:
        out.add_row(
            view.name,
            format_rate(view.rate_now),
            format_rate(view.quota) if view.is_limited else "none yet",
            _average(view),
            format_seconds(view.throttle_time_ms),
        )
    return out


def chart(views: Sequence[ClientView], progress: Progress) -> Text:
    """Return a chart with a line for each client of the demo: its rate from the beginning to the end of the demo.

    Each client has one scale for the whole demo. The highest rate, which is that without a limit, has the full height.
    """
    out = Text(no_wrap=True)
    for view in views:
        scale = f"  █ {format_rate(max(view.history))}" if view.history else ""
        out.append(f"{view.name:<10}{sparkline(view.history):<{BARS}}{scale}\n")
    free = round(progress.free_s / progress.bar_s)
    out.append(f"{'':<10}{'no limit':<{free}} with the quota")
    return out


def _average(view: ClientView) -> Text:
    if view.rate is None:
        return Text("…")
    share = view.rate / view.quota
    style = "green" if abs(share - 1) <= TOLERANCE else "yellow"
    return Text.assemble(f"{format_rate(view.rate)} ", (f"{share:.1%}", style))


def plain_line(view: ClientView) -> str:
    """Return the state of one client as text. ``PlainDisplay`` joins the texts of all clients in a line."""
    if not view.is_limited:
        return f"{view.name} {format_rate(view.rate_now)} without a limit"
    average = "" if view.rate is None else f", average {format_rate(view.rate)} ({view.rate / view.quota:.1%})"
    return (
        f"{view.name} {format_rate(view.rate_now)} of {format_rate(view.quota)}{average}, "
        f"throttled {format_seconds(view.throttle_time_ms)}"
    )


def sparkline(rates: Sequence[float]) -> str:
    """Return a string with a bar for each rate. The highest rate has a full bar, and any rate above 0 has a bar."""
    highest = max(rates, default=0) or 1
    most = len(_HEIGHTS) - 1
    return "".join(_HEIGHTS[max(round(rate / highest * most), 1 if rate else 0)] for rate in rates)


def format_rate(bytes_per_second: float, *, limit: float | None = None) -> str:
    """Return a rate as text in the kind of unit in which its ``limit`` is written, else a binary one: ``1.5 MiB/s``."""
    value, unit = scaled(bytes_per_second, like="iB" if limit is None else written_rate(limit))
    return f"{value:.{0 if unit == 'B' else 1}f} {unit}/s"


def format_seconds(milliseconds: float) -> str:
    """Return a time as text, such as ``1.5 s``."""
    return f"{milliseconds / 1000:.1f} s"
