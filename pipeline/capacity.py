"""Measures how much each entity (a user with a client-id) uses, and suggests limits.

The functions take and return DataFrames and do no I/O.

A rate is the amount of a record divided by its interval, in bytes per second. Intervals below 100 ms, which occur when
a proxy starts or stops, count as 100 ms. Percentiles count only intervals with a record, because otherwise an entity
that works for ten minutes a day would get a limit of almost 0.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from kafka_quota_proxy.config.model import ProxyConfig, QuotaRule
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.pipeline.limit_search import LEAST_LIMIT, rounded_up
from kafka_quota_proxy.pipeline.local_hours import QUARTER_MS
from kafka_quota_proxy.pipeline.record import BUCKET, BYTE_KINDS, COLLECTIVE_NAMES, NAME_OF_DEFAULTS, PLACE, start_of
from kafka_quota_proxy.pipeline.whatif import demand_columns

ENTITY: Final = ("kind", "user", "client_id")
_DAY_MS: Final = 86_400_000
_HOUR_MS: Final = 3_600_000
# The number of bins for each doubling of a rate. So a percentile is at most 1.1 % too high, and never too low.
_BINS: Final = 64
# A trend needs this number of pairs of days, which two weeks of Monday to Friday have. It ignores older days.
_LEAST_PAIRS: Final = 5
_TREND_DAYS: Final = 90

_RATE_KEYS: Final = {kind.label: kind.key for kind in (QuotaKind.PRODUCE, QuotaKind.FETCH)}


def byte_usage(records: DataFrame) -> DataFrame:
    """Return the produce and fetch records, with the rate of each record in bytes per second in the column ``rate``.

    An unknown broker becomes -1, because later joins on the column ``broker`` would skip records with a null.
    """
    interval_ms = F.greatest("interval_ms", F.lit(100))
    rate = F.greatest(F.lit(0).cast("long"), F.floor(F.col("amount") * 1_000 / interval_ms))
    used = records.where(F.col("kind").isin(*BYTE_KINDS))
    return used.withColumns({"broker": F.coalesce("broker", F.lit(-1)), "rate": rate})


def percentiles(usage: DataFrame, percentile: float) -> DataFrame:
    """For each entity on each broker, return the peak, median, mean and ``percentile`` of its rates.

    ``percentile`` is from 50 to 100. The result also has the columns ``whatif.DEMAND``, which a replay of the log
    needs. Rates are counted in a histogram with logarithmic bins. So the percentiles may be up to 1.1 % too high, but
    do not depend on the order of the records.
    """
    bin_of = F.when(F.col("rate") < 1, F.lit(-1)).otherwise(F.ceil(F.log2("rate") * _BINS))
    bins = usage.groupBy(*BUCKET, bin_of.alias("bin")).agg(
        F.count("*").alias("intervals"),
        F.max("rate").alias("peak"),
        F.sum("interval_ms").alias("active_ms"),
        *demand_columns(),
        F.sum(F.when(F.col("enforced"), F.col("throttled_requests")).otherwise(0)).alias("throttled_requests"),
    )
    below = Window.partitionBy(*BUCKET).orderBy("bin").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    all_of_it = Window.partitionBy(*BUCKET)
    ranked = bins.withColumns({"rank": F.sum("intervals").over(below), "of": F.sum("intervals").over(all_of_it)})
    # The peak of a bin is the highest measured rate in it.
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
        (F.sum("amount") * 1_000 / F.greatest(F.sum("active_ms"), F.lit(1))).alias("mean"),
    )


def _at(percentile: float) -> Column:
    """Return the Spark aggregation that reads the given percentile from a histogram of rates."""
    wanted = F.ceil(F.col("of") * (percentile / 100) - 1e-9)
    return F.min(F.when(F.col("rank") >= wanted, F.col("peak")))


def entities(buckets: DataFrame) -> DataFrame:
    """For each entity, return the highest median, percentile and peak of its rates on any single broker.

    These values determine the limit to suggest, because Kafka applies a quota on each broker separately. The result
    also contains the entity's total amount on all brokers.
    """
    return buckets.groupBy(*ENTITY).agg(
        *(F.max(name).alias(name) for name in ("median", "percentile", "peak", "part")),
        F.sum("amount").alias("amount"),
        F.sum("throttled_requests").alias("throttled_requests"),
        F.countDistinct(*PLACE).alias("brokers"),
    )


class Suggestion(NamedTuple):
    """A suggested limit for one kind of request of one entity, and the rates that it is based on.

    ``limit`` is in bytes per second, or None if no rule can limit the entity. ``why`` is a remark, and may be empty.
    ``decided_by`` is the bound that keeps the limit from being lower or higher (see ``limit_search``).
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

    @property
    def never_waits(self) -> int:
        """A limit with three significant digits, so high that a replay of the log never throttles the entity."""
        # With 11 windows of one second, the amount that counts arrived within 12 s and is divided by at least 10 s. One
        # part more may count at either end, since the arrival times of parts are a guess.
        return max(LEAST_LIMIT, rounded_up(1.2 * self.peak + 0.2 * self.part))


