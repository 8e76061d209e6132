"""Finds limits that are safe for clients, with one replay of the log, and brokers that cannot bear what they need.

``limit_search`` decides which limits to replay.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from kafka_quota_proxy.pipeline.candidate_quotas import CandidateQuotas
from kafka_quota_proxy.pipeline.capacity import Suggestion
from kafka_quota_proxy.pipeline.limit_search import Bounds, Entity, LimitSearch, Replayed
from kafka_quota_proxy.pipeline.record import BUCKET, ENTITY
from kafka_quota_proxy.pipeline.report import size
from kafka_quota_proxy.pipeline.whatif import DEMAND, LogReplay, outcomes, resolved

# What a replay finds for each entity, and for each limit of it.
Outcomes = dict[tuple[Entity, int], dict[str, Any]]
Replays = Callable[[Mapping[Entity, Iterable[int]]], Outcomes]


def log_replays(
    replay: LogReplay,
    buckets: pd.DataFrame,
    suggested: Iterable[Suggestion],
    quotas: CandidateQuotas,
    *,
    max_delay_ms: float,
    say: Callable[[str], None],
) -> Replays:
    """Return a function that replays the log under limits of entities, several limits of each entity in one pass.

    ``buckets`` is the result of ``capacity.percentiles``, in this process, and ``replay`` replays the same log. A
    longer delay than ``max_delay_ms`` ends a replay. Each pass is announced to ``say``.
    """
    used = buckets[[*BUCKET, *DEMAND]]
    names = resolved([one[:3] for one in suggested if one.limit is not None], quotas).drop(columns="limit")

    def run(limits: Mapping[Entity, Iterable[int]]) -> Outcomes:
        rows = [(*entity, float(limit)) for entity, of in limits.items() for limit in sorted(of)]
        say(f"replaying the log under {len(rows)} limits, to find {len(limits)}")
        named = names.merge(pd.DataFrame(rows, columns=[*ENTITY, "limit"]), on=[*ENTITY])
        totals = replay.hours(named, quotas, max_delay_ms=max_delay_ms, is_total=True)
        worst = on_worst_broker(outcomes(used, named, totals)).to_dict("records")
        return {((row["kind"], row["user"], row["client_id"]), round(row["limit"])): row for row in worst}

    return run


def safe_limits(
    suggested: Sequence[Suggestion], replays: Replays, bounds: Bounds, *, headroom: float
) -> tuple[list[Suggestion], dict[Entity, dict[str, Any]]]:
    """Find the limits of all entities that can have one. Return all suggestions, and the outcome of each limit."""
    searches = {
        one[:3]: LimitSearch(one.percentile, one.never_waits, headroom=headroom, bounds=bounds)
        for one in suggested
        if one.limit is not None
    }
    if not searches:
        return [*suggested], {}
    found = replays({names: search.to_replay for names, search in searches.items()})
    for names, search in searches.items():
        rows = {limit: found[names, limit] for limit in search.to_replay}
        search.take({limit: Replayed(row["throttled_share"], row["longest_delay_ms"]) for limit, row in rows.items()})
    limited = [
        one._replace(limit=by.limit, decided_by=by.decided_by, need=by.need) if (by := searches.get(one[:3])) else one
        for one in suggested
    ]
    return limited, {names: found[names, search.limit] for names, search in searches.items()}


def full_brokers(
    suggested: Iterable[Suggestion], buckets: pd.DataFrame, capacities: Mapping[tuple[int, str], float]
) -> list[str]:
    """Return a sentence about each broker that cannot bear what its clients need, the worst first.

    Several proxies in front of a broker limit an entity separately. ``capacities`` contains bytes per second, keyed by
    node id and kind.
    """
    needs = {one[:3]: one.need or 0 for one in suggested}
    sums = Counter[tuple[int, str]]()
    for broker, *names in buckets[["broker", *ENTITY]].itertuples(index=False, name=None):
        kind, user, client_id = names
        sums[broker, kind] += needs[kind, user, client_id]
    times = {place: sums[place] / capacity for place, capacity in capacities.items() if sums[place] > capacity}
    return [
        f"Broker {broker} ({kind}) cannot bear what its clients need: {size(sums[broker, kind])}/s, "
        f"{times[broker, kind]:.3g} times its capacity."
        for broker, kind in sorted(times, key=lambda place: (-times[place], place))
    ]


def on_worst_broker(by_bucket: pd.DataFrame) -> pd.DataFrame:
    """Return what the replay found for each entity and limit, on the broker where that is worst.

    The throttle time is that of the broker with the highest share of throttled time.
    """
    keys = [*ENTITY, "limit"]
    named = by_bucket.rename(columns={"bucket_user": "user", "bucket_client_id": "client_id"})
    groups = named.groupby(keys)
    worst = named.loc[groups["throttled_share"].idxmax(), [*keys, "throttled_share", "throttle_time_ms"]]
    return worst.merge(groups.agg(longest_delay_ms=("longest_delay_ms", "max")), left_on=keys, right_index=True)
