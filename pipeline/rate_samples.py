"""Turns samples of rates into records of the usage log. Does no I/O.

A sample stands for the time since the sample before it, so the amount is the rate multiplied by this time. The first
sample of a series, and a sample after a gap, stand for the usual distance of samples. Two series of the same bucket are
those of two Prometheus replicas, and are merged into one by time.

Kafka's rates are means over the last windows (by default 11 of one second), so a byte may be counted up to this time
later than it passed. Kafka's ``throttle-time`` is the mean wait of the requests that were throttled in these windows,
and does not say how many there were. It counts as the wait of one of them, which is a lower bound.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import isfinite
from statistics import median
from typing import Final, NamedTuple

from kafka_quota_proxy.pipeline.client_metrics import RATE, Measured

# The default windows of Kafka's quotas: quota.window.num × quota.window.size.seconds.
KAFKA_WINDOWS_MS: Final = 11_000
# Samples have a gap between them if they are farther apart than this multiple of their usual distance, and than Kafka's
# windows, whose mean a sample is.
_GAP: Final = 1.5
# A request rate is in per cent of a thread, and its amount in per cent × milliseconds.
_RATE_MS: Final = {"produce": 1_000, "fetch": 1_000, "request": 1}


class SampledBucket(NamedTuple):
    """The quota bucket of one client at one broker. ``instance`` is the broker's name, usually the scraped instance."""

    instance: str
    kind: str
    user: str
    client_id: str


class Series(NamedTuple):
    """Samples of one metric of a bucket: Unix times in milliseconds and values, in the order of time."""

    bucket: SampledBucket
    measured: Measured
    samples: Sequence[tuple[int, float]]


class ImportedRecord(NamedTuple):
    """A record of the usage log without the columns that Kafka's metrics cannot fill."""

    start_ms: int
    interval_ms: int
    bucket: SampledBucket
    amount: int
    throttle_time_ms: int
    resolution_ms: int


class SampleIntegrator:
    """Takes batches of series in the order of time, and yields the records of each batch.

    ``step_ms`` is the distance of samples if a batch does not show it. ``gaps`` counts how often a series had no sample
    for longer than usual.
    """

    def __init__(self, step_ms: int) -> None:
        self.usual_ms = step_ms
        self.gaps = 0
        self._last_ms: dict[SampledBucket, int] = {}

    def take(self, batch: Iterable[Series]) -> Iterator[ImportedRecord]:
        """Yield the records of a batch."""
        batch = list(batch)
        rates = [one for one in batch if one.measured.quantity == RATE]
        self.usual_ms = usual_distance_ms(rates) or self.usual_ms
        waits = _throttle_times(batch)
        for bucket, samples in _merged(rates).items():
            for at_ms, rate in samples:
                span_ms = self._span_ms(bucket, at_ms)
                record = self._record(bucket, at_ms, span_ms, rate, waits.get((bucket, at_ms), 0.0))
                if record.amount or record.throttle_time_ms:
                    yield record

    def _span_ms(self, bucket: SampledBucket, at_ms: int) -> int:
        """Return the time for which a sample stands."""
        last_ms = self._last_ms.get(bucket)
        self._last_ms[bucket] = at_ms
        if last_ms is not None and at_ms - last_ms > max(self.usual_ms * _GAP, KAFKA_WINDOWS_MS):
            self.gaps += 1
            return self.usual_ms
        return self.usual_ms if last_ms is None else at_ms - last_ms

    def _record(self, bucket: SampledBucket, at_ms: int, span_ms: int, rate: float, wait_ms: float) -> ImportedRecord:
        # Samples closer than Kafka's windows show the same wait again, so each of them counts a part of it.
        part = min(1.0, span_ms / KAFKA_WINDOWS_MS)
        return ImportedRecord(
            start_ms=at_ms - span_ms,
            interval_ms=span_ms,
            bucket=bucket,
            amount=round(rate * span_ms / _RATE_MS[bucket.kind]),
            throttle_time_ms=round(wait_ms * part),
            resolution_ms=max(span_ms, self.usual_ms, KAFKA_WINDOWS_MS),
        )


def usual_distance_ms(series: Iterable[Series]) -> int | None:
    """Return the median time between two samples of the same series, or None if no series has two."""
    distances = [
        later - earlier for one in series for (earlier, _), (later, _) in pairwise(one.samples) if later > earlier
    ]
    return round(median(distances)) if distances else None


def _throttle_times(series: Iterable[Series]) -> dict[tuple[SampledBucket, int], float]:
    """Return the throttle times above 0, by bucket and time. NaN means that no request was throttled."""
    found: dict[tuple[SampledBucket, int], float] = {}
    for one in series:
        if one.measured.quantity != RATE:
            for at_ms, value in one.samples:
                if isfinite(value) and value > found.get((one.bucket, at_ms), 0.0):
                    found[one.bucket, at_ms] = value
    return found


def node_ids(instances: Iterable[str], given: Mapping[str, int]) -> dict[str, int]:
    """Return a node id for each instance: the given one, or else the next free number in the order of their names."""
    found, number = dict(given), 0
    for instance in sorted(set(instances) - given.keys()):
        number += 1
        while number in given.values():
            number += 1
        found[instance] = number
    return found


def _merged(rates: Iterable[Series]) -> dict[SampledBucket, list[tuple[int, float]]]:
    """Merge the series of each bucket by time, without values that are no rate."""
    values: dict[SampledBucket, dict[int, float]] = {}
    for one in rates:
        of = values.setdefault(one.bucket, {})
        for at_ms, value in one.samples:
            if isfinite(value) and value >= of.get(at_ms, 0.0):
                of[at_ms] = value
    return {bucket: sorted(of.items()) for bucket, of in values.items()}
