"""The replay of rows that are sorted by bucket. A batch may end within a bucket."""

import json
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.config.model import ProxyConfig, QuotaRule
from kafka_quota_proxy.pipeline.bucket_stream import HEAD, ROW, START_BITS, replayed
from kafka_quota_proxy.pipeline.candidate_quotas import CandidateQuotas
from kafka_quota_proxy.pipeline.record import CANDIDATE_BUCKET
from tests.pipeline.literal_replay import Demand, LiteralReplay, beside
from tests.support.cases import A_THIRD

QUOTAS = CandidateQuotas(
    config=ProxyConfig(listeners=(), quotas=(QuotaRule(user="alice", producer_byte_rate=1_000.0),))
)
LIMITS = [500.0, 1_000.0]


def head(number: int, broker: int) -> tuple[int | str | None, ...]:
    """Return the row that describes a bucket, and precedes its records."""
    told = dict(zip(CANDIDATE_BUCKET, ("p", broker, "produce", "alice", ""), strict=True)) | {"limits": LIMITS}
    return (number << START_BITS, *(0 for _ in ROW), json.dumps(told))


def row(number: int, demand: Demand, who: int = 1) -> tuple[int | str | None, ...]:
    """Return the row of a record."""
    return ((number << START_BITS) + demand.start_ms + 1, who, *demand[1:-2], None)


def batches(rows: Sequence[tuple[int | str | None, ...]], size: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows as Arrow batches, as Spark passes them."""
    types = [*(pa.int64() for _ in ("key", *ROW)), pa.string()]
    for first in range(0, len(rows), size):
        columns = zip(*rows[first : first + size], strict=True)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, ["key", *ROW, HEAD])


@A_THIRD
@given(size=st.integers(1, 130))
def test_each_bucket_is_replayed_by_itself_under_each_limit(size: int) -> None:
    demands = [Demand(at * 1_000, 1_000, 3_000, 3) for at in range(40)]
    # Rows with the same start time are ordered by client.
    rows = [head(3, 1), *(row(3, one) for one in demands), head(5, 2), *(row(5, one, 2) for one in demands[:20])]
    rows += [row(5, demands[19]._replace(amount=90_000), 1), head(6, 3)]
    rows.sort(key=lambda one: int(one[0] or 0))

    found = pa.Table.from_batches(replayed(batches(rows, size), QUOTAS)).to_pylist()

    first = beside(demands[:20])
    shared = [*first[:19], *beside([demands[19]._replace(amount=90_000)]), first[19]]
    expected = []
    for broker, given_demands in ((1, beside(demands)), (2, shared)):
        for limit in LIMITS:
            config = ProxyConfig(listeners=(), quotas=(QuotaRule(user="alice", producer_byte_rate=limit),))
            literal = LiteralReplay(CandidateQuotas(config=config).bucket("produce", "alice", ""))
            for one in given_demands:
                literal.take(one)
            outcome = literal.end()
            (hour,) = outcome.hours.values()
            expected.append((broker, limit, hour.amount, hour.throttle_time_ms, outcome.sent_ms))
    columns = ("broker", "limit", "amount", "throttle_time_ms", "sent_ms")
    assert [tuple(one[name] for name in columns) for one in found] == expected


@pytest.mark.parametrize("rows", [[], [head(1, 1)]])
def test_no_rows_give_no_outcome(rows: list[tuple[int | str | None, ...]]) -> None:
    assert [batch.num_rows for batch in replayed(batches(rows, 10), QUOTAS) if batch.num_rows] == []
