"""Draws the dashboards of ``deploy/grafana`` from the answers of a real Prometheus to their queries.

``python -m bench.plot_dashboards [--seconds 300] [--answers FILE] [--out docs/pictures]``

The load is that of ``tests/end_to_end/test_dashboards.py``. It runs twice as long as the dashboards show, because rates
are over up to five minutes. This program, not Grafana, draws the panels at their places in the grid.

With ``--answers``, an existing file is drawn without a load, and a missing one is written.
"""

import argparse
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from tests.end_to_end.support.dashboard_load import under_load
from tests.end_to_end.support.dashboards import FILES, Period, asked, chosen, dashboard
from tests.end_to_end.support.prometheus import Prometheus

OUT: Final = Path(__file__).parents[1] / "docs" / "pictures"
# What a dashboard shows: all clients, or one of them.
_GIVEN: Final[dict[str, dict[str, list[str]]]] = {
    "client": {"user": ["ANONYMOUS"], "client_id": ["etl"]},
    "kafka-quotas": {"user": ["ANONYMOUS"], "client_id": ["checks", "deployer", "etl", "reports"]},
}
_STEP_S: Final = 10
_COLUMNS: Final = 24
_COLUMN_IN, _ROW_IN = 0.66, 0.4  # inches
_GAP: Final = 0.1  # between panels, in columns and rows
_HEADER: Final = 1.2  # rows
_TITLE: Final = 1.1
_LEGEND_ROW: Final = 0.5
_MOST_IN_LEGEND: Final = 6
_MOST_IN_TABLE: Final = 9
_COLOURS: Final = (
    "#3f7f4f",
    "#c99a1c",
    "#3b7dbf",
    "#d9712e",
    "#b8443c",
    "#7a5aa6",
    "#2f8f9d",
    "#8a6d3b",
    "#555555",
    "#b0588d",
)
_NAMED: Final = {"green": "#2e7d32", "orange": "#d9712e", "red": "#c62828", None: "#2e7d32"}
_SIZES: Final = ("", "Ki", "Mi", "Gi")

Answer = list[Any]  # pairs of labels, and of times with values
Answers = dict[str, Any]


def ask(prometheus: Prometheus, period: Period) -> Answers:
    """Return the answers to the queries of each dashboard, by name, in the order of its panels."""
    found: Answers = {}
    for name in (file.stem for file in FILES):
        one = dashboard(name)
        variables = chosen(one, prometheus, _GIVEN.get(name))
        found[name] = [
            [asked(target, variables, period, prometheus) for target in panel["targets"]] for panel in one["panels"]
        ]
    return {"period": period, "panels": found}


def measure(seconds: int) -> Answers:
    """Run the load, and ask about its second half, which takes ``seconds``."""
    with under_load(2 * seconds + 60, away=False) as prometheus:
        begin_s = time.time() + seconds
        time.sleep(2 * seconds)
        return ask(prometheus, Period(begin_s, begin_s + seconds, _STEP_S))


def scaled(value: float, step: float, names: Sequence[str], unit: str) -> str:
    """Return a number of at most three digits with the prefix that it needs."""
    place = 0
    while abs(value) >= step * 0.9995 and place < len(names) - 1:
        value, place = value / step, place + 1
    return f"{value:.3g} {names[place]}{unit}".strip()


def _duration(value: float) -> str:
    if abs(value) < 0.9995:
        return f"{value * 1_000:.3g} ms"
    return f"{value:.3g} s" if abs(value) < 100 else f"{value / 60:.3g} min"


_UNITS: Final[dict[str, Callable[[float], str]]] = {
    "binBps": lambda value: scaled(value, 1_024, _SIZES, "B/s"),
    "Bps": lambda value: scaled(value, 1_000, ("", "k", "M"), "B/s"),
    "bytes": lambda value: scaled(value, 1_024, _SIZES, "B"),
    "percentunit": lambda value: f"{value * 100:.3g}%",
    "percent": lambda value: f"{value:.3g}%",
    "s": _duration,
    "ms": lambda value: _duration(value / 1_000),
    "cps": lambda value: f"{scaled(value, 1_000, ('', 'k'), '')}/s",
    "reqps": lambda value: f"{scaled(value, 1_000, ('', 'k'), '')}/s",
    "short": lambda value: scaled(value, 1_000, ("", "k", "M"), ""),
}


def shown(value: float, unit: str) -> str:
    """Return a value as a panel with this unit shows it."""
    return "0" if value == 0 else _UNITS[unit](value)


def _scale(top: float, unit: str) -> float:
    """Return a factor between the values of a panel and even numbers of its unit."""
    step = 1_024 if unit in ("binBps", "bytes") else 1_000
    scale = 1.0
    while top / scale >= step:
        scale *= step
    return scale if unit != "s" or top < 120 else 60


