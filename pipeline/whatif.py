"""What these quotas would have done: the log replayed, bucket by bucket, by ``proxy.quota`` itself.

Rows are sorted by bucket and time and stream through ``replay``, one bucket at a time, so that a client with half of
all rows needs no more memory than any other. Buckets that cannot exceed their limit are found by column expressions
and not replayed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from config.model import KafkaSettings, ProxyConfig, Shaping
from pipeline.demand import LEAST_PARTS, Rows
from pipeline.record import BYTE_KINDS
from pipeline.replay import Outcome, Replay
from proxy.quota.client import Bucket, ClientQuotaManager
from proxy.quota.entity import QuotaKind, RuleTable

PLACE: Final = ("proxy", "broker")
# What is charged together under the quotas that are tried.
TRIED: Final = (*PLACE, "kind", "bucket_user", "bucket_client_id")
_ENTITY: Final = ("kind", "user", "client_id")
_KINDS: Final = {kind.label: kind for kind in (QuotaKind.PRODUCE, QuotaKind.FETCH)}
_RESOLVED: Final = (
    "kind string, user string, client_id string, bucket_user string, bucket_client_id string, limit double, rule string"
)
_HOURS: Final = (
    "proxy string, broker int, kind string, bucket_user string, bucket_client_id string, hour_ms long, amount long, "
    "delayed_amount long, throttled_requests long, throttle_time_ms long, silent_ms long, longest_delay_ms long, "
    "first_ms long, end_ms long, sent_ms long, active_ms long, demand long"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """The quotas that are tried, and by which arithmetic."""

    config: ProxyConfig
    shaping: Shaping | None = None  # None: as the configuration says

    def manager(self, kind: QuotaKind) -> ClientQuotaManager:
        """Return a proxy's quotas of one kind, with nothing recorded yet."""
        config = self.config
        return ClientQuotaManager(
            kind,
            config.quotas,
            kafka=config.kafka,
            shaping=self.shaping or config.shaping,
            burst_ms=config.burst_ms,
            max_throttle_time_ms=config.max_throttle_time_ms,
        )

    def bucket(self, kind: str, user: str, client_id: str) -> Bucket:
        """Return a fresh bucket under the limit that holds for these names."""
        return self.manager(_KINDS[kind]).bucket(user=user, client_id=client_id, now_ms=0)


