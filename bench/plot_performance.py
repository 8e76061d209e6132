"""Draws the charts of docs/reference/performance.md from results.json: ``python -m bench.plot_performance``.

One chart has the CPU of each proxy for a byte or a request, one its throughput, and one the latency that it adds.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import matplotlib as mpl

from bench.figures import (
    DIRECT,
    ENVOY,
    KROXYLICIOUS,
    OURS,
    OURS_WITHOUT_RELAY,
    Samples,
    bytes_per_second,
    cpu_s_per_10k_requests,
    difference,
    field,
    ratio,
)
from bench.report import Measured, from_json
from bench.rows import Section

RAW: Final = Path(__file__).with_name("results.json")
PICTURES: Final = Path(__file__).parents[1] / "docs" / "pictures"
COLOURS: Final = {ENVOY: "#8d99ae", KROXYLICIOUS: "#d9a441", OURS_WITHOUT_RELAY: "#7fb5c6", OURS: "#1f6f8b"}
_SHORT: Final = {"produce": "Produce", "fetch": "Fetch"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Bars by load and peer. ``bars`` has the heights of each peer in the order of ``loads``, None for no figure."""

    name: str
    title: str
    axis: str
    loads: Sequence[str]
    bars: dict[str, list[float | None]]
    line_at: float | None = None


def charts(rows: Sequence[Measured]) -> list[Chart]:
    """Return the three charts."""
    plain = [row for row in rows if row.row.section in {Section.BULK, Section.REQUESTS}]
    late = [row for row in rows if row.row.section is Section.LATENCY]
    return [
        _chart(
            "performance-cpu",
            "CPU of the proxy for a request and its response (less is better)",
            "of Envoy's tcp_proxy",
            plain,
            lambda samples, peer: _median_ratio(samples, peer, ENVOY, cpu_s_per_10k_requests),
            line_at=1,
        ),
        _chart(
            "performance-throughput",
            "Throughput, load and broker on the same two cores (more is better)",
            "of the direct connection",
            plain,
            lambda samples, peer: _median_ratio(samples, peer, DIRECT, bytes_per_second),
            line_at=1,
        ),
        _added_latency(late),
    ]


def _chart(
    name: str,
    title: str,
    axis: str,
    rows: Sequence[Measured],
    height: Callable[[Samples, str], float | None],
    *,
    line_at: float,
) -> Chart:
    bars = {peer: [height(row.samples, peer) for row in rows] for peer in COLOURS}
    return Chart(name=name, title=title, axis=axis, loads=[_label(row) for row in rows], bars=bars, line_at=line_at)


def _added_latency(rows: Sequence[Measured]) -> Chart:
    loads, bars = [], {peer: list[float | None]() for peer in COLOURS}
    for row in rows:
        for name in ("p50_us", "p99_us"):
            loads.append(f"{row.row.size_bytes:,} B\n{name[:3]}")
            for peer, heights in bars.items():
                found = difference(row.samples, peer, DIRECT, field(name))
                heights.append(found.median if found else None)
    title = "Latency that the proxy adds at 1,000 requests a second (less is better)"
    return Chart(name="performance-latency", title=title, axis="µs", loads=loads, bars=bars)


def _median_ratio(samples: Samples, peer: str, other: str, quantity: Callable[..., float]) -> float | None:
    found = ratio(samples, peer, other, quantity)
    return found.median if found else None


def _label(row: Measured) -> str:
    size_kib = row.row.size_bytes // 1024
    return f"{_SHORT[row.row.api]}\n{f'{size_kib} KiB' if size_kib < 1024 else '1 MiB'}"


def draw(chart: Chart, out: Path) -> None:
    """Draw a chart as an SVG picture."""
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = chart.name  # the same picture from the same numbers
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 3.6), layout="constrained")
    width = 0.8 / len(chart.bars)
    for number, (peer, heights) in enumerate(chart.bars.items()):
        places = [at + (number - (len(chart.bars) - 1) / 2) * width for at in range(len(heights))]
        bars = axes.bar(places, [height or 0 for height in heights], width, label=peer, color=COLOURS[peer])
        axes.bar_label(bars, [f"{height:.2g}" if height else "" for height in heights], fontsize=6)
    if chart.line_at is not None:
        axes.axhline(chart.line_at, color="black", linewidth=1, linestyle="--")
    axes.set_xticks(range(len(chart.loads)), chart.loads, fontsize=8)
    axes.set_ylabel(chart.axis)
    axes.set_title(chart.title, fontsize=10)
    axes.legend(loc="upper left", ncols=len(chart.bars), fontsize=8)
    axes.margins(x=0.01, y=0.2)
    figure.savefig(out, metadata={"Date": None})
    pyplot.close(figure)


def main() -> None:
    for chart in charts(from_json(json.loads(RAW.read_text())["rows"])):
        draw(chart, out := PICTURES / f"{chart.name}.svg")
        print(f"written to {out}")


if __name__ == "__main__":
    main()
