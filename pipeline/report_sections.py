"""Builds the parts that the reports of ``capacity`` and ``whatif`` have in common: throttled clients, and teams."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kafka_quota_proxy.pipeline.entity_table import Column, label
from kafka_quota_proxy.pipeline.plots import Bar, bars
from kafka_quota_proxy.pipeline.quota_comparison import TOO_LOOSE, TOO_TIGHT, UNUSED
from kafka_quota_proxy.pipeline.record import BYTE_KINDS
from kafka_quota_proxy.pipeline.report import Section, duration, figure, plots, rate, share, size, table
from kafka_quota_proxy.pipeline.teams import Use, by_team
from kafka_quota_proxy.pipeline.verdict import Replay

MOST_ROWS: Final = 200
MOST_BARS: Final = 8
TEAM: Final = Column("team", "team", "text", "the owner on the last day of the log", is_chosen=True)

Row = Mapping[str, Any]
Entity = tuple[str, str, str]


def named(entity: Entity) -> str:
    """Return the names and the kind of an entity as one text."""
    return f"{label(*entity[1:])}, {entity[0]}"


def replays_of(throttled: Mapping[Entity, Row]) -> list[Replay]:
    """Return what a replay found for each entity, for the verdict."""
    return [Replay(named(names), row["throttled_share"], row["longest_delay_ms"]) for names, row in throttled.items()]


def waits(throttled: Mapping[Entity, Row]) -> str:
    """Return plots of the entities that are silent for the longest time, for each kind of request."""
    figures = []
    for kind in BYTE_KINDS:
        waited = sorted(
            ((entity, row) for entity, row in throttled.items() if entity[0] == kind and row["throttle_time_ms"]),
            key=lambda item: (-item[1]["throttle_time_ms"], item[0]),
        )
        if not waited:
            continue
        lines = [
            Bar(
                label(*entity[1:]),
                row["throttle_time_ms"],
                f"{duration(row['throttle_time_ms'])}, {share(row['throttled_share'])}",
            )
            for entity, row in waited[:MOST_BARS]
        ]
        rest = len(waited) - len(lines)
        delay = duration(max(row["longest_delay_ms"] for _, row in waited))
        words = f"longest delay {delay}; {len(waited)} throttled" + (f", the {len(lines)} longest" if rest else "")
        figures.append(figure(f"{kind}: silent for", words, bars(lines)))
    return plots(figures) if figures else "<p><b>None.</b></p>"


def worst_facts(throttled: Mapping[Entity, Row]) -> list[tuple[str, str]]:
    """Return the highest share of time throttled and the longest delay. There are none if no entity is throttled."""
    worst = max(throttled.items(), key=lambda item: item[1]["throttled_share"] or 0, default=None)
    if worst is None or not worst[1]["throttled_share"]:
        return []
    latest, row = max(throttled.items(), key=lambda item: item[1]["longest_delay_ms"])
    return [
        (share(worst[1]["throttled_share"]), f"of its time silent, the most of all: {named(worst[0])}"),
        (duration(row["longest_delay_ms"]), f"the longest delay of a request: {named(latest)}"),
    ]


def state_facts(states: Iterable[str], of: str) -> list[tuple[str, str]]:
    """Return how many limits do not fit. ``of`` says which limits these are."""
    every = list(states)
    counts = [every.count(state) for state in (TOO_TIGHT, TOO_LOOSE, UNUSED)]
    if not any(counts):
        return []
    return [(" / ".join(f"{count:,}" for count in counts), f"{of} that are too tight / too loose / unused")]


def teams_section(uses: Sequence[Use], *, limits: str) -> Section:
    """Return a table of teams. ``limits`` says which limits are compared with those in force."""
    found = by_team(uses)
    rows = [
        (
            team.team,
            team.kind,
            f"{team.entities:,}",
            size(team.amount),
            rate(team.current),
            rate(team.limit),
            share(team.throttled_share),
            duration(team.longest_delay_ms),
        )
        for team in found[:MOST_ROWS]
    ]
    words = "The sums of each team's entities, and the worst of their waits. Limits are those on each broker."
    if len(found) > MOST_ROWS:
        words += f" These are the first {MOST_ROWS} of {len(found):,} rows."
    columns = ("team", "kind", "entities", "used", "current limits", f"{limits} limits", "silent", "longest delay")
    return Section("Which teams?", words, table(columns, rows, label="Teams", names=2))
