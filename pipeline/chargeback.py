"""Bytes and cost for each owner. DataFrame -> DataFrame, no I/O. Nothing is lost: sums equal the log's.

Who owns what may change: an owner's line has a first day and a day on which it no longer holds, both in UTC. Of several
lines that fit, the one for both names counts before the one for a user, and that before the one for a client-id; what
none fits is ``(nobody)``'s.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline.record import BYTE_KINDS

NOBODY: Final = "(nobody)"
_HOUR_MS: Final = 3_600_000
_ALWAYS_FROM: Final = 0
ALWAYS_UNTIL: Final = 1 << 62
_OWNERS: Final = "owner_user string, owner_client_id string, owner string, from_ms long, until_ms long, rank int"


class Owner(NamedTuple):
    """Whose the bytes of these names are, from a time to before another; a name that is None is any."""

    user: str | None
    client_id: str | None
    owner: str
    from_ms: int = _ALWAYS_FROM
    until_ms: int = ALWAYS_UNTIL

    @property
    def rank(self) -> int:
        """How specific the line is; of those that fit the lowest counts."""
        return 2 * (self.user is None) + (self.client_id is None)


class Handover(NamedTuple):
    """The bytes of these names are one's before a time, and another's from then on; a name that is None is any."""

    user: str | None
    client_id: str | None
    at_ms: int
    before: str
    after: str


def handovers(owners: Sequence[Owner]) -> list[Handover]:
    """Return when the names of a line come to another owner, in order of time.

    That is where one of their lines begins or ends; what holds beside it is the most specific of the others.
    """
    by_names: dict[tuple[str | None, str | None], list[Owner]] = {}
    for one in owners:
        by_names.setdefault((one.user, one.client_id), []).append(one)
    found = []
    for (user, client_id), lines in by_names.items():
        # Those of the same names, and those for one of the two names alone.
        holding = [*lines]
        if user is not None and client_id is not None:
            holding += [*by_names.get((user, None), ()), *by_names.get((None, client_id), ())]
        for at_ms in {time_ms for one in lines for time_ms in (one.from_ms, one.until_ms)}:
            before, after = _owner_at(holding, at_ms - 1), _owner_at(holding, at_ms)
            if before != after and at_ms not in (_ALWAYS_FROM, ALWAYS_UNTIL):
                found.append(Handover(user, client_id, at_ms, before, after))
    return sorted(found, key=lambda one: (one.at_ms, one.user or "", one.client_id or ""))


def _owner_at(lines: Sequence[Owner], at_ms: int) -> str:
    fitting = [one for one in lines if one.from_ms <= at_ms < one.until_ms]
    return min(fitting, key=lambda one: one.rank).owner if fitting else NOBODY


def overlaps(owners: Sequence[tuple[str, Owner]]) -> list[str]:
    """Return a fault for each two lines (each with its place) that hold for the same names at the same time."""
    by_names = sorted(
        owners, key=lambda line: (line[1].user or "", line[1].client_id or "", line[1].rank, line[1].from_ms)
    )
    return [
        f"{later}: from: of these names the owner is still {first.owner} ({place}); let one end where the other begins"
        for (place, first), (later, second) in pairwise(by_names)
        if (first.user, first.client_id) == (second.user, second.client_id) and second.from_ms < first.until_ms
    ]


def month_of(text: str) -> tuple[int, int]:
    """Return when a month (YYYY-MM) begins and when the next does, in ms."""
    first = datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC)
    following = (first + timedelta(days=32)).replace(day=1)
    return int(first.timestamp() * 1_000), int(following.timestamp() * 1_000)


def charged(records: DataFrame, owners: Sequence[Owner]) -> DataFrame:
    """Return the bytes of produce and fetch by owner, user, client-id, kind and day. A record is its start's."""
    used = records.where(F.col("kind").isin(*BYTE_KINDS))
    # Names and days, not records, meet the owners, and of them each is kept once.
    hours = used.groupBy(
        "kind", "user", "client_id", (F.col("start_ms") - F.pmod("start_ms", F.lit(_HOUR_MS))).alias("hour_ms")
    ).agg(F.sum("amount").alias("bytes"), F.sum("requests").alias("requests"))
    lines = records.sparkSession.createDataFrame(
        [(one.user, one.client_id, one.owner, one.from_ms, one.until_ms, one.rank) for one in owners], _OWNERS
    )
    fits = (
        (F.col("owner_user").isNull() | (F.col("owner_user") == F.col("user")))
        & (F.col("owner_client_id").isNull() | (F.col("owner_client_id") == F.col("client_id")))
        & (F.col("hour_ms") >= F.col("from_ms"))
        & (F.col("hour_ms") < F.col("until_ms"))
    )
    key = ("kind", "user", "client_id", "hour_ms")
    best = Window.partitionBy(*key).orderBy(F.col("rank").asc_nulls_last(), "owner")
    owned = hours.join(F.broadcast(lines), on=fits, how="left").withColumn("place", F.row_number().over(best))
    return (
        owned.where("place = 1")
        .groupBy(F.coalesce("owner", F.lit(NOBODY)).alias("owner"), "user", "client_id", "kind", _day().alias("day"))
        .agg(F.sum("bytes").alias("bytes"), F.sum("requests").alias("requests"))
    )