def legend_of(template: str, labels: Mapping[str, str]) -> str:
    """Return the text of a series, as Grafana makes it of ``legendFormat``."""
    text = re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), template)
    return " ".join(text.split())


def draw_lines(axes: Axes, panel: dict[str, Any], answers: Sequence[Answer], period: Period, rows: float) -> None:
    unit = panel["fieldConfig"]["defaults"]["unit"]
    limits = {one["matcher"]["options"] for one in panel["fieldConfig"].get("overrides", [])}
    texts: list[tuple[float, str, str]] = []
    colour_of: dict[str, str] = {}
    for target, series in zip(panel["targets"], answers, strict=True):
        is_limit = target["refId"] in limits
        for labels, values in sorted(series, key=lambda one: str(one[0])):
            text = legend_of(target["legendFormat"], labels)
            owner = text.removesuffix(" limit")
            colour = colour_of.setdefault(owner, _COLOURS[len(colour_of) % len(_COLOURS)])
            style = "--" if is_limit else "-"
            axes.plot([at for at, _ in values], [value for _, value in values], style, color=colour, linewidth=1.2)
            texts.append((values[-1][1], f"{'- -' if is_limit else '—'} {text}  {shown(values[-1][1], unit)}", colour))
    top = axes.get_ylim()[1]
    levels = [step["value"] for step in panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [])]
    for level in (one for one in levels if one is not None):
        if level < 3 * top:
            axes.axhline(level, color=_NAMED["red"], linewidth=0.8, linestyle=":")
            top = max(top, level * 1.1)
    axes.set_xlim(period.begin_s, period.end_s)
    axes.set_ylim(0, top)
    scale = _scale(top, unit)
    ticks = [tick * scale for tick in MaxNLocator(3).tick_values(0, top / scale)]
    axes.set_yticks([tick for tick in ticks if tick <= top], [shown(tick, unit) for tick in ticks if tick <= top])
    minutes = [period.begin_s + 60 * minute for minute in range(int((period.end_s - period.begin_s) / 60) + 1)]
    axes.set_xticks(minutes, [f"{number} min" for number in range(len(minutes))])
    axes.grid(color="#e6e6e6", linewidth=0.6)
    if not texts:
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", color="#888888")
    _write_legend(axes, [(text, colour) for _, text, colour in sorted(texts, key=lambda one: -one[0])], rows)


def _write_legend(axes: Axes, texts: Sequence[tuple[str, str]], rows: float) -> None:
    """Write the legend below the axes, and how many series it leaves out."""
    left_out = len(texts) - _MOST_IN_LEGEND
    lines = [*texts] if left_out <= 0 else [*texts[: _MOST_IN_LEGEND - 1], (f"and {left_out + 1} more", "#666666")]
    for number, (text, colour) in enumerate(lines):
        below = -(0.75 + number * _LEGEND_ROW) / rows
        axes.text(0, below, text, transform=axes.transAxes, fontsize=6.5, color=colour, va="top")


def draw_number(axes: Axes, panel: dict[str, Any], answers: Sequence[Answer]) -> None:
    axes.axis("off")
    defaults = panel["fieldConfig"]["defaults"]
    (series,) = answers
    if not series:
        axes.text(0.5, 0.5, "no data", ha="center", va="center", fontsize=12, color="#888888")
        return
    value = series[0][1][-1][1]
    steps = [one for one in defaults["thresholds"]["steps"] if one["value"] is None or value >= one["value"]]
    words = {key: one["text"] for mapping in defaults.get("mappings", []) for key, one in mapping["options"].items()}
    text = words.get(f"{value:g}", shown(value, defaults["unit"]))
    axes.text(0.5, 0.5, text, ha="center", va="center", fontsize=20, color=_NAMED[steps[-1]["color"]])


def draw_table(axes: Axes, panel: dict[str, Any], answers: Sequence[Answer]) -> None:
    axes.axis("off")
    options = panel["transformations"][-1]["options"]
    order = sorted(options["indexByName"], key=options["indexByName"].__getitem__)
    units = {
        one["matcher"]["options"]: part["value"]
        for one in panel["fieldConfig"]["overrides"]
        for part in one["properties"]
        if part["id"] == "unit"
    }
    table: dict[str, dict[str, Any]] = {}
    for target, series in zip(panel["targets"], answers, strict=True):
        name = "Value" if len(answers) == 1 else f"Value #{target['refId']}"
        for labels, values in series:
            table.setdefault(json.dumps(labels, sort_keys=True), dict(labels))[name] = values[-1][1]
    first = next(name for name in order if name.startswith("Value"))
    rows = sorted(table.values(), key=lambda row: -row.get(first, 0))[:_MOST_IN_TABLE]
    width = 1 / len(order)
    for column, name in enumerate(order):
        title = options["renameByName"].get(name, name)
        axes.text(column * width, 1, title, fontsize=7, weight="bold", va="top")
        for number, row in enumerate(rows, start=1):
            value = row.get(name, "")
            text = shown(value, units[title]) if isinstance(value, float) else value
            axes.text(column * width, 1 - number / (_MOST_IN_TABLE + 1), text, fontsize=7, va="top")


