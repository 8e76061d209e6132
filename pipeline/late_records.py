"""Finds which proxies sent the records that a stream dropped because they were too late.

Spark only counts the dropped records of a batch. But it drops all records of the batch that are older than a certain
time, and ``alerts.once`` gives the records of a window the same time. So the dropped records are those in the oldest
windows of the batch, up to the number that Spark has counted.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from pyspark.sql import Column
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline.record import end_of

# The most pairs of a proxy and a window that a batch reports. A fleet of a hundred proxies needs some hundreds. A batch
# with more pairs reports those with the most records.
_MOST_PAIRS: Final = 2_000
_MOST_NAMED: Final = 5


def records_by_window(window_ms: int) -> Column:
    """Return a Spark aggregation of the records of a batch: their number for each window and proxy.

    The rows need the columns of ``parsing.parsed`` and ``is_ahead``. Only records that are passed on are counted.
    """
    pair = F.concat_ws(" ", end_of(window_ms).cast("string"), "proxy")
    passed_on = F.when(F.col("fault").isNull() & ~F.col("is_ahead"), pair)
    return F.call_function("approx_top_k", passed_on, F.lit(_MOST_PAIRS), F.lit(20 * _MOST_PAIRS))


@dataclass(slots=True)
class LateRecords:
    """Counts dropped records by proxy.

    Attributes:
        count: The number of dropped records.
        by_proxy: The number of dropped records of each proxy that is known.
        longest_ms: How much earlier the window of the oldest of them ended than that of the newest record of all.
    """

    count: int = 0
    by_proxy: Counter[str] = field(default_factory=Counter)
    longest_ms: int = 0

    @classmethod
    def of_batch(cls, seen: Iterable[Mapping[str, object]], *, dropped: int, newest_ms: int) -> Self:
        """Find the dropped records of a batch.

        ``seen`` is the result of ``records_by_window``, and ``dropped`` is Spark's number of dropped records.
        ``newest_ms`` is the last millisecond of the newest record's window.
        """
        late = cls(count=dropped)
        if not dropped:
            return late
        windows: dict[int, Counter[str]] = {}
        for pair in seen:
            if pair["item"] is None:  # rows that are not passed on
                continue
            end_ms, _, proxy = str(pair["item"]).partition(" ")
            windows.setdefault(int(end_ms), Counter())[proxy] += int(str(pair["count"]))
        for oldest_ms, of_window in sorted(windows.items()):
            if late.by_proxy.total() + of_window.total() > dropped:
                break
            late.by_proxy += of_window
            late.longest_ms = max(late.longest_ms, newest_ms - oldest_ms)
        return late

    def add(self, other: Self) -> None:
        """Add the dropped records of another batch."""
        self.count += other.count
        self.by_proxy += other.by_proxy
        self.longest_ms = max(self.longest_ms, other.longest_ms)

    def words(self) -> str:
        """Return a phrase such as ``480 too late (480 of p2; --late 13m would have kept them)``."""
        named = [f"{count:,} of {proxy}" for proxy, count in self.by_proxy.most_common(_MOST_NAMED)]
        more = self.count - sum(count for _, count in self.by_proxy.most_common(_MOST_NAMED))
        if more and named:
            named.append(f"{more:,} of others")
        if self.longest_ms:
            named[-1] += f"; --late {_rounded_up(self.longest_ms)} would have kept them"
        said = f"{self.count:,} too late"
        return f"{said} ({', '.join(named)})" if named else said


def _rounded_up(time_ms: int) -> str:
    return f"{-(-time_ms // 1_000)}s" if time_ms <= 120_000 else f"{-(-time_ms // 60_000)}m"
