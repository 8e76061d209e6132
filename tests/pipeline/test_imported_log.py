"""Imported records become a usage log, which the other commands read."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.testing import assertDataFrameEqual

from kafka_quota_proxy.pipeline import imported_log as module
from kafka_quota_proxy.pipeline.errors import UsageError
from kafka_quota_proxy.pipeline.imported_log import SCHEMA, imported_log
from kafka_quota_proxy.pipeline.rate_samples import ImportedRecord, SampledBucket
from kafka_quota_proxy.pipeline.record import RECORD
from kafka_quota_proxy.pipeline.usage_reader import read
from kafka_quota_proxy.pipeline.writing import Output
from tests.pipeline.support import START_MS, frame, record

BUCKET = SampledBucket("kafka-1:9404", "produce", "alice", "etl")


def imported(at_s: int, *, amount: int = 5, throttle_time_ms: int = 0) -> ImportedRecord:
    return ImportedRecord(START_MS + at_s * 1_000, 60_000, BUCKET, amount, throttle_time_ms, 60_000)


def test_the_columns_are_those_of_a_record() -> None:
    expected = to_arrow_schema(RECORD)

    assert [(field.name, field.type) for field in SCHEMA] == [(field.name, field.type) for field in expected]


def test_an_imported_log_is_read_as_a_log(spark: SparkSession, output: Output, tmp_path: Path) -> None:
    with imported_log(str(tmp_path / "log" / "imported")) as log:
        log.add([imported(0), imported(60, throttle_time_ms=250)], {BUCKET.instance: 3})

    usage = read(spark, str(tmp_path / "log"), output)

    same = {"proxy": "kafka-1:9404", "broker": 3, "amount": 5, "interval_ms": 60_000, "resolution_ms": 60_000}
    expected = [
        record(at_s=0, requests=0, **same),
        record(at_s=60, requests=1, throttled_requests=1, throttle_time_ms=250, **same),
    ]
    assertDataFrameEqual(usage.records, frame(spark, expected))
    assert (log.records, log.amounts) == (2, {"produce": 10})
    (words,) = usage.words()
    assert words.startswith("2 records are imported, and their rates are means over 1 min. They show no ")


def test_many_records_are_written_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROWS_AT_ONCE", 10)

    with imported_log(str(tmp_path / "log")) as log:
        for part in range(5):
            log.add((imported(at_s) for at_s in range(part * 9, part * 9 + 9)), {BUCKET.instance: 1})

    file = pq.ParquetFile(tmp_path / "log" / "usage.parquet")
    assert (file.metadata.num_rows, file.num_row_groups) == (45, 5)
    starts = file.read(["start_ms"])["start_ms"].to_pylist()
    assert starts == [START_MS + at_s * 1_000 for at_s in range(45)]


def test_a_failed_import_leaves_the_old_log(tmp_path: Path) -> None:
    out = tmp_path / "log"
    with imported_log(str(out)) as log:
        log.add([imported(0)], {BUCKET.instance: 1})

    with pytest.raises(KeyError), imported_log(str(out)) as log:
        log.add([imported(0), imported(60)], {})

    assert pq.read_table(out).num_rows == 1
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_a_second_import_replaces_the_first(tmp_path: Path) -> None:
    for count in (3, 1):
        with imported_log(str(tmp_path / "log")) as log:
            log.add([imported(60 * at) for at in range(count)], {BUCKET.instance: 1})

    assert pq.read_table(tmp_path / "log").num_rows == 1
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_a_log_that_a_killed_import_had_set_aside_comes_back(tmp_path: Path) -> None:
    with imported_log(str(tmp_path / "log")) as log:
        log.add([imported(0)], {BUCKET.instance: 1})
    (tmp_path / "log").rename(tmp_path / ".log.previous")

    with pytest.raises(KeyError), imported_log(str(tmp_path / "log")) as log:
        log.add([imported(0)], {})

    assert pq.read_table(tmp_path / "log").num_rows == 1


def test_other_files_are_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")

    with pytest.raises(UsageError, match="was not written by this program"), imported_log(str(tmp_path)):
        pass
    with pytest.raises(UsageError, match="a local directory"), imported_log("hdfs://name/usage"):
        pass

    assert (tmp_path / "notes.txt").read_text() == "mine"
