"""Replays a usage log one bucket at a time, from rows that ``whatif`` has sorted by the column ``key``.

The upper bits of a key are the number of a bucket. The lower 42 bits are the start of a record in milliseconds, plus
one. They suffice until the year 2100. In the first row of a bucket, the lower bits are 0. This row contains no record,
but the names and the limits of the bucket, which are thus sent only once for each bucket. A bucket may begin in one
batch of rows and end in another. This module needs no Spark.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import inf
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kafka_quota_proxy.pipeline.arrivals import NeighbourRates
from kafka_quota_proxy.pipeline.candidate_quotas import CandidateQuotas
from kafka_quota_proxy.pipeline.record import CANDIDATE_BUCKET
from kafka_quota_proxy.pipeline.replay import Replay
from kafka_quota_proxy.proxy.quota.rule_tables import RuleTable

START_BITS: Final = 42
# The columns of numbers after the key of a row, which also order the rows with the same key. ``client`` distinguishes
# the clients that share a bucket.
ROW: Final = ("client", "interval_ms", "amount", "requests")
# The column with a text in the first row of a bucket: JSON with the columns of CANDIDATE_BUCKET, and ``limits``.
HEAD: Final = "head"

_HOUR: Final = ("amount", "delayed_amount", "throttled_requests", "throttle_time_ms", "longest_delay_ms")
# The columns of the outcome, which has a row for each bucket, limit and hour with data. The last two columns are for
# all hours together.
HOURS: Final = pa.schema(
    [
        *((name, pa.int32() if name == "broker" else pa.string()) for name in CANDIDATE_BUCKET),
        ("limit", pa.float64()),
        *((name, pa.int64()) for name in ("hour_ms", *_HOUR, "sent_ms", "busy_ms")),
    ]
)


def replayed(
    batches: Iterator[pa.RecordBatch], quotas: CandidateQuotas, *, max_delay_ms: float = inf, is_total: bool = False
) -> Iterator[pa.RecordBatch]:
    """Replay rows, and yield the outcome of each bucket after its last row.

    ``batches`` have the columns ``key``, ``ROW`` and ``HEAD``, and are sorted by key. The limits of a bucket come from
    its first row, and its other settings from the rule that ``quotas`` has for it. A replay under a limit that delays
    a part by more than ``max_delay_ms`` ends early. With ``is_total``, the hour 0 stands for all hours.
    """
    tables, heads = quotas.tables(), dict[int, str]()
    running: _BucketReplay | None = None
    for key, *columns in _in_order(batches, heads):
        numbers = key >> START_BITS
        for begin, end in pairwise([0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(key)]):
            if begin == end:
                continue
            number = int(numbers[begin])
            if running is not None and running.number != number:
                yield running.end(is_total=is_total)
                running = None
            if running is None:
                running = _BucketReplay(number, heads.pop(number), quotas, tables, max_delay_ms)
                begin += 1
            running.take(key[begin:end], [column[begin:end] for column in columns])
    if running is not None:
        yield running.end(is_total=is_total)


class _BucketReplay:
    """Computes how the logged traffic of one bucket would have been throttled under each of several limits."""

    def __init__(
        self, number: int, head: str, quotas: CandidateQuotas, tables: Mapping[str, RuleTable], max_delay_ms: float
    ) -> None:
        self.number = number
        fields = json.loads(head)
        self._names = [fields[name] for name in CANDIDATE_BUCKET]
        self._limits = fields["limits"]
        _, _, kind, user, client_id = self._names
        buckets = quotas.buckets(self._limits, tables[kind], kind=kind, user=user, client_id=client_id)
        self._replay = Replay(*buckets, max_delay_ms=max_delay_ms)
        self._neighbours = NeighbourRates()

    def take(self, key: NDArray[np.int64], columns: list[NDArray[np.int64]]) -> None:
        start_ms = (key & ((1 << START_BITS) - 1)) - 1
        self._replay.take(self._neighbours.take(start_ms, *columns))

    def end(self, *, is_total: bool) -> pa.RecordBatch:
        self._replay.take(self._neighbours.rest())
        rows = [
            (*self._names, limit, hour_ms, *(getattr(hour, name) for name in _HOUR), outcome.sent_ms, outcome.busy_ms)
            for limit, outcome in zip(self._limits, self._replay.end(), strict=True)
            for hour_ms, hour in ([(0, outcome.total())] if is_total else sorted(outcome.hours.items()))
        ]
        columns = zip(*rows, strict=True) if rows else ([] for _ in HOURS)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, HOURS, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=HOURS)


def _in_order(batches: Iterator[pa.RecordBatch], heads: dict[int, str]) -> Iterator[NDArray[np.int64]]:
    """Yield the rows as arrays, sorted by ``key`` and ``ROW``, and put the ``HEAD`` of each bucket into ``heads``.

    Rows with the same key are always in one array. ``heads`` is by number of bucket.
    """
    left = np.empty((1 + len(ROW), 0), np.int64)
    for batch in batches:
        if not batch.num_rows:
            continue
        numbers = np.stack([batch.column(name).to_numpy() for name in ("key", *ROW)])
        for place in np.flatnonzero((numbers[0] & ((1 << START_BITS) - 1)) == 0).tolist():
            heads[int(numbers[0][place]) >> START_BITS] = batch.column(HEAD)[place].as_py()
        numbers = np.concatenate((left, numbers), axis=1)
        cut = int(np.searchsorted(numbers[0], numbers[0][-1]))
        yield _sorted(numbers[:, :cut])
        left = numbers[:, cut:]
    yield _sorted(left)


def _sorted(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    key = numbers[0]
    return numbers[:, np.lexsort(numbers[::-1])] if (key[1:] == key[:-1]).any() else numbers
