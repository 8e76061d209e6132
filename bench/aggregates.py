"""The aggregate of ``capacity`` (peak, median and percentile of each bucket) by Spark, DuckDB and pandas.

``python -m bench.aggregates ENGINE DIRECTORY`` reads Parquet, and prints a JSON object: ``start_s`` (import and start
of the engine), ``query_s`` and the result.
"""

import importlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any, Final

PERCENTILE: Final = 99.0
_BUCKET: Final = ("proxy", "broker", "kind", "user", "client_id")
_READ: Final = (*_BUCKET, "interval_ms", "amount")
Found = dict[str, list[int]]  # by bucket: peak, median, percentile

# The same histogram as pipeline.capacity's, in one statement.
_SQL: Final = """
WITH usage AS (
  SELECT proxy, broker, kind, "user", client_id,
         greatest(0, amount * 1000 // greatest(interval_ms, 100)) AS rate
  FROM read_parquet('{path}/**/*.parquet', hive_partitioning = false) WHERE kind IN ('produce', 'fetch')
), bins AS (
  SELECT proxy, broker, kind, "user", client_id, count(*) AS intervals, max(rate) AS peak
  FROM usage GROUP BY 1, 2, 3, 4, 5, CASE WHEN rate < 1 THEN -1 ELSE ceil(log2(rate) * 64) END
), ranked AS (
  SELECT *, sum(intervals) OVER below AS rank, sum(intervals) OVER every AS total FROM bins
  WINDOW every AS (PARTITION BY proxy, broker, kind, "user", client_id),
         below AS (PARTITION BY proxy, broker, kind, "user", client_id ORDER BY peak)
)
SELECT proxy, broker, kind, "user", client_id, max(peak),
       min(CASE WHEN rank >= ceil(total * 0.5 - 1e-9) THEN peak END),
       min(CASE WHEN rank >= ceil(total * {part} - 1e-9) THEN peak END)
FROM ranked GROUP BY ALL
"""


def _spark(path: str) -> Callable[[], Found]:
    session, capacity = (
        importlib.import_module(f"kafka_quota_proxy.pipeline.{name}") for name in ("session", "capacity")
    )
    spark = session.session(conf={"spark.ui.showConsoleProgress": "false"})
    spark.range(1).count()

    def query() -> Found:
        rates = capacity.rates(capacity.byte_usage(spark.read.parquet(path)))
        columns = (*_BUCKET, "peak", "median", "percentile")
        return _found(tuple(row) for row in capacity.percentiles(rates, PERCENTILE).select(*columns).collect())

    return query


def _duckdb(path: str) -> Callable[[], Found]:
    connection = importlib.import_module("duckdb").connect()
    return lambda: _found(connection.execute(_SQL.format(path=path, part=PERCENTILE / 100)).fetchall())


def _pandas(path: str) -> Callable[[], Found]:
    np, pandas = importlib.import_module("numpy"), importlib.import_module("pandas")

    def query() -> Found:
        usage = pandas.read_parquet(path, columns=[*_READ])
        usage = usage[usage["kind"].isin(["produce", "fetch"])]
        rate = (usage["amount"] * 1_000 // usage["interval_ms"].clip(lower=100)).clip(lower=0)
        bins = np.where(rate < 1, -1, np.ceil(np.log2(rate.clip(lower=1)) * 64))
        by = usage[[*_BUCKET]].assign(bin=bins, rate=rate).groupby([*_BUCKET, "bin"], observed=True)["rate"]
        seen = by.agg(["size", "max"]).reset_index().sort_values([*_BUCKET, "max"])
        groups = seen.groupby([*_BUCKET], observed=True)
        seen["rank"], seen["of"] = groups["size"].cumsum(), groups["size"].transform("sum")
        columns = [groups["max"].max()]
        for part in (0.5, PERCENTILE / 100):
            reached = seen[seen["rank"] >= np.ceil(seen["of"] * part - 1e-9)]
            columns.append(reached.groupby([*_BUCKET], observed=True)["max"].min())
        return _found(pandas.concat(columns, axis=1).reset_index().itertuples(index=False, name=None))

    return query


def _found(rows: Any) -> Found:  # noqa: ANN401  (tuples, as each engine has them)
    return {"/".join(map(str, row[:5])): [int(number) for number in row[5:]] for row in rows}


ENGINES: Final = {"Spark": _spark, "DuckDB": _duckdb, "pandas": _pandas}


def main(engine: str, path: str) -> None:
    started = time.perf_counter()
    query = ENGINES[engine](path)
    ready = time.perf_counter()
    found = query()
    ended = time.perf_counter()
    print(json.dumps({"start_s": ready - started, "query_s": ended - ready, "found": found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
