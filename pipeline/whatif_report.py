"""Builds the HTML report of the command ``whatif`` about throttling under proposed quotas, and under those in force."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kafka_quota_proxy.pipeline.limit_search import Bounds
from kafka_quota_proxy.pipeline.quota_comparison import LOOSE_FACTOR, UNUSED, InForce, Unused, states
from kafka_quota_proxy.pipeline.record import BYTE_KINDS
from kafka_quota_proxy.pipeline.report import Column, Line, Section, duration, entity_table, page, share, table
from kafka_quota_proxy.pipeline.report_sections import (
    TEAM,
    Entity,
    Row,
    replays_of,
    state_facts,
    teams_section,
    verdict,
    waits,
    worst_facts,
)

_STATES: Final = (
    "too tight if its clients wait for too long; too loose above "
    f"{LOOSE_FACTOR:g} times the highest rate of its clients; unused if no client in the log has it"
)
# The titles of columns without a replay under the quotas in force.
_ALONE: Final = ("silent", "silent for", "longest delay")


class Client(NamedTuple):
    """A client of the log: a user with a client-id, and one kind of request. ``peak`` is its highest rate."""

    kind: str
    user: str
    client_id: str
    amount: int
    peak: float
    logged_limit: float | None

    @property
    def entity(self) -> Entity:
        """The kind, user and client-id."""
        return self[:3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The replay of a log under some quotas.

    ``limits`` contains the limit of each client that has one. ``throttled`` contains what happened in each bucket: the
    rows of ``safe_limits.on_worst_broker``, keyed by the kind and the names of the bucket.
    """

    limits: Mapping[Entity, InForce]
    throttled: Mapping[Entity, Row]

    def of(self, entity: Entity) -> Row | None:
        """Return what happened in the bucket of a client, or None if it has no limit."""
        limit = self.limits.get(entity)
        return None if limit is None else self.throttled.get((entity[0], *limit.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What the report is about.

    ``clients`` are all clients of the log, the busiest first. ``after`` is the outcome under the proposed quotas, and
    ``before`` that under the quotas in force, or None if they are not known. ``unused`` are the proposed limits that no
    client has. ``owner`` returns the team of a user and client-id, and is None if there are no teams. ``notes`` are
    sentences about faults of the log.
    """

    clients: Sequence[Client]
    after: Outcome
    before: Outcome | None
    unused: Sequence[Unused]
    bounds: Bounds
    owner: Callable[[str, str], str] | None
    notes: Sequence[str]


def whatif_page(found: Forecast) -> str:
    """Return the HTML of report.html."""
    after, bounds = found.after, found.bounds
    fits = _states(found)
    lines = _lines(found, fits)
    sections = [
        Section("Which clients?", "Each row is one kind of request of one client.", _table(found, lines)),
        Section(
            "Which limits would throttle, and for how long?",
            "The log replayed under the proposed limits by the proxy's own arithmetic: for how long the clients of a "
            "limit were silent on the broker where that is most of their time, what part of their time that is, and "
            "the longest delay of a request.",
            waits(after.throttled),
        ),
    ]
    if found.owner is not None:
        sections.insert(1, teams_section(lines, limits="proposed"))
    if found.before is not None:
        words = "The same log is replayed under both quotas. Throttle times are the sums of all limits and brokers."
        sections.insert(0, Section("What changes?", words, _sums(found.before, after)))
    return page(
        "What if: the proposed quotas",
        _facts(found, fits),
        sections,
        verdict=verdict(replays_of(after.throttled), bounds),
        words=f"The verdict allows a delay of {duration(bounds.delay_ms)} (--max-delay), and throttling for "
        f"{share(bounds.share)} of a client's time. The tables entities/, hours/ and rules/ have all numbers.",
        notes=found.notes,
    )


def _states(found: Forecast) -> dict[Entity, str]:
    tight = {}
    for client in found.clients:
        row = found.after.of(client.entity)
        tight[client.entity] = row is not None and (
            row["throttled_share"] > found.bounds.share or row["longest_delay_ms"] > found.bounds.delay_ms
        )
    return states(found.after.limits, {client.entity: client.peak for client in found.clients}, tight)


def _facts(found: Forecast, fits: Mapping[Entity, str]) -> list[tuple[str, str]]:
    after, before = found.after, found.before
    of = len({client[1:3] for client in found.clients})
    facts = [(f"{len(after.throttled):,}", f"limits that clients in the log have, of {of:,} clients")]
    facts += worst_facts(after.throttled)
    if before is not None:
        now, then = (sum(row["total_throttle_ms"] for row in one.throttled.values()) for one in (before, after))
        facts.append((f"{duration(now)} → {duration(then)}", "throttled in sum, under the current and proposed quotas"))
    buckets = {(entity[0], limit.name): fits[entity] for entity, limit in after.limits.items()}
    return facts + state_facts([*buckets.values(), *(UNUSED for _ in found.unused)], "proposed limits")


def _sums(before: Outcome, after: Outcome) -> str:
    rows = []
    for kind in BYTE_KINDS:
        for name, outcome in (("current", before), ("proposed", after)):
            of = [row for entity, row in outcome.throttled.items() if entity[0] == kind]
            rows.append(
                (
                    name,
                    kind,
                    f"{len(of):,}",
                    f"{sum(row['throttle_time_ms'] > 0 for row in of):,}",
                    duration(sum(row["total_throttle_ms"] for row in of)),
                    share(max((row["throttled_share"] for row in of), default=0)),
                    duration(max((row["longest_delay_ms"] for row in of), default=0)),
                )
            )
    columns = ("quotas", "kind", "limits", "that throttle", "throttle time", "highest share of time", "longest delay")
    return table(columns, rows, label="Before and after", names=2)


def _table(found: Forecast, lines: Sequence[Line]) -> str:
    is_both = found.before is not None
    said = "in a replay, on the broker where that is highest"
    silent, waited, late = ("silent after", "silent for, after", "delay after") if is_both else _ALONE
    columns = [
        Column("entity", "client", "entity", "a user with a client-id"),
        *([TEAM] if found.owner else []),
        Column("kind", "kind", "text", is_chosen=True),
        Column("current_limit", "current", "rate", "the limit in force, on each broker"),
        Column("proposed_limit", "proposed", "rate", "the limit of the proposed quotas, on each broker"),
        Column("proposed_is", "proposed limit is", "text", _STATES, is_chosen=True),
        Column("rule", "rule", "text", "the rule of the proposed quotas"),
        Column("shared_by", "shared by", "number", "the number of clients that have the proposed limit together"),
        Column("peak", "peak", "rate", "the highest rate of a record"),
        *([Column("throttled_share_before", "silent before", "share", f"under the current quotas, {said}")] * is_both),
        Column("throttled_share", silent, "share", f"under the proposed quotas, {said}"),
        *([Column("throttle_time_ms_before", "silent for, before", "time", "on the same broker")] * is_both),
        Column("throttle_time_ms", waited, "time", "on the same broker"),
        *([Column("longest_delay_ms_before", "delay before", "time", "the longest of a request")] * is_both),
        Column("longest_delay_ms", late, "time", "the longest of a request"),
    ]
    unused = [
        {"entity": one[1:3], "team": _team(found, *one[1:3]), "kind": one.kind, "proposed_limit": one.limit}
        | {"proposed_is": UNUSED}
        for one in found.unused
    ]
    return entity_table("whatif", columns, [*lines, *unused])


def _team(found: Forecast, user: str, client_id: str) -> str:
    return found.owner(user, client_id) if found.owner else ""


def _lines(found: Forecast, fits: Mapping[Entity, str]) -> list[Line]:
    shared = Counter((entity[0], limit.name) for entity, limit in found.after.limits.items())
    lines: list[Line] = []
    for client in found.clients:
        limit, current = found.after.limits.get(client.entity), _current(client, found)
        line = {
            "entity": (client.user, client.client_id),
            "team": _team(found, client.user, client.client_id),
            "kind": client.kind,
            "amount": client.amount,
            "current_of": current.name if current else None,
            "current_limit": current.limit if current else None,
            "proposed_of": limit.name if limit else None,
            "proposed_limit": limit.limit if limit else None,
            "proposed_is": fits[client.entity],
            "rule": limit.rule if limit else "",
            "shared_by": shared[client.kind, limit.name] if limit else None,
            "peak": client.peak,
        }
        for when, outcome in (("", found.after), ("_before", found.before)):
            row = outcome.of(client.entity) if outcome else None
            for name in ("throttled_share", "throttle_time_ms", "longest_delay_ms"):
                line[name + when] = row[name] if row else None
        lines.append(line)
    return lines


def _current(client: Client, found: Forecast) -> InForce | None:
    if found.before is not None:
        return found.before.limits.get(client.entity)
    return None if client.logged_limit is None else InForce((client.user, client.client_id), client.logged_limit)
