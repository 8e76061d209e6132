"""Measures how much each entity (a user with a client-id) uses, and suggests limits.

The functions take and return DataFrames of Spark, or of pandas where there is a row for each entity or broker. They do
no I/O. Percentiles count only intervals with a record, because otherwise an entity
that works for ten minutes a day would get a limit of almost 0.
"""

from collections.abc import Iterable, Mapping
from math import isnan
from typing import Any, Final, NamedTuple

import pandas as pd
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from kafka_quota_proxy.config.model import QuotaRule
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.pipeline.limit_search import LEAST_LIMIT, Entity, rounded_up
from kafka_quota_proxy.pipeline.quota_comparison import InForce
from kafka_quota_proxy.pipeline.record import (
    BUCKET,
    BYTE_KINDS,
    COLLECTIVE_NAMES,
    ENTITY,
    NAME_OF_DEFAULTS,
    PLACE,
    start_of,
)
from kafka_quota_proxy.pipeline.whatif import demand_columns, logged_columns

# The number of bins for each doubling of a rate. So a percentile is at most 1.1 % too high, and never too low.
_BINS: Final = 64
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000


def byte_usage(records: DataFrame) -> DataFrame:
    """Return the produce and fetch records, with the rate of each record in bytes per second in the column ``rate``.

    An unknown broker becomes -1, because later joins on the column ``broker`` would skip records with a null.
    """
    interval_ms = F.greatest("interval_ms", F.lit(100))
    rate = F.greatest(F.lit(0).cast("long"), F.floor(F.col("amount") * 1_000 / interval_ms))
    used = records.where(F.col("kind").isin(*BYTE_KINDS))
    return used.withColumns({"broker": F.coalesce("broker", F.lit(-1)), "rate": rate})


def rates(usage: DataFrame) -> DataFrame:
    """Return a histogram of the rates of each bucket, with logarithmic bins, and the columns ``whatif.DEMAND``.

    ``usage`` is the result of ``byte_usage``. The peak of a bin is the highest measured rate in it.
    """
    bin_of = F.when(F.col("rate") < 1, F.lit(-1)).otherwise(F.ceil(F.log2("rate") * _BINS)).cast("int")
    throttled = F.sum(F.when(F.col("enforced"), F.col("throttled_requests")).otherwise(0))
    return usage.groupBy(*BUCKET, bin_of.alias("bin")).agg(
        F.count("*").alias("intervals"),
        F.max("rate").alias("peak"),
        F.sum("interval_ms").alias("active_ms"),
        *demand_columns(),
        throttled.alias("throttled_requests"),
        *logged_columns(),
    )


def minutes(usage: DataFrame) -> DataFrame:
    """For each entity on each broker and each minute, return the amount, the highest rate and the longest interval.

    The next two functions take this table, since it has fewer rows than the log.
    """
    return usage.groupBy(*BUCKET, start_of(_MINUTE_MS).alias("start_ms")).agg(
        F.sum("amount").alias("amount"), F.max("rate").alias("rate"), F.max("interval_ms").alias("interval_ms")
    )


def hours(usage: DataFrame) -> DataFrame:
    """For each entity on each broker and each hour, return the amount and the highest rate."""
    return usage.groupBy(*BUCKET, start_of(_HOUR_MS).alias("hour_ms")).agg(
        F.sum("amount").alias("amount"), F.max("rate").alias("peak")
    )


def broker_minutes(usage: DataFrame) -> DataFrame:
    """For each broker, kind and minute, return the amount of all entities and their longest interval."""
    return usage.groupBy(*PLACE, "kind", start_of(_MINUTE_MS).alias("start_ms")).agg(
        F.sum("amount").alias("amount"), F.max("interval_ms").alias("interval_ms")
    )


_RATE_KEYS: Final = {kind.label: kind.key for kind in (QuotaKind.PRODUCE, QuotaKind.FETCH)}


