"""Computes the bytes and the cost to bill to each owner. The sum over all owners equals the sum of the log.

Owners are the teams in owners.csv, which are billed for users and client-ids. Each line of the file applies from one
day (UTC) until another, which it does not include. A line with a user and a client-id takes precedence over a line with
only a user, which takes precedence over a line with only a client-id. Bytes that no line matches are billed to
``(nobody)``.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal
from itertools import pairwise
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline.record import BYTE_KINDS, ENTITY, start_of
from kafka_quota_proxy.pipeline.session import local_frame

_PRICED_BYTES: Final = 10**9
_SMALLEST: Final = Decimal("0.0001")


def cost(amount: int, price: Decimal) -> Decimal:
    """Return the cost of ``amount`` bytes at a price of 10^9 bytes, with four decimals, rounded half to even.

    An amount below 0 costs nothing.
    """
    return (max(0, amount) * price / _PRICED_BYTES).quantize(_SMALLEST, ROUND_HALF_EVEN)


NOBODY: Final = "(nobody)"
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 86_400_000
_ALWAYS_FROM: Final = 0
ALWAYS_UNTIL: Final = 1 << 62
_OWNERS: Final = "owner_user string, owner_client_id string, owner string, from_ms long, until_ms long, rank int"


class Owner(NamedTuple):
    """A line of owners.csv. It applies to times in [from_ms, until_ms). A name of None matches any name."""

    user: str | None
    client_id: str | None
    owner: str
    from_ms: int = _ALWAYS_FROM
    until_ms: int = ALWAYS_UNTIL

    @property
    def rank(self) -> int:
        """The precedence of this line of owners.csv. If several lines match, the one with the lowest rank applies."""
        return 2 * (self.user is None) + (self.client_id is None)


class Charge(NamedTuple):
    """What an owner pays for one kind of request. ``cost`` has four decimals."""

    owner: str
    kind: str
    bytes: int
    cost: Decimal


def owner_at(owners: Sequence[Owner], at_ms: int) -> Callable[[str, str], str]:
    """Return a function that returns the owner of a user and client-id at a time."""
    found = {(one.user, one.client_id): one.owner for one in owners if one.from_ms <= at_ms < one.until_ms}

    def owner(user: str, client_id: str) -> str:
        # In the order of Owner.rank.
        names = ((user, client_id), (user, None), (None, client_id))
        return next((found[name] for name in names if name in found), NOBODY)

    return owner


def overlaps(owners: Sequence[tuple[str, Owner]]) -> list[str]:
    """Return a message for each pair of lines that apply to the same names at the same time, which is a fault.

    ``owners`` contains each line with its place in the file (FILE:LINE).
    """
    by_names = sorted(
        owners, key=lambda line: (line[1].user or "", line[1].client_id or "", line[1].rank, line[1].from_ms)
    )
    return [
        f"{later}: from: of these names the owner is still {first.owner} ({place}); let one end where the other begins"
        for (place, first), (later, second) in pairwise(by_names)
        if (first.user, first.client_id) == (second.user, second.client_id) and second.from_ms < first.until_ms
    ]


def month_of(text: str) -> tuple[int, int]:
    """Return the start of a month (YYYY-MM, in UTC) and the start of the next month, in ms since the epoch."""
    first = datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC)
    following = (first + timedelta(days=32)).replace(day=1)
    return int(first.timestamp() * 1_000), int(following.timestamp() * 1_000)


def charged(records: DataFrame, owners: Sequence[Owner]) -> DataFrame:
    """Return the bytes produced and fetched by owner, user, client-id, kind, and the day on which the records start.

    ``records`` need the columns of ``ENTITY``, ``start_ms``, ``amount`` and ``requests``.
    """
    used = records.where(F.col("kind").isin(*BYTE_KINDS))
    # Owners are joined to sums by name and day, which are far fewer than records.
    days = used.groupBy(*ENTITY, start_of(_DAY_MS).alias("day_ms")).agg(
        F.sum("amount").alias("bytes"), F.sum("requests").alias("requests")
    )
    lines = local_frame(
        records.sparkSession,
        [(one.user, one.client_id, one.owner, one.from_ms, one.until_ms, one.rank) for one in owners],
        _OWNERS,
    )
    fits = (
        _is_any_or("owner_user", "user")
        & _is_any_or("owner_client_id", "client_id")
        & (F.col("day_ms") >= F.col("from_ms"))
        & (F.col("day_ms") < F.col("until_ms"))
    )
    best = Window.partitionBy(*ENTITY, "day_ms").orderBy(F.col("rank").asc_nulls_last(), "owner")
    owned = days.join(F.broadcast(lines), on=fits, how="left").withColumn("place", F.row_number().over(best))
    owner, day = F.coalesce("owner", F.lit(NOBODY)).alias("owner"), _day("day_ms").alias("day")
    return owned.where("place = 1").select(owner, "user", "client_id", "kind", day, "bytes", "requests")


def bill(days: DataFrame, price: Decimal) -> list[Charge]:
    """Return the bytes and the cost of each owner, by kind (produce or fetch), at a price of 10^9 bytes.

    ``days`` is the result of ``charged``.
    """
    sums = days.groupBy("owner", "kind").agg(F.sum("bytes").alias("bytes")).collect()  # two rows for each owner
    rows = sorted((row["owner"], row["kind"], row["bytes"]) for row in sums)
    return [Charge(owner, kind, amount, cost(amount, price)) for owner, kind, amount in rows]


def gaps(records: DataFrame, month: tuple[int, int] | None) -> DataFrame:
    """Return the periods, in whole hours, for which a proxy has no record.

    ``month`` contains the start and the end of the time to check, in ms. If it is None, each proxy is checked from its
    first to its last record.
    """
    hours = records.select("proxy", start_of(_HOUR_MS).alias("hour_ms")).distinct()
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


def _is_any_or(pattern: str, name: str) -> Column:
    return F.col(pattern).isNull() | (F.col(pattern) == F.col(name))


def _day(column: str) -> Column:
    return F.date_format(F.timestamp_millis(column), "yyyy-MM-dd")
