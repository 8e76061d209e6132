"""Finds limits that are safe for clients and for brokers, with one or two replays of the usage log.

``limit_search`` decides which limits to replay, and ``broker_capacity`` what brokers can bear.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

import pandas as pd

from kafka_quota_proxy.pipeline.broker_capacity import (
    Broker,
    Entity,
    Shortage,
    Users,
    shaped,
    shortages,
)
from kafka_quota_proxy.pipeline.candidate_quotas import CandidateQuotas
from kafka_quota_proxy.pipeline.capacity import Suggestion
from kafka_quota_proxy.pipeline.limit_search import (
    CAPACITY,
    LEAST_LIMIT,
    Bounds,
    LimitSearch,
    Replayed,
    rounded_down,
)
from kafka_quota_proxy.pipeline.record import BUCKET, ENTITY
from kafka_quota_proxy.pipeline.report import duration, size
from kafka_quota_proxy.pipeline.whatif import DEMAND, LogReplay, outcomes, resolved

# What a replay found under one limit of an entity, keyed by entity and limit.
_Outcomes = dict[tuple[Entity, int], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Safety:
    """What makes a limit safe. On each broker, limits add up to at most its capacity times ``oversubscription``."""

    bounds: Bounds
    headroom: float
    capacities: Mapping[Broker, float]
    oversubscription: float = 1.0


class SafeLimits(NamedTuple):
    """The suggestions with their limits, the outcome of a replay for each limit, and sentences about full brokers."""

    suggestions: list[Suggestion]
    outcomes: dict[Entity, dict[str, Any]]
    warnings: list[str]


class LogReplays:
    """Replays the log under limits of entities, several limits of each entity in one pass.

    ``buckets`` is the result of ``capacity.percentiles``, in this process, and ``replay`` replays the same log. Each
    pass is announced to ``say``.
    """

    def __init__(
        self,
        replay: LogReplay,
        buckets: pd.DataFrame,
        suggested: Iterable[Suggestion],
        quotas: CandidateQuotas,
        *,
        say: Callable[[str], None],
    ) -> None:
        self._replay = replay
        self._quotas = quotas
        self._used = buckets[[*BUCKET, *DEMAND]]
        self._resolved = resolved([one[:3] for one in suggested if one.limit is not None], quotas).drop(columns="limit")
        self._say = say
        self._found: _Outcomes = {}

    def run(self, limits: Mapping[Entity, Iterable[int]], *, max_delay_ms: float = inf) -> _Outcomes:
        """Replay the log under these limits of each entity. A longer delay than ``max_delay_ms`` ends a replay."""
        rows = [(*names, float(limit)) for names, of in limits.items() for limit in sorted(of)]
        self._say(f"replaying the log under {len(rows)} limits, to find {len(limits)}")
        named = self._resolved.merge(pd.DataFrame(rows, columns=[*ENTITY, "limit"]), on=[*ENTITY])
        totals = self._replay.hours(named, self._quotas, max_delay_ms=max_delay_ms, is_total=True)
        worst = on_worst_broker(outcomes(self._used, named, totals)).to_dict("records")
        found = {((row["kind"], row["user"], row["client_id"]), round(row["limit"])): row for row in worst}
        self._found |= found
        return found

    def complete(self, limits: Mapping[Entity, int], max_delay_ms: int) -> dict[Entity, dict[str, Any]]:
        """Return the outcomes under these limits. Limits without a complete replay are replayed first."""
        missing = {
            names: [limit]
            for names, limit in limits.items()
            if (names, limit) not in self._found or self._found[names, limit]["longest_delay_ms"] > max_delay_ms
        }
        if missing:
            self.run(missing)
        return {names: self._found[names, limit] for names, limit in limits.items()}


def users_of(buckets: pd.DataFrame) -> Users:
    """Return how many proxies each entity uses in front of each broker, from the result of ``capacity.percentiles``."""
    found: dict[Broker, dict[Entity, int]] = {}
    for (broker, *names), count in buckets.groupby(["broker", *ENTITY]).size().items():
        kind, user, client_id = names
        found.setdefault((int(broker), kind), {})[kind, user, client_id] = int(count)
    return found


def safe_limits(suggested: Sequence[Suggestion], replays: LogReplays, users: Users, safety: Safety) -> SafeLimits:
    """Find the limits of all entities that can have one.

    Only the ``users`` of brokers with a known capacity matter.
    """
    searches = _searched(suggested, replays, safety)
    users = {
        broker: {names: times for names, times in of.items() if names in searches}
        for broker, of in users.items()
        if broker in safety.capacities
    }
    limits = _bearable_limits(searches, users, safety)
    found = replays.complete(limits, safety.bounds.delay_ms)
    needs = {names: float(search.need) for names, search in searches.items()}
    short = shortages(needs, users, _bearable(users, safety))
    return SafeLimits(
        [_suggested(one, searches, limits) for one in suggested],
        found,
        [_warning(one, users[one.broker], safety, searches, limits, found) for one in short],
    )


def _searched(suggested: Iterable[Suggestion], replays: LogReplays, safety: Safety) -> dict[Entity, LimitSearch]:
    """Search for the limit of each entity, without regard to the capacity of brokers."""
    searches = {
        one[:3]: LimitSearch(one.percentile, one.never_waits, headroom=safety.headroom, bounds=safety.bounds)
        for one in suggested
        if one.limit is not None
    }
    if not searches:
        return searches
    found = replays.run(
        {names: search.to_replay for names, search in searches.items()}, max_delay_ms=safety.bounds.delay_ms
    )
    for names, search in searches.items():
        rows = {limit: found[names, limit] for limit in search.to_replay}
        search.take({limit: Replayed(row["throttled_share"], row["longest_delay_ms"]) for limit, row in rows.items()})
    return searches


def _bearable(users: Users, safety: Safety) -> dict[Broker, float]:
    return {broker: safety.capacities[broker] * safety.oversubscription for broker in users}


def _bearable_limits(searches: Mapping[Entity, LimitSearch], users: Users, safety: Safety) -> dict[Entity, int]:
    """Return the limits that were found, or lower ones where brokers cannot bear them."""
    limits = {names: search.limit for names, search in searches.items()}
    needs = {names: search.need for names, search in searches.items()}
    for names, rate in shaped(needs, limits, users, _bearable(users, safety)).items():
        if rate < limits[names]:
            limits[names] = max(LEAST_LIMIT, rounded_down(rate))
    return limits


def _suggested(one: Suggestion, searches: Mapping[Entity, LimitSearch], limits: Mapping[Entity, int]) -> Suggestion:
    """Return the suggestion with the limit that was found, and with what decided it."""
    search = searches.get(one[:3])
    if search is None:
        return one
    limit = limits[one[:3]]
    if limit == search.limit:
        return one._replace(limit=limit, decided_by=search.decided_by, need=search.need)
    needs = f"needs {size(search.need)}/s" if limit < search.need else ""
    why = ", ".join(filter(None, (needs, one.why)))
    return one._replace(limit=limit, decided_by=CAPACITY, why=why, need=search.need)


def _warning(
    short: Shortage,
    clients: Iterable[Entity],
    safety: Safety,
    searches: Mapping[Entity, LimitSearch],
    limits: Mapping[Entity, int],
    found: Mapping[Entity, Mapping[str, Any]],
) -> str:
    """Return a sentence about a broker that cannot bear what its clients need."""
    broker, kind = short.broker
    lower = [names for names in clients if limits[names] < searches[names].need]
    longest_ms = max((found[names]["longest_delay_ms"] for names in lower), default=0)
    words = "limit is too low for its client" if len(lower) == 1 else "limits are too low for their clients"
    return (
        f"Broker {broker} ({kind}) cannot bear what its clients need: limits of {size(short.needed)}/s, "
        f"{short.needed / safety.capacities[short.broker]:.3g} times its capacity. So {len(lower)} {words}, and a "
        f"request would wait for up to {duration(longest_ms)}."
    )


def on_worst_broker(by_bucket: pd.DataFrame) -> pd.DataFrame:
    """Return what the replay found for each entity and limit, on the broker where that is worst.

    The throttle time is that of the broker with the highest share of throttled time.
    """
    keys = [*ENTITY, "limit"]
    named = by_bucket.rename(columns={"bucket_user": "user", "bucket_client_id": "client_id"})
    groups = named.groupby(keys)
    worst = named.loc[groups["throttled_share"].idxmax(), [*keys, "throttled_share", "throttle_time_ms"]]
    return worst.merge(groups.agg(longest_delay_ms=("longest_delay_ms", "max")), left_on=keys, right_index=True)
