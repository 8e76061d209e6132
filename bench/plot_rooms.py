"""Draws the rooms of the program (the packages, and the folders of ``proxy/``) and their imports.

``python -m bench.plot_rooms [--out docs/pictures/rooms.svg]``

A room is drawn above all that it imports, and its height is its number of lines. An import has an arrow only if no
other imported room leads to the same room.
"""

import argparse
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.patches import FancyBboxPatch

from tests.test_layout import REPOSITORY, rooms

OUT: Final = REPOSITORY / "docs" / "pictures" / "rooms.svg"
_WIDTH: Final = 1.7
_LINES_PER_UNIT: Final = 9_000


def lines_of(room: str) -> int:
    place = REPOSITORY / "kafka_quota_proxy" / room.replace(".", "/")  # also a link, or a module
    paths = [*place.rglob("*.py")] or [place.with_suffix(".py")]
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def floors_of(graph: Mapping[str, set[str]]) -> dict[str, int]:
    """Return the floor of each room, which is above the floors of all rooms that it imports."""

    @cache
    def floor(room: str) -> int:
        return 1 + max(map(floor, graph[room]), default=0)

    return {room: floor(room) for room in graph}


def needed(graph: Mapping[str, set[str]]) -> set[tuple[str, str]]:
    """Return the imports that have an arrow."""

    @cache
    def below(room: str) -> frozenset[str]:
        return frozenset(graph[room]).union(*map(below, graph[room]))

    return {
        (room, imported)
        for room, all_imported in graph.items()
        for imported in all_imported
        if not any(imported in below(other) for other in all_imported - {imported})
    }


def draw(out: Path) -> None:
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "rooms"
    graph = rooms()
    floors = floors_of(graph)
    figure, axes = plt.subplots(figsize=(8, 7.2))
    places: dict[str, tuple[float, float, float]] = {}
    bottom = 0.0
    for number in range(1, max(floors.values()) + 1):
        names = sorted(room for room, floor in floors.items() if floor == number)
        heights = {name: 0.5 + lines_of(name) / _LINES_PER_UNIT for name in names}
        for index, name in enumerate(names):
            x = (index - (len(names) - 1) / 2) * 2.3
            places[name] = (x, bottom, heights[name])
            axes.add_patch(
                FancyBboxPatch(
                    (x - _WIDTH / 2, bottom),
                    _WIDTH,
                    heights[name],
                    boxstyle="round,pad=0.03",
                    facecolor="#dbe9f6",
                    edgecolor="#33506b",
                )
            )
            label = f"{name.replace('.', '/')}\n{lines_of(name):,} lines"
            axes.text(x, bottom + heights[name] / 2, label, ha="center", va="center", fontsize=8)
        bottom += max(heights.values()) + 0.5
    for importer, imported in sorted(needed(graph)):
        x, y, _ = places[importer]
        to_x, to_y, height = places[imported]
        axes.annotate(
            "",
            xy=(to_x, to_y + height + 0.04),
            xytext=(x, y - 0.04),
            arrowprops={"arrowstyle": "->", "color": "#888888", "connectionstyle": "arc3,rad=0.06"},
        )
    arrows = sum(map(len, graph.values()))
    axes.set_title(f"{len(graph)} rooms, {max(floors.values())} floors, {arrows} imports between them", fontsize=10)
    axes.autoscale_view()
    axes.axis("off")
    figure.savefig(out, metadata={"Date": None}, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    draw(parser.parse_args().out)


if __name__ == "__main__":
    main()
