"""The part of a usage log that a command reads: the records that start within a time span. Does no I/O."""

from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final, NamedTuple, Self

from pyspark.sql import Column
from pyspark.sql import functions as F

DAY_MS: Final = 86_400_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class TimeSpan(NamedTuple):
    """A time span from ``from_ms`` until ``until_ms``, which it does not include. A bound of None is open."""

    from_ms: int | None = None
    until_ms: int | None = None

    @classmethod
    def local(cls, begin: datetime | None, end: datetime | None, zone: tzinfo) -> Self:
        """Return the span between two local times, which are without a time zone.

        A time that occurs twice, at the end of daylight saving time, is the earlier one. So a span that ends at a time
        and one that begins there neither overlap nor leave a gap.
        """
        return cls(*(None if at is None else _ms(at.replace(tzinfo=zone)) for at in (begin, end)))

    @property
    def is_all(self) -> bool:
        """Whether the span has no bound."""
        return self == (None, None)

    @property
    def first_day(self) -> str | None:
        """The first day (UTC) of the span, or None if it is open."""
        return None if self.from_ms is None else day_of(self.from_ms)

    @property
    def last_day(self) -> str | None:
        """The last day (UTC) of which the span has a part, or None if it is open."""
        return None if self.until_ms is None else day_of(self.until_ms - 1)

    def starts_within(self) -> Column:
        """Return a column that is true if a record starts within the span."""
        at = F.col("start_ms")
        return _between(at, self.from_ms, None if self.until_ms is None else self.until_ms - 1)

    def days_within(self) -> Column:
        """Return a column that is true if the span has a part of the UTC day in the column ``day``."""
        return _between(F.col("day"), self.first_day, self.last_day)


def _between(column: Column, least: int | str | None, most: int | str | None) -> Column:
    fits = F.lit(True) if least is None else column >= F.lit(least)
    return fits if most is None else fits & (column <= F.lit(most))


def day_of(time_ms: int) -> str:
    """Return the day (UTC) of a time, such as ``2026-09-07``."""
    return date.fromordinal(_EPOCH.toordinal() + time_ms // DAY_MS).isoformat()


def utc_day() -> Column:
    """Return the day (UTC) on which a record starts, in the form of ``day_of``."""
    return F.date_format(F.timestamp_millis("start_ms"), "yyyy-MM-dd")


def _ms(at: datetime) -> int:
    return (at.astimezone(UTC) - _EPOCH) // _MILLISECOND
