"""Builds the HTML report of the command ``whatif`` about throttling under proposed quotas."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kafka_quota_proxy.pipeline.limit_search import Bounds, Entity
from kafka_quota_proxy.pipeline.quota_comparison import LOOSE_FACTOR, UNUSED, InForce, Unused, states
from kafka_quota_proxy.pipeline.report import Column, Line, Section, duration, entity_table, page, share
from kafka_quota_proxy.pipeline.report_sections import (
    TEAM,
    Row,
    replays_of,
    state_facts,
    verdict,
    worst_facts,
)

_STATES: Final = (
    "too tight if its clients wait for too long; too loose above "
    f"{LOOSE_FACTOR:g} times the highest rate of its clients; unused if no client in the log has it"
)


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

    ``clients`` are all clients of the log, the busiest first. ``outcome`` is that under the proposed quotas, and
    ``unused`` are the proposed limits that no client has. ``owner`` returns the team of a user and client-id, and is
    None if there are no teams. ``notes`` are sentences about faults of the log.
    """

    clients: Sequence[Client]
    outcome: Outcome
    unused: Sequence[Unused]
    bounds: Bounds
    owner: Callable[[str, str], str] | None
    notes: Sequence[str]


def whatif_page(found: Forecast) -> str:
    """Return the HTML of report.html."""
    outcome, bounds = found.outcome, found.bounds
    fits = _states(found)
    lines = _lines(found, fits)
    sections = [
        Section(
            "Which clients?",
            "Each row is one kind of request of one client. The log was replayed under the proposed limits by the "
            "proxy's own arithmetic.",
            _table(found, lines),
        ),
    ]
    return page(
        "What if: the proposed quotas",
        _facts(found, fits),
        sections,
        verdict=verdict(replays_of(outcome.throttled), bounds),
        words=f"The verdict allows a delay of {duration(bounds.delay_ms)} (--max-delay), and throttling for "
        f"{share(bounds.share)} of a client's time. The tables entities/, hours/ and rules/ have all numbers.",
        notes=found.notes,
    )


def _states(found: Forecast) -> dict[Entity, str]:
    tight = {}
    for client in found.clients:
        row = found.outcome.of(client.entity)
        tight[client.entity] = row is not None and (
            row["throttled_share"] > found.bounds.share or row["longest_delay_ms"] > found.bounds.delay_ms
        )
    return states(found.outcome.limits, {client.entity: client.peak for client in found.clients}, tight)


def _facts(found: Forecast, fits: Mapping[Entity, str]) -> list[tuple[str, str]]:
    outcome = found.outcome
    of = len({client[1:3] for client in found.clients})
    facts = [(f"{len(outcome.throttled):,}", f"limits that clients in the log have, of {of:,} clients")]
    facts += worst_facts(outcome.throttled)
    buckets = {(entity[0], limit.name): fits[entity] for entity, limit in outcome.limits.items()}
    return facts + state_facts([*buckets.values(), *(UNUSED for _ in found.unused)], "proposed limits")


def _table(found: Forecast, lines: Sequence[Line]) -> str:
    columns = [
        Column("entity", "client", "entity", "a user with a client-id"),
        *([TEAM] if found.owner else []),
        Column("kind", "kind", "text", is_chosen=True),
        Column("current_limit", "current", "rate", "the limit that the log names, on each broker"),
        Column("proposed_limit", "proposed", "rate", "the limit of the proposed quotas, on each broker"),
        Column("proposed_is", "proposed limit is", "text", _STATES, is_chosen=True),
        Column("rule", "rule", "text", "the rule of the proposed quotas"),
        Column("shared_by", "shared by", "number", "the number of clients that have the proposed limit together"),
        Column("peak", "peak", "rate", "the highest rate of a record"),
        Column("throttled_share", "silent", "share", "in a replay, on the broker where that is highest"),
        Column("throttle_time_ms", "silent for", "time", "on the same broker"),
        Column("longest_delay_ms", "longest delay", "time", "the longest of a request"),
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
    shared = Counter((entity[0], limit.name) for entity, limit in found.outcome.limits.items())
    lines: list[Line] = []
    for client in found.clients:
        limit, row = found.outcome.limits.get(client.entity), found.outcome.of(client.entity)
        line = {
            "entity": (client.user, client.client_id),
            "team": _team(found, client.user, client.client_id),
            "kind": client.kind,
            "current_limit": client.logged_limit,
            "proposed_limit": limit.limit if limit else None,
            "proposed_is": fits[client.entity],
            "rule": limit.rule if limit else "",
            "shared_by": shared[client.kind, limit.name] if limit else None,
            "peak": client.peak,
        }
        waits = ("throttled_share", "throttle_time_ms", "longest_delay_ms")
        lines.append(line | {name: row[name] if row else None for name in waits})
    return lines
