"""The page of ``capacity``: which limits, who would wait, when it is busy, and whether brokers could bear it all."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pipeline.capacity import Suggestion
from pipeline.report import Section, bars, duration, heat_maps, page, rates_over_time, size, table

_DAY_MS: Final = 86_400_000
_MOST_ROWS: Final = 200

Row = Mapping[str, Any]


def label(user: str, client_id: str) -> str:
    """Return an entity in words."""
    return " / ".join(part for part in (user, client_id) if part) or "(no name)"


def capacity_page(
    *,
    suggestions: Sequence[Suggestion],
    top: Sequence[Row],
    seasons: Iterable[Row],
    brokers: Sequence[Row],
    throttled: Mapping[tuple[str, str, str], Row],
    growth: Mapping[tuple[str, str, str], float | None],
    facts: Mapping[str, str],
    notes: Iterable[str],
    percentile: float,
) -> str:
    """Return report.html.

    Args:
        suggestions: the busiest first.
        top: hours of the busiest entities, with ``hour_ms`` and ``peak``.
        seasons: of ``capacity.seasons``.
        brokers: of ``capacity.oversubscription``.
        throttled: by entity, what a replay under its limit gave.
        growth: by entity, per cent in 30 days.
        facts: for the head of the page.
        notes: likewise.
        percentile: that limits were taken from.
    """
    sections = [
        Section(
            "How much do the busiest use, beside their limits?",
            "The highest rate on one broker within each hour. A limit holds for each broker by itself.",
            _over_time(top, suggestions),
        ),
        Section(
            "When is it busy?",
            "The mean of all entities together, by weekday and hour. Rebalances and batches belong where it is dark.",
            _heat_maps(seasons),
        ),
        Section(
            "Who would have been throttled, and for how long?",
            "The log replayed under the suggested limits by the proxy's own arithmetic: how long clients waited.",
            _throttled(throttled),
        ),
        Section(
            "If all used their limits at once, could the brokers bear it?",
            "The sum of the limits of all who used a broker, its highest minute, and what it can do (--capacities).",
            _brokers(brokers),
        ),
        Section(
            "Which limits?",
            f"p{percentile:g} is of the intervals in which the entity was active on its busiest broker. The first "
            f"{_MOST_ROWS} of {len(suggestions)}; all of them are in suggestions/, and as rules in quotas.yaml.",
            _limits(suggestions, throttled, growth),
        ),
    ]
    return page("Capacity: which quotas are safe to switch on", facts, sections, notes)


def _over_time(top: Sequence[Row], suggestions: Sequence[Suggestion]) -> str:
    if not top:
        return "<p>Nothing was used.</p>"
    limits = {one[:3]: one.limit for one in suggestions}
    order = {one[:3]: at for at, one in enumerate(suggestions)}
    first = min(row["hour_ms"] for row in top)
    hours = range(first, max(row["hour_ms"] for row in top) + 1, 3_600_000)
    peaks: dict[tuple[str, str, str], dict[int, float]] = {}
    for row in top:
        peaks.setdefault((row["kind"], row["user"], row["client_id"]), {})[row["hour_ms"]] = row["peak"]
    series: dict[str, tuple[Sequence[float | None], float | None]] = {
        f"{label(*entity[1:])}, {entity[0]}": ([peaks[entity].get(hour) for hour in hours], limits.get(entity))
        for entity in sorted(peaks, key=lambda entity: order.get(entity, len(order)))
    }
    return rates_over_time([(hour - first) / _DAY_MS for hour in hours], series)


def _heat_maps(seasons: Iterable[Row]) -> str:
    maps: dict[str, dict[tuple[int, int], float]] = {}
    for row in seasons:
        maps.setdefault(row["kind"], {})[row["weekday"], row["hour"]] = row["rate"]
    return heat_maps(dict(sorted(maps.items(), reverse=True))) if maps else ""


def _throttled(throttled: Mapping[tuple[str, str, str], Row]) -> str:
    worst = sorted(throttled.items(), key=lambda item: (-item[1]["silent_ms"], item[0]))[:12]
    worst = [item for item in worst if item[1]["silent_ms"]]
    if not worst:
        return "<p>Nobody.</p>"
    names = [f"{label(*entity[1:])}, {entity[0]}" for entity, _ in worst]
    return bars(
        names, {"hours": [row["silent_ms"] / 3_600_000 for _, row in worst]}, unit="hours, all brokers together"
    )


def _brokers(brokers: Sequence[Row]) -> str:
    def name(row: Row) -> str:
        return f"{'?' if row['broker'] < 0 else row['broker']} ({row['proxy']}), {row['kind']}"

    shown = sorted(brokers, key=lambda row: (-(row["oversubscription"] or 0), -(row["limits"] or 0)))[:20]
    groups = {
        "sum of limits": [(row["limits"] or 0) / 1e6 for row in shown],
        "highest minute": [row["peak"] / 1e6 for row in shown],
    }
    if any(row["capacity"] for row in shown):
        groups["capacity"] = [(row["capacity"] or 0) / 1e6 for row in shown]
    rows = [
        (
            name(row),
            _rate(row["peak"]),
            _rate(row["limits"]),
            _rate(row["capacity"]),
            "" if row["oversubscription"] is None else f"{row['oversubscription']:.2f} ×",
        )
        for row in shown
    ]
    return bars([name(row) for row in shown], groups, unit="MB/s") + table(
        ("broker (proxy), kind", "highest minute", "sum of limits", "capacity", "limits / capacity"), rows
    )


def _limits(
    suggestions: Sequence[Suggestion],
    throttled: Mapping[tuple[str, str, str], Row],
    growth: Mapping[tuple[str, str, str], float | None],
) -> str:
    rows = []
    for one in suggestions[:_MOST_ROWS]:
        row, trend = throttled.get(one[:3]), growth.get(one[:3])
        rows.append(
            (
                label(one.user, one.client_id),
                one.kind,
                _rate(one.percentile),
                _rate(one.peak),
                _rate(one.limit) or "none",
                duration(row["throttle_time_ms"]) if row and row["throttle_time_ms"] else "",
                f"{row['throttled_share']:.2%}" if row and row["throttled_share"] else "",
                "" if trend is None else f"{trend:+.0f} %",
                one.why,
            )
        )
    columns = ("entity", "kind", "percentile", "peak", "limit", "would wait", "of its time", "growth in 30 d", "")
    return table(columns, rows, names=2)


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{size(rate)}/s"