def suggestion(entity: Row) -> Suggestion:
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


def config_of(suggestions: Iterable[Suggestion]) -> ProxyConfig:
    """Return a proxy configuration whose only rules are the suggested limits."""
    return ProxyConfig(listeners=(), quotas=tuple(rule for rule, _ in rules(suggestions)))


def ramp(one: Suggestion, steps: int) -> list[int]:
    """Return a series of falling limits, by which an operator can tighten a limit in ``steps`` steps.

    The series leads down to the suggested limit from a limit that never throttles, each time by the same factor. It is
    empty if there is no suggested limit.
    """
    if one.limit is None:
        return []
    top = max(one.never_waits, one.limit)
    factors = [(top / one.limit) ** ((steps - step) / steps) for step in range(1, steps + 1)]
    return [rounded_up(one.limit * factor) for factor in factors[:-1]] + [one.limit]


def ramp_steps(suggested: Iterable[Suggestion], steps: int) -> list[list[Suggestion]]:
    """Return, for each step of a ramp, the suggestions with the limits of that step.

    Entities without a suggested limit are left out.
    """
    every = [(one, ramp(one, steps)) for one in suggested if one.limit is not None]
    return [[one._replace(limit=limits[step], why="", decided_by="") for one, limits in every] for step in range(steps)]


def minutes(usage: DataFrame) -> DataFrame:
    """For each entity on each broker and each minute, return the amount, the highest rate and the longest interval."""
    minute = start_of(60_000).alias("start_ms")
    return usage.groupBy(*BUCKET, minute).agg(
        F.sum("amount").alias("amount"), F.max("rate").alias("rate"), F.max("interval_ms").alias("interval_ms")
    )


def quarter_hours(usage: DataFrame) -> DataFrame:
    """Return the total amount of all entities by kind (produce or fetch) and quarter of an hour."""
    quarter = start_of(QUARTER_MS).alias("quarter_ms")
    return usage.groupBy("kind", quarter).agg(F.sum("amount").alias("amount"))


def hourly(usage: DataFrame) -> DataFrame:
    """For each entity and hour, return its mean rate and its highest rate.

    The mean rate is the sum over all brokers. The highest rate is the highest on any single broker.
    """
    return usage.groupBy(*ENTITY, start_of(_HOUR_MS).alias("hour_ms")).agg(
        F.max("rate").alias("peak"), (F.sum("amount") / (_HOUR_MS / 1_000)).alias("mean")
    )