def percentiles(rates: DataFrame, percentile: float) -> DataFrame:
    """For each entity on each broker, return the peak, median, mean and ``percentile`` of its rates.

    ``rates`` is the result of ``rates``. ``percentile`` is from 50 to 100. The
    result also has the columns ``whatif.DEMAND``, which a replay of the log needs. Percentiles may be up to 1.1 % too
    high, but do not depend on the order of the records.
    """
    below = Window.partitionBy(*BUCKET).orderBy("bin").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    all_of_it = Window.partitionBy(*BUCKET)
    ranked = rates.withColumns({"rank": F.sum("intervals").over(below), "of": F.sum("intervals").over(all_of_it)})
    return ranked.groupBy(*BUCKET).agg(
        _at(50).alias("median"),
        _at(percentile).alias("percentile"),
        F.max("peak").alias("peak"),
        *(F.max(name).alias(name) for name in ("densest", "part", "until_ms")),
        F.min("from_ms").alias("from_ms"),
        F.sum("intervals").alias("intervals"),
        F.sum("amount").alias("amount"),
        F.sum("active_ms").alias("active_ms"),
        F.sum("throttled_requests").alias("throttled_requests"),
        F.max_by("logged_limit", "until_ms").alias("logged_limit"),
        F.sum("logged_throttle_ms").alias("logged_throttle_ms"),
        (F.sum("amount") * 1_000 / F.greatest(F.sum("active_ms"), F.lit(1))).alias("mean"),
    )


def _at(percentile: float) -> Column:
    """Return the Spark aggregation that reads the given percentile from a histogram of rates."""
    wanted = F.ceil(F.col("of") * (percentile / 100) - 1e-9)
    return F.min(F.when(F.col("rank") >= wanted, F.col("peak")))


def entities(buckets: pd.DataFrame) -> list[dict[str, Any]]:
    """For each entity, return the highest median, percentile and peak of its rates on any single broker.

    ``buckets`` is the result of ``percentiles``. These values determine the limit to suggest, because Kafka applies a
    quota on each broker separately. The result also contains the entity's total amount on all brokers, the limit that
    its last records name (``logged_limit``, the lowest of all brokers), and the highest share of time in which the log
    says that it was throttled. It begins with the entity that has the highest amount.
    """
    highest = {name: (name, "max") for name in ("median", "percentile", "peak", "part")}
    sums = {name: (name, "sum") for name in ("amount", "throttled_requests")}
    shares = buckets.assign(logged_share=buckets["logged_throttle_ms"] / buckets["active_ms"].clip(lower=1))
    found = shares.groupby([*ENTITY], as_index=False).agg(
        **highest, **sums, brokers=("amount", "size"), logged_limit=("logged_limit", "min"),
        logged_share=("logged_share", "max"),
    )  # fmt: skip
    ordered = found.sort_values(["amount", *ENTITY], ascending=[False, *(True for _ in ENTITY)], kind="stable")
    rows: list[dict[str, Any]] = ordered.to_dict("records")
    return [row | {"logged_limit": None if isnan(row["logged_limit"]) else row["logged_limit"]} for row in rows]


class Suggestion(NamedTuple):
    """A suggested limit for one kind of request of one entity, and the rates that it is based on.

    ``limit`` is in bytes per second, or None if no rule can limit the entity. ``why`` is a remark, and may be empty.
    ``decided_by`` is the bound that keeps the limit from being lower or higher (see ``limit_search``). ``need`` is the
    lowest limit that meets the bounds, or None before the search for it.
    """

    kind: str
    user: str
    client_id: str
    percentile: int
    peak: int
    part: int
    limit: int | None
    why: str
    decided_by: str = ""
    need: int | None = None

    @property
    def never_waits(self) -> int:
        """A limit with three significant digits, so high that a replay of the log never throttles the entity."""
        # With 11 windows of one second, the amount that counts arrived within 12 s and is divided by at least 10 s. One
        # part more may count at either end, since the arrival times of parts are a guess.
        return max(LEAST_LIMIT, rounded_up(1.2 * self.peak + 0.2 * self.part))


