"""Builds the HTML report of the command ``capacity`` about limits, throttling, the load of brokers, and busy hours."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kafka_quota_proxy.pipeline.capacity import Suggestion
from kafka_quota_proxy.pipeline.local_hours import quietest_run
from kafka_quota_proxy.pipeline.plots import Bar, Load, bars, heat_map, loads, rate_over_time
from kafka_quota_proxy.pipeline.record import BYTE_KINDS
from kafka_quota_proxy.pipeline.report import Section, duration, figure, keys, page, plots, size, table

_HOUR_MS: Final = 3_600_000
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MOST_ROWS: Final = 200
_MOST_BARS: Final = 8
# The number of hours that a rebalance or a nightly batch takes.
_QUIET_HOURS: Final = 4

Row = Mapping[str, Any]
Entity = tuple[str, str, str]


def label(user: str, client_id: str) -> str:
    """Return the user and client-id of an entity as one text."""
    return " / ".join(part for part in (user, client_id) if part) or "(no name)"


def capacity_page(
    *,
    suggestions: Sequence[Suggestion],
    top: Sequence[Row],
    seasons: Sequence[Row],
    brokers: Sequence[Row],
    throttled: Mapping[Entity, Row],
    growth: Mapping[Entity, float | None],
    log: str,
    warnings: Sequence[str],
    notes: Sequence[str],
    percentile: float,
    max_delay_ms: int,
    timezone: str,
) -> str:
    """Return the HTML of report.html.

    ``suggestions`` begins with those of the busiest entities, and ``top`` contains the rows of ``capacity.hourly`` for
    these entities. ``throttled`` and ``growth`` contain each entity's outcome in the replay and its growth. ``seasons``
    has the rate in each hour of the week, in the time zone ``timezone``, and ``brokers`` are the rows of
    ``capacity.oversubscription``. ``log`` is a sentence about the usage log, ``warnings`` are sentences about brokers
    with too little capacity, and ``notes`` are sentences about faults of the log.
    """
    sections = [
        Section(
            "Which clients would be throttled, and for how long?",
            "The log replayed under the suggested limits by the proxy's own arithmetic: for how long clients were "
            "silent on the broker where that is most of their time, what part of their time that is, and the longest "
            f"delay of a request. A limit is at least as high as needed for {100 - percentile:.3g} % and "
            f"{duration(max_delay_ms)}, unless a broker cannot bear it.",
            _throttled(throttled),
        ),
        Section(
            "If all used their limits at once, could the brokers bear it?",
            _brokers_words(brokers),
            _brokers(brokers),
        ),
        Section(
            "How much do the busiest use, compared with their limits?",
            "The highest rate within each hour, on the broker where it was highest; a limit holds on each broker by "
            "itself. What is above the line would come later, in the seconds after.",
            _over_time(top, suggestions, throttled),
        ),
        Section(
            "When is it busy, and when is there room?",
            f"The mean of all entities and brokers together, by weekday and hour, {timezone}. An hour without a record "
            "counts as 0. Rebalances and batches belong where it is dark.",
            _heat_maps(seasons),
        ),
        Section(
            "Which limits?",
            f"Bytes per second, on each broker. p{percentile:g} is of the intervals in which the entity was active, on "
            "its busiest broker; growth compares the same weekdays. What decided is the bound that a lower limit would "
            "break, or the capacity of a broker. " + _which(len(suggestions)),
            _limits(suggestions, throttled, growth, percentile),
        ),
    ]
    words = (
        f"{log} Next: kafka-quota-proxy check quotas.yaml, load them with enforcement: observe, then switch on "
        "in the steps of ramp/."
    )
    facts = _facts(suggestions, brokers, throttled)
    title = "Capacity: which quotas are safe to switch on"
    return page(title, facts, sections, words=words, notes=notes, warnings=warnings)


def _facts(
    suggestions: Sequence[Suggestion], brokers: Sequence[Row], throttled: Mapping[Entity, Row]
) -> list[tuple[str, str]]:
    limited = [one for one in suggestions if one.limit is not None]
    clients = len({one[1:3] for one in suggestions})
    facts = [(f"{len(limited)}", f"limits suggested, for {clients:,} {'entity' if clients == 1 else 'entities'}")]
    worst = max(throttled.items(), key=lambda item: item[1]["throttled_share"] or 0, default=None)
    if worst is not None and worst[1]["throttled_share"]:
        entity, row = worst
        words = f"of its time silent, the most of all: {_named(entity)}"
        facts.append((_share(row["throttled_share"]), words))
        entity, row = max(throttled.items(), key=lambda item: item[1]["longest_delay_ms"])
        facts.append((duration(row["longest_delay_ms"]), f"the longest delay of a request: {_named(entity)}"))
    elif limited:
        facts.append(("no client", "would have been silent for a moment under them"))
    known = [row for row in brokers if row["oversubscription"] is not None]
    if known:
        most = max(known, key=lambda row: row["oversubscription"])
        words = f"the capacity, if all used their limits at once: {_side(most)}, {most['kind']}, the fullest"
        facts.append((f"{most['oversubscription']:.2f} ×", words))
    return facts


def _which(count: int) -> str:
    """Return a sentence that says which entities the table shows, and where to find the others."""
    shown = f"The {_MOST_ROWS} that use most, of {count:,}: all" if count > _MOST_ROWS else "All"
    return f"{shown} are in suggestions/, and as rules in quotas.yaml."


def _throttled(throttled: Mapping[Entity, Row]) -> str:
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
                f"{duration(row['throttle_time_ms'])}, {_share(row['throttled_share'])}",
            )
            for entity, row in waited[:_MOST_BARS]
        ]
        rest = len(waited) - len(lines)
        delay = duration(max(row["longest_delay_ms"] for _, row in waited))
        words = f"longest delay {delay}; {len(waited)} throttled" + (f", the {len(lines)} longest" if rest else "")
        figures.append(figure(f"{kind}: silent for", words, bars(lines)))
    return plots(figures) if figures else "<p><b>None.</b></p>"


def _brokers_words(brokers: Sequence[Row]) -> str:
    words = "The sum of the limits of all entities that used a broker, and the use in its busiest minute. "
    if not any(row["capacity"] for row in brokers):
        return words + "The capacity of the brokers is unknown: name it with --capacities."
    return words + "All at once is the worst case: a sum above the capacity is a risk, a minute above it is a fault."


def _brokers(brokers: Sequence[Row]) -> str:
    figures = []
    for kind in BYTE_KINDS:
        rows = [row for row in brokers if row["kind"] == kind]
        rows.sort(key=lambda row: (-(row["oversubscription"] or 0), -(row["limits"] or 0), row["broker"], row["proxy"]))
        if not rows:
            continue
        lines = [
            Load(_side(row), row["limits"] or 0, row["peak"], row["capacity"], _load_words(row))
            for row in rows[:_MOST_BARS]
        ]
        words = f"the {len(lines)} fullest of {len(rows)}" if len(rows) > len(lines) else "the fullest first"
        figures.append(figure(kind, words, loads(lines)))
    if not figures:
        return ""
    colours = {"limit pale": "sum of limits", "use": "highest minute"}
    if any(row["capacity"] for row in brokers):
        colours["tick"] = "capacity"
    return keys(colours) + plots(figures)


def _load_words(row: Row) -> str:
    if row["oversubscription"] is None:
        return f"{_rate(row['limits'])} of limits" if row["limits"] else "no limits"
    return f"{row['oversubscription']:.2f} × capacity ({_rate(row['capacity'])})"


def _over_time(top: Sequence[Row], suggestions: Sequence[Suggestion], throttled: Mapping[Entity, Row]) -> str:
    if not top:
        return "<p>Nothing was used.</p>"
    limits = {one[:3]: one.limit for one in suggestions}
    order = {one[:3]: at for at, one in enumerate(suggestions)}
    first = min(row["hour_ms"] for row in top)
    hours = range(first, max(row["hour_ms"] for row in top) + 1, _HOUR_MS)
    peaks: dict[Entity, dict[int, float]] = {}
    for row in top:
        peaks.setdefault((row["kind"], row["user"], row["client_id"]), {})[row["hour_ms"]] = row["peak"]
    figures = []
    for entity in sorted(peaks, key=lambda entity: (order.get(entity, len(order)), entity)):
        limit, silent = limits.get(entity), throttled.get(entity)
        words = f"limit {_rate(limit)}" if limit is not None else "no limit"
        words += f", peak {_rate(max(peaks[entity].values()))}"
        if silent and silent["throttle_time_ms"]:
            words += f", silent for {_share(silent['throttled_share'])} of its time"
        plot = rate_over_time(first, _HOUR_MS, [peaks[entity].get(hour) for hour in hours], limit)
        figures.append(figure(_named(entity), words, plot))
    return keys({"use": "highest rate of each hour", "limit": "limit, and what is above it"}) + plots(figures)


def _heat_maps(seasons: Sequence[Row]) -> str:
    maps: dict[str, dict[tuple[int, int], float]] = {}
    for row in seasons:
        maps.setdefault(row["kind"], {})[row["weekday"], row["hour"]] = row["rate"]
    figures = [figure(kind, busy_and_quiet(maps[kind]), heat_map(maps[kind])) for kind in BYTE_KINDS if kind in maps]
    return plots(figures) if figures else ""


def busy_and_quiet(cells: Mapping[tuple[int, int], float]) -> str:
    """Return words for the busiest hour of the week, and for the four consecutive hours with the lowest rates.

    ``cells`` contains the rates, keyed by weekday (0 is Monday) and hour.
    """
    day, hour = max(cells, key=lambda place: (cells[place], [-part for part in place]))
    words = f"busiest {_DAYS[day]} {hour:02}:00, {_rate(cells[day, hour])}"
    found = quietest_run(cells, _QUIET_HOURS)
    if found is None:
        return words
    start, rate = found
    (day, hour), (_, end) = divmod(start, 24), divmod(start + _QUIET_HOURS, 24)
    return f"{words}; quietest {_DAYS[day]} {hour:02}:00 to {end:02}:00, {_rate(rate)}"


def _limits(
    suggestions: Sequence[Suggestion],
    throttled: Mapping[Entity, Row],
    growth: Mapping[Entity, float | None],
    percentile: float,
) -> str:
    rows = []
    for one in suggestions[:_MOST_ROWS]:
        row, trend = throttled.get(one[:3]), growth.get(one[:3])
        rows.append(
            (
                label(one.user, one.client_id),
                one.kind,
                _rate(one.limit) or "none",
                one.decided_by,
                _rate(one.percentile),
                _rate(one.peak),
                duration(row["throttle_time_ms"]) if row and row["throttle_time_ms"] else "",
                _share(row["throttled_share"]) if row and row["throttled_share"] else "",
                duration(row["longest_delay_ms"]) if row and row["longest_delay_ms"] else "",
                # A fall of more than 100 % means that the entity disappears.
                "" if trend is None else f"{max(trend, -100):+.0f} %".replace("-", "−"),
                one.why,
            )
        )
    measured = (f"p{percentile:g}", "peak", "silent", "of its time", "longest delay", "growth in 30 d")
    return table(("entity", "kind", "limit", "decided by", *measured, ""), rows, names=2, words=1)


def _named(entity: Entity) -> str:
    return f"{label(*entity[1:])}, {entity[0]}"


def _side(row: Row) -> str:
    broker = "a broker not known" if row["broker"] < 0 else f"broker {row['broker']}"
    return f"{broker} ({row['proxy']})"


def _share(share: float) -> str:
    return f"{share * 100:.2g} %" if share < 0.995 else f"{share:.0%}".replace("%", " %")


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{size(rate)}/s"