def resolved(records: DataFrame, quotas: Quotas) -> DataFrame:
    """Return for each (kind, user, client_id) the bucket that it would have, the limit, and the rule in words.

    ``limit`` is null where nothing limits. A record whose user is "" is of a bucket that did not tell users apart:
    rules for users cannot be tried on it.
    """
    config = quotas.config
    exempt = config.principals.exempt

    def resolve(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        tables = {label: RuleTable(kind, config.quotas) for label, kind in _KINDS.items()}
        for batch in batches:
            found = []
            for kind, user, client_id in batch.itertuples(index=False):
                tags, rule, _, limit = tables[kind].resolve(user=user, client_id=client_id)
                is_limited = limit is not None and user not in exempt
                own = tags if is_limited else (user, client_id)
                words = f"user {rule.user}, client-id {rule.client_id}" if rule and is_limited else None
                found.append((kind, user, client_id, *own, limit if is_limited else None, words))
            yield pd.DataFrame(found, columns=[*_ENTITY, "bucket_user", "bucket_client_id", "limit", "rule"])

    entities = records.where(F.col("kind").isin(*BYTE_KINDS)).select(*_ENTITY).distinct()
    return entities.mapInPandas(resolve, _RESOLVED)


def forecast(records: DataFrame, entities: DataFrame, quotas: Quotas) -> DataFrame:
    """Return what would have happened, by bucket and hour, of the buckets that might exceed their limit.

    Args:
        records: of the log.
        entities: as ``resolved`` returns them.
        quotas: those that ``entities`` come from.
    """
    named = _limited(records, entities)
    chosen = named
    if quotas.config.kafka == KafkaSettings() and _is_sampled(quotas):
        chosen = named.join(_might_exceed(named), on=[*TRIED], how="left_semi")
    chosen = chosen.select(*TRIED, "start_ms", "interval_ms", "amount", "requests", "connections", "user", "client_id")
    # By number, for adaptive execution would put them together by size: the work is in Python, and not in the bytes.
    partitions = int(records.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    ordered = chosen.repartition(partitions, *TRIED).sortWithinPartitions(
        *TRIED, "start_ms", "user", "client_id", "interval_ms"
    )

    def replay(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        return _replayed(batches, quotas)

    return ordered.mapInPandas(replay, _HOURS)


def _is_sampled(quotas: Quotas) -> bool:
    shapings = {rule.shaping for rule in quotas.config.quotas} | {quotas.shaping or quotas.config.shaping}
    return Shaping.PACED not in shapings


def _limited(records: DataFrame, entities: DataFrame) -> DataFrame:
    """Return the records of who would have a limit. Names that are null stand for no broker yet: -1."""
    limited = entities.where("limit IS NOT NULL")
    return records.join(
        F.broadcast(limited.drop("rule")).withColumnRenamed("limit", "tried"), on=[*_ENTITY], how="inner"
    ).withColumn("broker", F.coalesce("broker", F.lit(-1)))


def parts_of_record() -> Column:
    """Return how many parts a record is cut into (``demand.parts_of``)."""
    most = F.greatest(F.lit(LEAST_PARTS), F.expr("interval_ms div 1000"))
    return F.greatest(F.lit(1), F.least("requests", most))


def _might_exceed(named: DataFrame) -> DataFrame:
    """Return the buckets whose rate may come above their limit.

    What counts at an instant came within 12 s (11 samples, and a slot is a second long), as a rate of 10 s at least.
    Parts of records lie where they are put, so one may be too much at either end.
    """
    by_entity = named.groupBy(*TRIED, "user", "client_id").agg(
        F.max(F.col("amount") * 1_000 / F.greatest("interval_ms", F.lit(1))).alias("peak"),
        F.max(F.ceil(F.col("amount") / parts_of_record())).alias("part"),
        F.first("tried").alias("tried"),
    )
    sums = by_entity.groupBy(*TRIED).agg(
        F.sum("peak").alias("peak"), F.sum("part").alias("part"), F.first("tried").alias("tried")
    )
    return sums.where("12 * peak + 2 * part > 10 * tried").select(*TRIED)


def _replayed(batches: Iterator[pd.DataFrame], quotas: Quotas) -> Iterator[pd.DataFrame]:
    """Replay rows that come sorted by bucket and time; a bucket may begin in one batch and end in another."""
    names: tuple[str, int, str, str, str] | None = None
    running: Replay | None = None
    for batch in batches:
        ended: list[tuple[object, ...]] = []
        connections = batch["connections"].fillna(1).clip(lower=1)
        columns = [batch[name] for name in ("start_ms", "interval_ms", "amount", "requests")]
        rows = Rows(*(column.to_numpy(np.int64) for column in (*columns, connections)))
        whose = batch[[*TRIED]]
        begins = np.flatnonzero((whose != whose.shift()).any(axis=1).to_numpy()).tolist()
        for begin, end in zip(begins, [*begins[1:], len(batch)], strict=True):
            its = tuple(whose.iloc[begin])
            if running is None or its != names:
                if running is not None and names is not None:
                    ended += _rows(names, running.end()[0])
                names, running = its, Replay(quotas.bucket(*its[2:]))
            running.take(Rows(*(column[begin:end] for column in rows)))
        yield _frame(ended)
    if running is not None and names is not None:
        yield _frame(_rows(names, running.end()[0]))


def _rows(names: Sequence[object], outcome: Outcome) -> list[tuple[object, ...]]:
    whole = (outcome.first_ms, outcome.end_ms, outcome.sent_ms, outcome.active_ms, outcome.demand)
    return [
        (
            *names, hour_ms, hour.amount, hour.delayed_amount, hour.throttled_requests, hour.throttle_time_ms,
            hour.silent_ms, hour.longest_delay_ms, *whole,
        )
        for hour_ms, hour in sorted(outcome.hours.items())
    ]  # fmt: skip


def _frame(rows: list[tuple[object, ...]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=[part.split()[0] for part in _HOURS.split(", ")])


def outcomes(records: DataFrame, entities: DataFrame, hours: DataFrame) -> DataFrame:
    """Return a row for each bucket of the log: what it asked for, what it would have got, and when.

    ``achieved_rate`` is of the time from its first record to the last that went out; ``late_ms`` is how long after the
    end of its records that was. ``throttled_share`` is the part of the time with records that it was silent.
    """
    named = _limited(records, entities)
    asked = named.groupBy(*TRIED).agg(
        F.first("tried").alias("limit"),
        F.sum("amount").alias("amount"),
        F.min("start_ms").alias("from_ms"),
        F.max(F.col("start_ms") + F.col("interval_ms")).alias("until_ms"),
    )
    happened = hours.groupBy(*TRIED).agg(
        *(
            F.sum(name).alias(name)
            for name in ("delayed_amount", "throttled_requests", "throttle_time_ms", "silent_ms")
        ),
        F.max("longest_delay_ms").alias("longest_delay_ms"),
        F.max("sent_ms").alias("sent_ms"),
        F.max("active_ms").alias("active_ms"),
    )
    counted = ("delayed_amount", "throttled_requests", "throttle_time_ms", "silent_ms", "longest_delay_ms")
    ended = F.greatest("until_ms", F.coalesce("sent_ms", "until_ms"))
    share = F.coalesce(F.col("silent_ms") / F.greatest("active_ms", F.lit(1)), F.lit(0.0))
    return asked.join(happened, on=[*TRIED], how="left").select(
        *TRIED,
        "limit",
        "amount",
        *(F.coalesce(name, F.lit(0)).alias(name) for name in counted),
        share.alias("throttled_share"),
        (F.col("amount") * 1_000 / F.greatest(F.col("until_ms") - F.col("from_ms"), F.lit(1))).alias("asked_rate"),
        (F.col("amount") * 1_000 / F.greatest(ended - F.col("from_ms"), F.lit(1))).alias("achieved_rate"),
        (ended - F.col("until_ms")).alias("late_ms"),
    )
