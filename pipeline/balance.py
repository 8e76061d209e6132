"""Limits of a whole cluster, divided over its proxies by demand, each with a floor. DataFrame -> DataFrame, no I/O.

Of a limit L each of n proxies gets ``floor`` * L / n, and of the rest the part that its demand is of all demand. Shares
are whole bytes, rounded down: together they are never more than L. Whoever was not seen has an even share of the rule
that would hold for him, L / n.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from config.model import DEFAULT, QuotaRule
from pipeline.record import BYTE_KINDS, COLLECTIVE_NAMES
from proxy.quota.entity import QuotaKind, RuleTable

_RATE_KEYS: Final = {"produce": "producer_byte_rate", "fetch": "consumer_byte_rate"}
_KINDS: Final = (QuotaKind.PRODUCE, QuotaKind.FETCH)


class Share(NamedTuple):
    """What one bucket may use at one proxy, bytes per second."""

    proxy: str
    kind: str
    user: str
    client_id: str
    rate: int


def demand(records: DataFrame, entities: DataFrame, *, last_ms: int | None) -> DataFrame:
    """Return ``amount``, what each bucket under a limit used at each proxy, beside that ``limit``.

    Args:
        records: of the log.
        entities: as ``whatif.resolved`` returns them.
        last_ms: how much of the log's end counts; None: all of it.
    """
    used = records.where(F.col("kind").isin(*BYTE_KINDS))
    if last_ms is not None:
        end = used.agg((F.max("start_ms") - last_ms).alias("since_ms"))
        used = used.join(F.broadcast(end), how="cross").where("start_ms > since_ms")
    limited = entities.where("limit IS NOT NULL").drop("rule")
    joined = used.drop("limit").join(F.broadcast(limited), on=["kind", "user", "client_id"], how="inner")
    return joined.groupBy("proxy", "kind", "bucket_user", "bucket_client_id").agg(
        F.first("limit").alias("limit"), F.greatest(F.sum("amount"), F.lit(0)).alias("amount")
    )


def used_of_late(rows: DataFrame, proxies: Sequence[str]) -> DataFrame:
    """Return what each bucket under a limit used at each of these proxies: a row for each, however many records.

    Args:
        rows: of ``parsed``, those that came together.
        proxies: others are left out.
    """
    records = rows.where(
        F.col("fault").isNull()
        & F.col("kind").isin(*BYTE_KINDS)
        & F.col("limit").isNotNull()
        & F.col("proxy").isin(*proxies)
        & ~F.col("user").isin(*COLLECTIVE_NAMES)
        & ~F.col("client_id").isin(*COLLECTIVE_NAMES)
    )
    return records.groupBy("proxy", "kind", "user", "client_id").agg(
        *(F.sum(name).alias(name) for name in ("amount", "interval_ms", "throttled_requests", "throttle_time_ms")),
        F.max("interval_ms").alias("longest_interval_ms"),
        F.min("broker").alias("broker"),
        F.max("broker").alias("other_broker"),
    )


def divided(limit: float, demands: Mapping[str, int], proxies: Sequence[str], *, floor: float) -> dict[str, int]:
    """Return each proxy's share of a limit, at least 1; together they are at most the limit, where that is possible.

    Args:
        limit: bytes per second.
        demands: bytes by proxy; who is not in it had none.
        proxies: all of them.
        floor: of an even share, 0 to 1.
    """
    total = sum(demands.values())
    even = 1 / len(proxies)
    by_demand = {proxy: demands.get(proxy, 0) / total if total else even for proxy in proxies}
    return {proxy: max(1, int(limit * (floor * even + (1 - floor) * by_demand[proxy]))) for proxy in proxies}


def shares(rows: Iterable[Mapping[str, Any]], proxies: Sequence[str], *, floor: float) -> list[Share]:
    """Return the shares of all buckets in the rows of ``demand``."""
    demands: dict[tuple[str, str, str], dict[str, int]] = {}
    limits: dict[tuple[str, str, str], float] = {}
    for row in rows:
        bucket = (row["kind"], row["bucket_user"], row["bucket_client_id"])
        demands.setdefault(bucket, {})[row["proxy"]] = row["amount"]
        limits[bucket] = row["limit"]
    return [
        Share(proxy, *bucket, rate)
        for bucket in sorted(demands)
        for proxy, rate in divided(limits[bucket], demands[bucket], proxies, floor=floor).items()
    ]


def rules_of(proxy: str, given: Sequence[Share], rules: Iterable[QuotaRule], proxies: int) -> list[QuotaRule]:
    """Return a proxy's rules: even shares of all that the cluster has, and those of its buckets in their place.

    A share is held (enforcement, shaping) as the rule that it is a part of. Where a rule of the same names is held
    otherwise, as when one is for produce and another for fetch, there is no place for it, and the even share stays.
    """
    rules = tuple(rules)
    tables = {kind.label: RuleTable(kind, rules) for kind in _KINDS}
    of_entity: dict[tuple[object, object], QuotaRule] = {}
    for rule in rules:
        even: dict[str, Any] = {
            key: float(max(1, int(rate // proxies)))
            for key in _RATE_KEYS.values()
            if (rate := getattr(rule, key)) is not None
        }
        if even:
            of_entity[rule.user, rule.client_id] = replace(rule, **even)
    for share in given:
        if share.proxy == proxy:
            names = (share.user or None, share.client_id or None)
            mine: dict[str, Any] = {_RATE_KEYS[share.kind]: float(share.rate)}
            whole = tables[share.kind].resolve(user=share.user, client_id=share.client_id).rule
            ways: dict[str, Any] = {"enforcement": whole.enforcement, "shaping": whole.shaping} if whole else {}
            rule = of_entity.get(names) or QuotaRule(user=names[0], client_id=names[1], **ways)
            if all(getattr(rule, name) == way for name, way in ways.items()):
                of_entity[names] = replace(rule, **mine)
    return sorted(
        of_entity.values(),
        key=lambda rule: tuple(str(name if name is not DEFAULT else "") for name in (rule.user, rule.client_id)),
    )