def draw_states(axes: Axes, panel: dict[str, Any], answers: Sequence[Answer], period: Period) -> None:
    words = panel["fieldConfig"]["defaults"]["mappings"][0]["options"]
    (series,) = answers
    names = [legend_of(panel["targets"][0]["legendFormat"], labels) for labels, _ in series]
    for place, (_, values) in enumerate(series):
        for value, run in groupby(values, key=lambda pair: pair[1]):
            times_s = [at for at, _ in run]
            begin_s, end_s = times_s[0], times_s[-1] + period.step_s
            axes.barh(place, end_s - begin_s, left=begin_s, height=0.6, color=_NAMED[words[f"{value:g}"]["color"]])
    axes.set_yticks(range(len(names)), names)
    axes.set_xlim(period.begin_s, period.end_s)
    axes.set_xticks([])
    axes.invert_yaxis()


def draw_panel(figure: Figure, panel: dict[str, Any], answers: Sequence[Answer], period: Period, rows: float) -> None:
    """Draw a panel at its place in the grid. ``rows`` is the height of the dashboard."""
    at = panel["gridPos"]
    x, y, w, h = at["x"] + _GAP, at["y"] + _HEADER + _GAP, at["w"] - 2 * _GAP, at["h"] - 2 * _GAP

    def place(left: float, above: float, width: float, height: float) -> tuple[float, float, float, float]:
        return left / _COLUMNS, 1 - (above + height) / rows, width / _COLUMNS, height / rows

    corner = place(x, y, w, h)
    frame = Rectangle(corner[:2], corner[2], corner[3], facecolor="white", edgecolor="#d0d0d0", linewidth=0.8)
    figure.add_artist(frame)
    figure.text((x + 0.15) / _COLUMNS, 1 - (y + 0.25) / rows, panel["title"], fontsize=8, weight="bold", va="top")
    kind = panel["type"]
    if kind == "timeseries":
        in_legend = min(sum(map(len, answers)), _MOST_IN_LEGEND)
        height = h - _TITLE - 1.0 - in_legend * _LEGEND_ROW
        axes = figure.add_axes(place(x + 1.5, y + _TITLE, w - 1.8, height), zorder=2)
        draw_lines(axes, panel, answers, period, height)
    elif kind == "state-timeline":
        axes = figure.add_axes(place(x + 5.6, y + _TITLE, w - 5.8, h - _TITLE - 0.3), zorder=2)
        draw_states(axes, panel, answers, period)
    else:
        axes = figure.add_axes(place(x + 0.2, y + _TITLE, w - 0.4, h - _TITLE - 0.2), zorder=2)
        (draw_number if kind == "stat" else draw_table)(axes, panel, answers)
    axes.tick_params(labelsize=6, length=2, color="#999999")
    for spine in axes.spines.values():
        spine.set_visible(False)


def draw(name: str, answers: Sequence[Any], period: Period, out: Path) -> None:
    """Draw one dashboard."""
    one = dashboard(name)
    panels = one["panels"]
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) + _HEADER
    figure = plt.figure(figsize=(_COLUMNS * _COLUMN_IN, rows * _ROW_IN), facecolor="#f4f5f5")
    given = "".join(f"   {name}: {', '.join(values)}" for name, values in _GIVEN.get(name, {}).items())
    figure.text(_GAP / _COLUMNS, 1 - 0.35 / rows, one["title"], fontsize=12, weight="bold", va="top")
    figure.text(0.35, 1 - 0.45 / rows, given, fontsize=9, va="top")
    for panel, found in zip(panels, answers, strict=True):
        draw_panel(figure, panel, found, period, rows)
    figure.savefig(out, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.plot_dashboards", description=__doc__)
    parser.add_argument("--seconds", type=int, default=300, help="length of the load")
    parser.add_argument("--answers", type=Path, help="a JSON file with the answers of Prometheus")
    parser.add_argument("--out", type=Path, default=OUT, help="a directory")
    options = parser.parse_args()
    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "dashboards", "svg.fonttype": "none", "path.simplify": True})
    if options.answers is not None and options.answers.exists():
        answers = json.loads(options.answers.read_text(encoding="utf-8"))
    else:
        answers = json.loads(json.dumps(measure(options.seconds)))
        if options.answers is not None:
            options.answers.write_text(json.dumps(answers), encoding="utf-8")
    for name, found in answers["panels"].items():
        out = options.out / f"dashboard-{name}.svg"
        draw(name, found, Period(*answers["period"]), out)
        print(f"written to {out}")


if __name__ == "__main__":
    main()
