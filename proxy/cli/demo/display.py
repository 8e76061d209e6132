"""Shows the progress of the demo: a line for each second, and at its end a chart of the clients' rates."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kafka_quota_proxy.config.units import scaled

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


class Display:
    """Prints the progress of the demo. For ``--json`` it is quiet: it shows none, and notes are on standard error."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        self._is_quiet = is_quiet
        self._last_s = 0

    def note(self, text: str) -> None:
        """Print a message about the demo, in addition to its progress."""
        out = sys.stderr if self._is_quiet else sys.stdout
        out.write(f"{text}\n")
        out.flush()

    def show(self, views: Sequence[ClientView], progress: Progress) -> None:
        """Print a line with the state of all clients, unless a line was already printed in this second."""
        if int(progress.elapsed_s) > self._last_s and not self._is_quiet:
            self._last_s = int(progress.elapsed_s)
            words = "  |  ".join(map(client_line, views))
            self.note(f"{self._last_s:3d}/{progress.planned_s:.0f} s  {words}")

    def end(self, views: Sequence[ClientView], progress: Progress) -> None:
        """Print the chart of the whole demo, if the terminal or file has its characters."""
        if not self._is_quiet and "utf" in sys.stdout.encoding.lower():
            self.note(chart(views, progress))


def chart(views: Sequence[ClientView], progress: Progress) -> str:
    """Return a chart with a line for each client of the demo: its rate from the beginning to the end of the demo.

    Each client has one scale for the whole demo. The highest rate, which is that without a limit, has the full height.
    """
    lines = [
        f"{view.name:<10}{sparkline(view.history):<{BARS}}  █ {format_rate(max(view.history, default=0))}"
        for view in views
    ]
    return "\n".join([*lines, f"{'':<10}{'no limit':<{round(progress.free_s / progress.bar_s)}} with the quota"])


def client_line(view: ClientView) -> str:
    """Return the state of one client as text."""
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


def format_rate(bytes_per_second: float) -> str:
    """Return a rate as text in a binary unit: ``1.5 MiB/s``."""
    value, unit = scaled(bytes_per_second, like="iB")
    return f"{value:.{0 if unit == 'B' else 1}f} {unit}/s"


def format_seconds(milliseconds: float) -> str:
    """Return a time as text, such as ``1.5 s``."""
    return f"{milliseconds / 1000:.1f} s"