def handed_over(days: DataFrame, changes: Sequence[Handover]) -> DataFrame:
    """Return which of these changes the bytes of ``charged`` are from before and after, with ``day`` for the time.

    Returns:
        ``user``, ``client_id`` (null: any), ``day``, ``before`` and ``after``.
    """
    rows = [(*one[:2], _day_of(one.at_ms), one.before, one.after) for one in changes]
    listed = days.sparkSession.createDataFrame(
        rows, "user string, client_id string, day string, before string, after string"
    )
    names = days.groupBy(F.col("user").alias("of_user"), F.col("client_id").alias("of_client_id")).agg(
        F.min("day").alias("first"), F.max("day").alias("last")
    )
    fits = (
        (F.col("user").isNull() | (F.col("user") == F.col("of_user")))
        & (F.col("client_id").isNull() | (F.col("client_id") == F.col("of_client_id")))
        & (F.col("first") < F.col("day"))
        & (F.col("day") <= F.col("last"))
    )
    return names.join(F.broadcast(listed), on=fits, how="inner").select(*listed.columns).distinct()


def bill(days: DataFrame, price: float) -> DataFrame:
    """Return bytes and cost by owner and kind; ``price`` is of 10^9 bytes. Costs are rounded to four digits."""
    cost = F.round(F.col("bytes") / 1e9 * price, 4)
    return days.groupBy("owner", "kind").agg(F.sum("bytes").alias("bytes")).withColumn("cost", cost)


def gaps(records: DataFrame, month: tuple[int, int] | None) -> DataFrame:
    """Return hours without any record of a proxy, between its first and its last, or those of the month.

    Returns:
        ``proxy``, ``from_ms`` and ``until_ms`` of each gap: whole hours of the clock.
    """
    hours = records.select(
        "proxy", (F.col("start_ms") - F.pmod("start_ms", F.lit(_HOUR_MS))).alias("hour_ms")
    ).distinct()
    if month is not None:
        ends = records.select("proxy").distinct()
        edges = [ends.withColumn("hour_ms", F.lit(at)) for at in (month[0] - _HOUR_MS, month[1])]
        hours = hours.unionByName(edges[0]).unionByName(edges[1])
    before = F.lag("hour_ms").over(Window.partitionBy("proxy").orderBy("hour_ms"))
    return (
        hours.withColumn("last_ms", before)
        .where(F.col("hour_ms") - F.col("last_ms") > _HOUR_MS)
        .select("proxy", (F.col("last_ms") + _HOUR_MS).alias("from_ms"), F.col("hour_ms").alias("until_ms"))
    )


def steps_back(records: DataFrame) -> DataFrame:
    """Return when a proxy's intervals overlap: its clock stepped back, and went through the same time again.

    Returns:
        ``proxy``, ``from_ms``, ``until_ms`` of the time that was gone through again, by day; ``intervals`` of it.
    """
    spans = records.groupBy("proxy", "start_ms").agg(F.max(F.col("start_ms") + F.col("interval_ms")).alias("end_ms"))
    before = Window.partitionBy("proxy").orderBy("start_ms").rowsBetween(Window.unboundedPreceding, -1)
    again = spans.withColumn("covered_ms", F.max("end_ms").over(before)).where("start_ms < covered_ms")
    return again.groupBy("proxy", _day("start_ms").alias("day")).agg(
        F.min("start_ms").alias("from_ms"),
        F.max(F.least("covered_ms", "end_ms")).alias("until_ms"),
        F.count("*").alias("intervals"),
    )


def _day_of(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1_000, UTC).strftime("%Y-%m-%d")


def _day(column: str = "hour_ms") -> Column:
    return F.date_format(F.timestamp_millis(column), "yyyy-MM-dd")
