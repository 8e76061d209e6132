"""Draws plots with matplotlib, as SVG for a report page.

A plot is designed for the width of a phone, and grows where there is more room. It uses the colours of the page, which
change in dark mode.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any, Final

import matplotlib as mpl
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from kafka_quota_proxy.pipeline.report import size

# These colours stand for the page's own colours, which matplotlib does not know.
_INK, _USE, _LIMIT = "#010203", "#010204", "#010205"
_COLOURS: Final = {_INK: "currentColor", _USE: "var(--use)", _LIMIT: "var(--limit)"}
# The width of a phone that shows 390 pixels, without the margins of the page, in inches of 72 pixels.
_WIDTH: Final = 358 / 72
_STYLE: Final[Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "kafka-quota-pipeline",  # the same data, the same file
    "font.family": "sans-serif",
    "font.size": 10.5,
    "timezone": "UTC",
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _INK),
    "axes.spines.top": False,
    "axes.spines.right": False,
}
# The formats of ticks at years, months, days, hours, minutes and seconds, and of ticks at which the next larger unit
# begins.
_DATES: Final = ["%Y", "%b", "%d %b", "%H:%M", "%H:%M", "%S.%f"]
_ROUND_DATES: Final = ["", "%b %Y", "%d %b", "%d %b", "%H:%M", "%H:%M"]
# More points than a plot has pixels show nothing more.
_MOST_POINTS: Final = 720
_RATE: Final = FuncFormatter(lambda rate, _at: f"{size(rate)}/s" if rate else "0")


def rate_over_time(start_ms: int, step_ms: int, rates: Sequence[float | None], limit: float | None) -> str:
    """Plot a rate over time in bytes per second, with another colour above the limit.

    ``rates`` has one rate for each step of ``step_ms``, from ``start_ms`` (since the epoch) on. A rate of None means
    that nothing was transferred.
    """
    together = -(-len(rates) // _MOST_POINTS) or 1
    values = [max(rate or 0 for rate in rates[at : at + together]) for at in range(0, len(rates), together)]
    start = datetime.fromtimestamp(start_ms / 1_000, UTC)
    # The last value lasts as long as the others.
    times = [start + timedelta(milliseconds=step_ms * together * at) for at in range(len(values) + 1)]
    values.append(values[-1] if values else 0.0)
    times = times if len(times) == len(values) else [start] * len(values)
    with _figure(1.35) as (figure, axis):
        within = values if limit is None else [min(value, limit) for value in values]
        axis.fill_between(times, within, step="post", color=_USE, alpha=0.4, linewidth=0)
        axis.step(times, within, where="post", linewidth=0.7, color=_USE)
        if limit is not None:
            above = [max(value, limit) for value in values]
            # The area has an outline, since one hour of a month would be too thin to be visible.
            axis.fill_between(times, limit, above, step="post", color=_LIMIT, linewidth=0.8)
        axis.set_ylim(0, 1.05 * max([limit or 0, 1, *values]))
        axis.set_xlim(times[0], max(times[-1], times[0] + timedelta(milliseconds=step_ms)))
        axis.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
        axis.yaxis.set_major_formatter(_RATE)
        where = AutoDateLocator(minticks=3, maxticks=7)  # type: ignore[no-untyped-call]
        axis.xaxis.set_major_locator(where)
        form = ConciseDateFormatter(  # type: ignore[no-untyped-call]
            where, tz=UTC, formats=_DATES, zero_formats=_ROUND_DATES, show_offset=False
        )
        axis.xaxis.set_major_formatter(form)
    return _svg(figure)


@contextmanager
def _figure(height: float) -> Iterator[tuple[Figure, Any]]:
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        yield figure, figure.subplots()
        figure.canvas.draw()


def _svg(figure: Figure) -> str:
    text = StringIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :].strip()
    for stand_in, colour in _COLOURS.items():
        svg = svg.replace(stand_in, colour)
    # The page determines the width of the plot, and a page must not have the same id twice.
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    wanted = set(re.findall(r'(?:url\(|href=")#([^")]+)', svg))
    return re.sub(r' id="([^"]+)"', lambda found: found[0] if found[1] in wanted else "", svg)