def growth(hours: DataFrame) -> DataFrame:
    """Return how fast each entity's rate in its busiest hours grows, in per cent per 30 days.

    This is the estimator of Theil and Sen, with Hirsch's extension for seasons. Each day is represented by the mean
    rate in its busiest hour. The growth is the median slope between all pairs of days that are whole weeks apart,
    divided by the median rate. Only the last 90 days count. The growth is null if these days contain fewer than five
    such pairs.
    """
    day = F.floor(F.col("hour_ms") / _DAY_MS).alias("day")
    days = hours.groupBy(*ENTITY, day).agg(F.max("mean").alias("busiest"), F.count("*").alias("hours"))
    last = days.agg((F.max("day") - _TREND_DAYS).alias("oldest"))
    days = days.join(F.broadcast(last), how="cross").where("day > oldest").drop("oldest", "hours")
    later = days.select(*ENTITY, F.col("day").alias("later"), F.col("busiest").alias("then"))
    slopes = days.join(later, on=[*ENTITY], how="inner").where("later > day AND (later - day) % 7 = 0")
    slope = F.expr("percentile((then - busiest) / (later - day), 0.5)").alias("slope")
    middle = days.groupBy(*ENTITY).agg(F.expr("percentile(busiest, 0.5)").alias("middle"), F.count("*").alias("days"))
    trend = F.when((F.col("pairs") >= _LEAST_PAIRS) & (F.col("middle") > 0), F.col("slope") * 3_000 / F.col("middle"))
    return middle.join(
        slopes.groupBy(*ENTITY).agg(slope, F.count("*").alias("pairs")), on=[*ENTITY], how="left"
    ).select(*ENTITY, "days", trend.alias("percent_in_30_days"))


def brokers(usage: DataFrame) -> DataFrame:
    """For each broker and kind, return the total amount of all entities, and the rate in the busiest minute."""
    minutes = usage.groupBy(*PLACE, "kind", start_of(60_000).alias("minute_ms")).agg(F.sum("amount").alias("amount"))
    # A record longer than a minute counts in the minute of its start. Its amount is divided by its whole length.
    longest = usage.groupBy(*PLACE, "kind").agg(F.greatest(F.max("interval_ms"), F.lit(60_000)).alias("span_ms"))
    return (
        minutes.join(F.broadcast(longest), on=[*PLACE, "kind"], how="inner")
        .groupBy(*PLACE, "kind")
        .agg(
            F.max(F.col("amount") * 1_000 / F.col("span_ms")).alias("peak"),
            F.sum("amount").alias("amount"),
            F.min("minute_ms").alias("from_ms"),
            F.max(F.col("minute_ms") + F.col("span_ms")).alias("until_ms"),
        )
    )


def oversubscription(
    used: DataFrame, buckets: DataFrame, limits: DataFrame, capacities: Mapping[tuple[int, str], float]
) -> DataFrame:
    """For each broker and kind, compare the sum of all limits with the broker's capacity, which is null if unknown.

    ``used`` is the result of ``brokers``, and ``buckets`` that of ``percentiles``. ``limits`` has the columns of
    ``ENTITY``, and ``limit``. ``capacities`` contains bytes per second, keyed by broker and kind.
    """
    sums = (
        buckets.join(F.broadcast(limits), on=[*ENTITY], how="inner")
        .groupBy(*PLACE, "kind")
        .agg(F.sum("limit").alias("limits"), F.count("limit").alias("limited"))
    )
    known = [F.when((F.col("broker") == of) & (F.col("kind") == kind), rate) for (of, kind), rate in capacities.items()]
    capacity = F.coalesce(*known, F.lit(None).cast("double")) if known else F.lit(None).cast("double")
    return (
        used.join(sums, on=[*PLACE, "kind"], how="left")
        .withColumn("capacity", capacity)
        .select(
            *PLACE, "kind", "peak", "limits", "limited", "capacity",
            (F.col("limits") / F.col("capacity")).alias("oversubscription"),
            (F.col("peak") / F.col("capacity")).alias("peak_utilisation"),
        )
    )  # fmt: skip
