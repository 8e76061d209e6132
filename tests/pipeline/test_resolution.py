"""What is said of imported records depends on their resolution in the log."""

from pathlib import Path

from pyspark.sql import SparkSession

from kafka_quota_proxy.pipeline.resolution import Coarse
from kafka_quota_proxy.pipeline.usage_reader import read
from kafka_quota_proxy.pipeline.writing import Output
from tests.pipeline.support import frame, record, write_log


def test_the_longest_resolution_is_said(spark: SparkSession, output: Output, tmp_path: Path) -> None:
    write_log(tmp_path / "log" / "a.jsonl", [record(at_s=0), record(at_s=1, resolution_ms=11_000)])
    imported = frame(spark, [record(at_s=2, resolution_ms=300_000)])
    imported.write.parquet(str(tmp_path / "log" / "imported"))

    usage = read(spark, str(tmp_path / "log"), output)

    assert usage.coarse == Coarse(2, 300_000)
    said = "2 records are imported, and their rates are means over 5 min. They show no "
    assert [words.startswith(said) for words in usage.words()] == [True]


def test_nothing_is_said_of_a_proxys_log(spark: SparkSession, output: Output, tmp_path: Path) -> None:
    usage = read(spark, str(write_log(tmp_path / "log.jsonl", [record()])), output)

    assert (usage.coarse, usage.words()) == (None, [])
