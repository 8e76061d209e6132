"""Divides the limits of a whole cluster over its proxies by demand, with a guaranteed minimum. Does no I/O.

A proxy's demand is how much of the limited quota was used at this proxy. Each of n proxies gets ``floor`` * L / n of a
limit L, and a part of the rest in proportion to its demand. These shares are rounded down to whole bytes, so their sum
never exceeds L. If an entity is not in the usage log, each proxy gets an even share of its limit, L / n.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kafka_quota_proxy.config.model import DEFAULT, EntityName, QuotaRule
from kafka_quota_proxy.config.quota_kinds import BYTE_RATES, QuotaKind
from kafka_quota_proxy.pipeline.record import BYTE_KINDS, COLLECTIVE_NAMES, NAME_OF_DEFAULTS
from kafka_quota_proxy.proxy.quota.rule_tables import RuleTable, bounded

_KINDS: Final = (QuotaKind.PRODUCE, QuotaKind.FETCH)
_RATE_KEYS: Final = {kind.label: kind.key for kind in _KINDS}
_DEFAULT_USER: Final = 6


class ProxyLimit(NamedTuple):
    """One proxy's share of the limit of a bucket, in bytes per second."""

    proxy: str
    kind: str
    user: str
    client_id: str
    rate: int


def use_by_proxy(records: DataFrame, entities: DataFrame) -> DataFrame:
    """Return, for each proxy and each bucket with a limit, the ``amount`` charged to the bucket and its ``limit``.

    Buckets that no rule can name, such as ``<shared>``, are left out and keep even shares. ``entities`` has the columns
    of ``whatif.resolved``.
    """
    used = records.where(F.col("kind").isin(*BYTE_KINDS))
    nameless = (*COLLECTIVE_NAMES, NAME_OF_DEFAULTS)
    is_named = ~F.col("bucket_user").isin(*nameless) & ~F.col("bucket_client_id").isin(*nameless)
    limited = entities.where(F.col("limit").isNotNull() & is_named).drop("rule")
    joined = used.drop("limit").join(F.broadcast(limited), on=["kind", "user", "client_id"], how="inner")
    return joined.groupBy("proxy", "kind", "bucket_user", "bucket_client_id").agg(
        F.first("limit").alias("limit"), F.greatest(F.sum("amount"), F.lit(0)).alias("amount")
    )


def limit_by_use(limit: float, demands: Mapping[str, int], proxies: Sequence[str], *, floor: float) -> dict[str, int]:
    """Divide a limit by demand, and return the share of each proxy in bytes per second, at least 1.

    ``floor`` is the guaranteed fraction of an even share, from 0 to 1. A proxy that is missing from ``demands`` has
    used nothing.
    """
    total = sum(demands.values())
    even = 1 / len(proxies)
    by_demand = {proxy: demands.get(proxy, 0) / total if total else even for proxy in proxies}
    return {proxy: max(1, int(limit * (floor * even + (1 - floor) * by_demand[proxy]))) for proxy in proxies}


def shares(rows: Iterable[Mapping[str, Any]], proxies: Sequence[str], *, floor: float) -> list[ProxyLimit]:
    """Divide the limit of each bucket, and return all shares. ``rows`` are those that ``use_by_proxy`` returned."""
    demands: dict[tuple[str, str, str], dict[str, int]] = {}
    limits: dict[tuple[str, str, str], float] = {}
    for row in rows:
        bucket = (row["kind"], row["bucket_user"], row["bucket_client_id"])
        demands.setdefault(bucket, {})[row["proxy"]] = row["amount"]
        limits[bucket] = row["limit"]
    return [
        ProxyLimit(proxy, *bucket, rate)
        for bucket in sorted(demands)
        for proxy, rate in limit_by_use(limits[bucket], demands[bucket], proxies, floor=floor).items()
    ]


def rules_of(proxy: str, given: Sequence[ProxyLimit], rules: Iterable[QuotaRule], proxies: int) -> list[QuotaRule]:
    """Return the rules of one proxy, with its computed shares, and with even shares of all other limits.

    A computed share keeps the enforcement and shaping of the rule whose limit it is a part of. An entity has only one
    rule for produce and fetch together. So the entity keeps its even share if these settings differ from those of its
    rule for the other kind.
    """
    rules = tuple(rules)
    tables = {kind.label: RuleTable(kind, rules) for kind in _KINDS}
    of_entity = _even_rules(rules, proxies)
    for share in given:
        if share.proxy == proxy:
            named = _named(share, tables[share.kind], proxies)
            pairs = [(of_entity.get((rule.user, rule.client_id), rule), rule) for rule in named]
            if all((one.enforcement, one.shaping) == (other.enforcement, other.shaping) for one, other in pairs):
                for place, rule in pairs:
                    of_entity[rule.user, rule.client_id] = replace(place, limits={**place.limits, **rule.limits})
    return sorted(
        of_entity.values(),
        key=lambda rule: tuple(str(name if name is not DEFAULT else "") for name in (rule.user, rule.client_id)),
    )


def _even_rules(rules: Iterable[QuotaRule], proxies: int) -> dict[tuple[EntityName, EntityName], QuotaRule]:
    """Return the rules that limit bytes, keyed by user and client-id, with an even share in place of each byte rate."""
    found = {}
    for rule in rules:
        even = {key: _even(rule.limits[key], proxies) for key in BYTE_RATES if key in rule.limits}
        if even:
            found[rule.user, rule.client_id] = replace(rule, limits={**rule.limits, **even})
    return found


def _named(share: ProxyLimit, table: RuleTable, proxies: int) -> list[QuotaRule]:
    """Return the rules that set a proxy's part of one limit.

    The first rule names the user and client-id of ``share``. If the limit is that of the default user, this rule would
    override the default user's rules for client-ids. In this case copies of those rules, which name this user, follow.
    """
    found = table.resolve(user=share.user, client_id=share.client_id)
    key = _RATE_KEYS[share.kind]
    ways: dict[str, Any] = {}
    if found.rule is not None:
        ways = {"enforcement": found.rule.enforcement, "shaping": found.rule.shaping}
    own = {key: float(share.rate)}
    named = [QuotaRule(user=share.user or None, client_id=share.client_id or None, limits=own, **ways)]
    if found.level is None or found.level.number != _DEFAULT_USER or (share.user, DEFAULT) in table.by_entity:
        return named
    for rule in table.rules():
        if rule.user is DEFAULT and rule.client_id is not None:
            client_id = bounded(rule.client_id) if isinstance(rule.client_id, str) else rule.client_id
            if (share.user, client_id) not in table.by_entity:
                even = {key: _even(rule.limits[key], proxies)}
                named.append(replace(rule, user=share.user, limits=even, source=""))
    return named


def _even(rate: float, proxies: int) -> float:
    return float(max(1, int(rate // proxies)))