def suggestion(entity: Mapping[str, Any]) -> Suggestion:
    """Return a suggestion with the percentile of an entity's rates as its limit, to begin a search with.

    ``entity`` is a row of the result of ``entities``. The limit is None if no quota rule can be made for the entity.
    """
    kind, user, client_id = entity["kind"], entity["user"], entity["client_id"]
    numbers = (int(entity["percentile"]), int(entity["peak"]), int(entity["part"]))
    limit = None
    if {user, client_id} & set(COLLECTIVE_NAMES):
        why = "several clients without a bucket of their own: raise max_buckets, or give them rules by name"
    elif NAME_OF_DEFAULTS in (user, client_id):
        why = "its name means all others in a file of quotas, so that no rule can be for it"
    elif not user and not client_id:
        why = "a client without a client-id: Kafka looks up no rule for an empty one; limit its user"
    else:
        limit = max(LEAST_LIMIT, rounded_up(entity["percentile"]))
        why = "was throttled while this was measured, and may need more" if entity["throttled_requests"] else ""
    return Suggestion(kind, user, client_id, *numbers, limit, why)


def rules(suggestions: Iterable[Suggestion]) -> list[tuple[QuotaRule, str]]:
    """Return a quota rule and its comment for each entity with a suggested limit, sorted by user and client-id.

    The comment says for each kind which bound decided, and contains the remarks.
    """
    limits: dict[tuple[str, str], dict[str, float]] = {}
    words: dict[tuple[str, str], list[str]] = {}
    for one in sorted(suggestions, key=lambda one: one.kind, reverse=True):  # produce comes first
        if one.limit is not None:
            limits.setdefault((one.user, one.client_id), {})[_RATE_KEYS[one.kind]] = float(one.limit)
            said = ", ".join(filter(None, (one.decided_by, one.why)))
            if said:
                words.setdefault((one.user, one.client_id), []).append(f"{one.kind}: {said}")
    return [
        (
            QuotaRule(user=user or None, client_id=client_id or None, limits=given),
            "; ".join(words.get((user, client_id), ())),
        )
        for (user, client_id), given in sorted(limits.items())
    ]


def brokers(minutes: DataFrame) -> DataFrame:
    """For each broker and kind, return the total amount of all entities, and the rate in the busiest minute.

    ``minutes`` is the result of ``broker_minutes``.
    """
    # A record longer than a minute counts in the minute of its start. Its amount is divided by its whole length.
    span_ms = F.greatest(F.max("interval_ms"), F.lit(60_000))
    return minutes.groupBy(*PLACE, "kind").agg((F.max("amount") * 1_000 / span_ms).alias("peak"))


def oversubscription(
    used: pd.DataFrame,
    buckets: pd.DataFrame,
    limits: Mapping[Entity, int | None],
    in_force: Mapping[Entity, InForce],
    capacities: Mapping[tuple[int, str], float],
) -> pd.DataFrame:
    """For each broker and kind, compare the sum of all limits with the broker's capacity, which is null if unknown.

    ``used`` is the result of ``brokers``, and ``buckets`` that of ``percentiles``. ``limits`` has the suggested limits
    of entities, and ``in_force`` their present ones. Entities whose limits in force have the same name share one limit,
    which counts once. ``capacities`` contains bytes per second, keyed by broker and kind.
    """
    keys = [*PLACE, "kind"]
    rows = [
        (*names, limit, *((now.name, now.limit) if (now := in_force.get(names)) else (None, None)))
        for names, limit in limits.items()
    ]
    known = pd.DataFrame(rows, columns=[*ENTITY, "limits", "name", "current"])
    known = known.astype({"limits": "Int64", "current": float})
    named = buckets[[*keys, "user", "client_id"]].merge(known, on=[*ENTITY])
    groups = named.groupby(keys)["limits"]
    sums = pd.DataFrame({"limits": groups.sum(min_count=1), "limited": groups.count()})
    shared = named[named["current"].notna()].drop_duplicates([*keys, "name", "current"])
    sums["current"] = shared.groupby(keys)["current"].sum()
    every = used.merge(sums.fillna({"current": 0.0}), left_on=keys, right_index=True, how="left")
    places = every[["broker", "kind"]].itertuples(index=False, name=None)
    every["capacity"] = pd.Series([capacities.get(place) for place in places], index=every.index, dtype=float)
    every["oversubscription"] = every["limits"] / every["capacity"]
    every["peak_utilisation"] = every["peak"] / every["capacity"]
    return every.sort_values(["broker", "kind", "proxy"], ignore_index=True)
