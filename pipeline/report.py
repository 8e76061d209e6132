"""A page in one file: no network, dark where the reader's system is, and as wide as a phone.

Plots are SVG within the page, drawn by matplotlib; text in them has the colour of the page's own.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from io import StringIO
from typing import Any, Final, NamedTuple

import matplotlib as mpl
from cycler import cycler
from matplotlib.figure import Figure

# What text and axes are drawn in, to be the page's own colour in its place.
_INK: Final = "#010203"
# Told apart on white and on black, and by who does not see red or green (Okabe and Ito).
_COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
_STYLE: Final[Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "kafka-quota-pipeline",  # the same data, the same file
    "font.family": "sans-serif",
    "font.size": 11,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _INK),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": cycler(color=_COLOURS),
}
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_CSS: Final = """
:root { color-scheme: light dark; --line: #8885; --ink: #1b1f24; --paper: #fff }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e6ea; --paper: #14171b } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto;
       max-width: 70rem; padding: 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin: 2.5rem 0 .25rem }
p { max-width: 45rem; margin: .4rem 0 }
.wide { overflow-x: auto } svg { max-width: 100%; height: auto; min-width: 34rem; display: block }
table { border-collapse: collapse; font-size: .9rem } td, th { padding: .2rem .6rem; text-align: right;
       border-bottom: 1px solid var(--line); white-space: nowrap } td.name, th.name { text-align: left }
.facts { display: flex; flex-wrap: wrap; gap: .5rem 2rem; padding: 0 } .facts div { min-width: 7rem }
.facts b { display: block; font-size: 1.4rem }
"""


class Section(NamedTuple):
    """A question as heading, its answer in words, and what shows it (HTML)."""

    title: str
    words: str
    body: str


def page(title: str, facts: Mapping[str, str], sections: Iterable[Section], notes: Iterable[str]) -> str:
    """Return the page. ``facts`` are numbers by what they are; ``notes`` what a reader has to know, a sentence each."""
    shown = "".join(f"<div><b>{escape(value)}</b>{escape(name)}</div>" for name, value in facts.items())
    body = "".join(f"<h2>{escape(s.title)}</h2><p>{escape(s.words)}</p>{s.body}" for s in sections)
    ends = "".join(f"<p>{escape(note)}</p>" for note in notes)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_CSS}</style></head>\n"
        f'<body><h1>{escape(title)}</h1><div class="facts">{shown}</div>{ends}{body}</body></html>\n'
    )


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, names: int = 1) -> str:
    """Return a table; its first ``names`` columns are names, the others numbers."""

    def cells(tag: str, values: Sequence[str]) -> str:
        kinds = [' class="name"' if at < names else "" for at in range(len(values))]
        return "".join(f"<{tag}{kind}>{escape(value)}</{tag}>" for kind, value in zip(kinds, values, strict=True))

    lines = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{cells("th", columns)}</tr>{lines}</table></div>'


def rates_over_time(days: Sequence[float], series: Mapping[str, tuple[Sequence[float | None], float | None]]) -> str:
    """Return a plot for each name: its rates (None: nothing) over ``days``, and its limit as a line across."""
    with _figure(len(series), height=1.9) as (figure, axes):
        for axis, (name, (rates, limit)) in zip(axes, series.items(), strict=True):
            values = [float("nan") if rate is None else rate / 1e6 for rate in rates]
            axis.fill_between(days, values, step="post", alpha=0.35, linewidth=0)
            axis.step(days, values, where="post", linewidth=0.8)
            if limit is not None:
                axis.axhline(limit / 1e6, color=_COLOURS[5], linestyle="--", linewidth=1.4)
                axis.annotate(f"limit {size(limit)}/s", (1, limit / 1e6), xycoords=("axes fraction", "data"),
                              ha="right", va="bottom", fontsize=9)  # fmt: skip
            axis.set_title(name, loc="left", fontsize=11)
            axis.set_ylim(bottom=0)
            axis.set_ylabel("MB/s")
        axes[-1].set_xlabel("days from the log's beginning, UTC")
    return _svg(figure)


def heat_maps(maps: Mapping[str, Mapping[tuple[int, int], float]]) -> str:
    """Return a map of weekday (0 is Monday) by hour for each name."""
    with _figure(len(maps), height=2.3) as (figure, axes):
        for axis, (name, cells) in zip(axes, maps.items(), strict=True):
            grid = [[cells.get((day, hour), float("nan")) / 1e6 for hour in range(24)] for day in range(7)]
            image = axis.imshow(grid, aspect="auto", cmap="viridis")
            axis.set_title(f"{name}, MB/s", loc="left", fontsize=11)
            axis.set_yticks(range(7), _DAYS)
            axis.set_xticks(range(0, 24, 3))
            figure.colorbar(image, ax=axis, pad=0.01)
        axes[-1].set_xlabel("hour, UTC")
    return _svg(figure)


def bars(names: Sequence[str], groups: Mapping[str, Sequence[float | None]], *, unit: str) -> str:
    """Return horizontal bars: for each name one of each group."""
    with _figure(1, height=0.9 + 0.3 * len(names) * max(1, len(groups)) ** 0.7) as (figure, axes):
        thickness = 0.8 / max(1, len(groups))
        for at, (label, values) in enumerate(groups.items()):
            places = [place + at * thickness - 0.4 + thickness / 2 for place in range(len(names))]
            axes[0].barh(places, [value or 0 for value in values], height=thickness, label=label)
        axes[0].set_yticks(range(len(names)), names)
        axes[0].invert_yaxis()
        axes[0].set_xlabel(unit)
        if len(groups) > 1:
            axes[0].legend(frameon=False, loc="best", fontsize=9)
    return _svg(figure)


def size(amount: float) -> str:
    """Return bytes in words, in powers of 1,000 as the configuration has them: 12.3 MB."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(amount) >= factor:
            return f"{amount / factor:.3g} {unit}" if abs(amount) < 1_000 * factor else f"{amount / factor:,.0f} {unit}"
    return f"{amount:.0f} B"


def duration(ms: float) -> str:
    """Return a time in words: 3.2 s, 14 min, 5.1 h."""
    for unit, factor in (("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms >= factor:
            return f"{ms / factor:,.3g} {unit}"
    return f"{ms:.0f} ms"


@contextmanager
def _figure(count: int, *, height: float) -> Iterator[tuple[Figure, Any]]:
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(9, height * count + 0.3), layout="constrained")
        axes = figure.subplots(count, 1, squeeze=False, sharex=True)[:, 0]
        yield figure, axes
        figure.canvas.draw()


def _svg(figure: Figure) -> str:
    text = StringIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    return f'<div class="wide">{svg[svg.index("<svg") :].replace(_INK, "currentColor")}</div>'
