"""Builds the HTML report of the command ``capacity`` about limits, throttling, and the load of brokers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafka_quota_proxy.pipeline.capacity import Suggestion
from kafka_quota_proxy.pipeline.limit_search import Bounds, Entity
from kafka_quota_proxy.pipeline.plots import rate_over_time
from kafka_quota_proxy.pipeline.quota_comparison import LOOSE_FACTOR, UNUSED, InForce, Unused
from kafka_quota_proxy.pipeline.report import (
    Column,
    Line,
    Section,
    duration,
    entity_table,
    figure,
    keys,
    page,
    plots,
    rate,
    share,
    table,
)
from kafka_quota_proxy.pipeline.report_sections import (
    MOST_ROWS,
    TEAM,
    Brokers,
    Row,
    named,
    replays_of,
    state_facts,
    verdict,
    worst_facts,
)

_HOUR_MS: Final = 3_600_000
_STATES: Final = (
    "too tight if the entity needs more, or waited for too long in the log; too loose above "
    f"{LOOSE_FACTOR:g} times the need with headroom; unused if no client in the log has it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What the report is about.

    ``suggestions`` begins with those of the busiest entities, and ``top`` contains the rows of ``capacity.hours`` for
    these entities. ``throttled`` contains each entity's outcome in the replay. ``brokers`` are the rows of
    ``capacity.oversubscription``. ``in_force``, ``states`` and ``unused`` compare the quotas in force with what
    entities need. ``owner`` returns the team of a user and client-id, and is None if there are no teams. ``log``
    is a sentence about the usage log, ``warnings`` are sentences about brokers with too little capacity, and ``notes``
    are sentences about faults of the log. ``quotas`` is the text of quotas.yaml.
    """

    suggestions: Sequence[Suggestion]
    top: Sequence[Row]
    brokers: Sequence[Row]
    throttled: Mapping[Entity, Row]
    log: str
    warnings: Sequence[str]
    notes: Sequence[str]
    percentile: float
    bounds: Bounds
    quotas: str
    in_force: Mapping[Entity, InForce] = field(default_factory=dict)
    states: Mapping[Entity, str] = field(default_factory=dict)
    unused: Sequence[Unused] = ()
    owner: Callable[[str, str], str] | None = None


def capacity_page(found: Findings) -> str:
    """Return the HTML of report.html."""
    lines = [_line(one, found) for one in found.suggestions]
    sections = [
        Section(
            "Which limits?",
            "Each row is one kind of request of one entity. The log was replayed under the suggested limits by the "
            f"proxy's own arithmetic. A limit is at least as high as needed for {100 - found.percentile:.3g} % and "
            f"{duration(found.bounds.delay_ms)}.",
            _table(found, lines),
        ),
        Section(
            "If all used their limits at once, could the brokers bear it?",
            _brokers_words(found.brokers),
            _brokers(found.brokers),
        ),
        Section(
            "How much do the busiest use, compared with their limits?",
            "The highest rate within each hour, on the broker where it was highest; a limit holds on each broker by "
            "itself. What is above the line would come later, in the seconds after.",
            _over_time(found.top, found.suggestions, found.throttled),
        ),
    ]
    words = (
        f"{found.log} Next: kafka-quota-proxy check quotas.yaml, load them with enforcement: observe, then switch "
        "them on with enforcement: respond."
    )
    return page(
        "Capacity: which quotas are safe to switch on",
        _facts(found),
        sections,
        verdict=verdict(replays_of(found.throttled), found.bounds, _borne(found)),
        words=words,
        notes=found.notes,
        warnings=found.warnings,
    )


def _borne(found: Findings) -> Brokers:
    known = [row["oversubscription"] for row in found.brokers if row["oversubscription"] is not None]
    unknown = sum(row["capacity"] is None for row in found.brokers)
    return Brokers(overfull=len(found.warnings), fullest=max(known, default=None), unknown=unknown)


def _facts(found: Findings) -> list[tuple[str, str]]:
    limited = [one for one in found.suggestions if one.limit is not None]
    clients = len({one[1:3] for one in found.suggestions})
    facts = [(f"{len(limited):,}", f"limits suggested, for {clients:,} {'entity' if clients == 1 else 'entities'}")]
    facts += worst_facts(found.throttled)
    if len(facts) == 1 and limited:
        facts.append(("no client", "would have been silent for a moment under them"))
    known = [row for row in found.brokers if row["oversubscription"] is not None]
    if known:
        most = max(known, key=lambda row: row["oversubscription"])
        words = f"the capacity, if all used their limits at once: {_side(most)}, {most['kind']}, the fullest"
        facts.append((f"{most['oversubscription']:.2f} ×", words))
    fits = {(entity[0], limit.name): found.states[entity] for entity, limit in found.in_force.items()}
    return facts + state_facts([*fits.values(), *(UNUSED for _ in found.unused)], "current limits")


