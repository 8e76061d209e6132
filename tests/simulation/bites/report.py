"""Writes BITES.md: which breaks the simulation has found, by which promise, and after how long."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.simulation.bites.bite import Bite
from tests.simulation.bites.model import Break
from tests.simulation.record import cpu_model
from tests.simulation.themes import THEMES

BITES: Final = Path(__file__).parents[1] / "BITES.md"

_PREFACE: Final = """# Does the simulation bite?

Written by `make bites`. Each line is one break of the proxy. For each, the simulation ran
from seed 1 until a promise was broken, {steps:,} steps at most, in one process on {machine}. Without a
break it found nothing with the same seeds.

A seed's world has one of {themes} *themes*, such as followers. If hardly any other world reaches a break, it ran with
the seeds of one theme only (`make simulate ARGS="--theme followers"`).

*Fixed bug*: a bug of this project's history that came back. *Room*: drawn by hand from a room. *Mutation*: drawn by
`bites/mutate.py`.
"""


def report(breaks: Sequence[Break], bites: Mapping[str, Bite], *, steps: int) -> str:
    """Return the text of the report. ``bites`` has each break's outcome by its name."""
    harmless = [one for one in breaks if one.is_harmless]
    breaks = [one for one in breaks if not one.is_harmless]
    found = [one for one in breaks if bites[one.name].check]
    missed = [one for one in breaks if not bites[one.name].check]
    of_all = sum(not one.theme for one in found)
    lines = [_PREFACE.format(steps=steps, machine=cpu_model(), themes=len(THEMES))]
    how = f"{of_all} with the seeds of all themes, {len(found) - of_all} with those of one"
    lines += [f"**{len(found)} of {len(breaks)} were found**: {how}.", ""]
    if harmless:
        lines += [f"{len(harmless)} other breaks keep every promise, and none was found. They do not count.", ""]
    lines += _counts("origin", breaks, {one.name: one.origin for one in breaks}, bites)
    lines += _counts("room", breaks, {one.name: one.room for one in breaks}, bites)
    for title, members in (("Not found", missed), ("Keep every promise", harmless)):
        if members:
            lines += [f"## {title}", "", "| break | room | why |", "|---|---|---|"]
            lines += [f"| {_cell(one.name)} | {one.room} | {_cell(one.why or '?')} |" for one in members]
            lines.append("")
    lines += ["## Found", "", "| break | room | origin | theme | the broken promise | steps | seconds |"]
    lines.append("|---|---|---|---|---|---:|---:|")
    for one in sorted(found, key=lambda one: bites[one.name].steps):
        bite = bites[one.name]
        lines.append(
            f"| {_cell(one.name)} | {one.room} | {one.origin} | {one.theme or 'all'} | {_cell(bite.check)} "
            f"| {bite.steps:,} | {bite.seconds:,.1f} |"
        )
    return "\n".join(lines) + "\n"


def _counts(title: str, breaks: Sequence[Break], keys: Mapping[str, str], bites: Mapping[str, Bite]) -> list[str]:
    """Return a table of how many breaks of each kind were found."""
    lines = [f"| {title} | breaks | found |", "|---|---:|---:|"]
    for key in sorted(set(keys.values())):
        members = [one for one in breaks if keys[one.name] == key]
        lines.append(f"| {key} | {len(members)} | {sum(bool(bites[one.name].check) for one in members)} |")
    return [*lines, ""]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