def _table(found: Findings, lines: Sequence[Line]) -> str:
    percentile = f"p{found.percentile:g}"
    replayed = "in a replay of the log under the suggested limit"
    columns = [
        Column("entity", "entity", "entity", "a user with a client-id"),
        *([TEAM] if found.owner else []),
        Column("kind", "kind", "text", is_chosen=True),
        Column("current_limit", "current", "rate", "the limit in force, on each broker"),
        Column("suggested_limit", "suggested", "rate", "the limit that this report suggests, on each broker"),
        Column("current_is", "current limit is", "text", _STATES, is_chosen=True),
        Column("decided_by", "decided by", "text", "the bound that a lower limit would break"),
        Column("percentile", percentile, "rate", "of the intervals in which it was active, on its busiest broker"),
        Column("peak", "peak", "rate", "the highest rate of a record"),
        Column("throttled_share", "silent", "share", f"the part of its time in which it waits, {replayed}"),
        Column("longest_delay_ms", "longest delay", "time", f"of a request, {replayed}"),
        Column("remark", "remark", "text"),
    ]
    unused = [
        {"entity": one[1:3], "team": _team(found, *one[1:3]), "kind": one.kind, "current_limit": one.limit}
        | {"current_is": UNUSED}
        for one in found.unused
    ]
    return entity_table("capacity", columns, [*lines, *unused], quotas=found.quotas)


def _team(found: Findings, user: str, client_id: str) -> str:
    return found.owner(user, client_id) if found.owner else ""


def _line(one: Suggestion, found: Findings) -> Line:
    entity = one[:3]
    row, current = found.throttled.get(entity), found.in_force.get(entity)
    return {
        "entity": (one.user, one.client_id),
        "team": _team(found, one.user, one.client_id),
        "kind": one.kind,
        "current_limit": current.limit if current else None,
        "suggested_limit": one.limit,
        "current_is": found.states.get(entity, ""),
        "decided_by": one.decided_by,
        "percentile": one.percentile,
        "peak": one.peak,
        "throttled_share": row["throttled_share"] if row else None,
        "longest_delay_ms": row["longest_delay_ms"] if row else None,
        "remark": one.why,
    }


def _brokers_words(brokers: Sequence[Row]) -> str:
    words = "The sums of the limits of all entities that used a broker, and the use in its busiest minute. "
    if not any(row["capacity"] for row in brokers):
        return words + "The capacity of the brokers is unknown: name it with --capacities."
    return words + "All at once is the worst case: a sum above the capacity is a risk, a minute above it is a fault."


def _brokers(brokers: Sequence[Row]) -> str:
    rows = sorted(brokers, key=lambda row: (-(row["oversubscription"] or 0), row["broker"], row["proxy"], row["kind"]))
    sums = [
        (
            _side(row),
            row["kind"],
            *(rate(row[name] or None) for name in ("current", "limits", "peak", "capacity")),
            "" if row["oversubscription"] is None else f"{row['oversubscription']:.2f} ×",
        )
        for row in rows[:MOST_ROWS]
    ]
    columns = (
        "broker",
        "kind",
        "current limits",
        "suggested limits",
        "busiest minute",
        "capacity",
        "limits / capacity",
    )
    return table(columns, sums, label="Brokers", names=2) if sums else ""


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
        words = f"limit {rate(limit)}" if limit is not None else "no limit"
        words += f", peak {rate(max(peaks[entity].values()))}"
        if silent and silent["throttle_time_ms"]:
            words += f", silent for {share(silent['throttled_share'])} of its time"
        plot = rate_over_time(first, _HOUR_MS, [peaks[entity].get(hour) for hour in hours], limit)
        figures.append(figure(named(entity), words, plot))
    return keys({"use": "highest rate of each hour", "limit": "limit, and what is above it"}) + plots(figures)


def _side(row: Row) -> str:
    broker = "a broker not known" if row["broker"] < 0 else f"broker {row['broker']}"
    return f"{broker} ({row['proxy']})"
