"""Alerts in files: each batch is written completely or not at all, and once. Topics are tested end to end."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from kafka_quota_proxy.pipeline.delivery import FileDelivery


def batch(spark: SparkSession, *values: str) -> DataFrame:
    """Return a batch of encoded alerts as a data frame."""
    return spark.createDataFrame([("", value, 0) for value in values], "key string, value string, start_ms long")


def there(out: Path) -> dict[str, str]:
    """Return the contents of the files in a directory by name, without hidden files."""
    return {path.name: path.read_text(encoding="utf-8") for path in out.iterdir() if path.suffix != ".crc"}


@pytest.fixture
def delivery(tmp_path: Path) -> FileDelivery:
    return FileDelivery(f"{tmp_path}/out/", "job")


def test_a_batch_is_a_file_and_a_batch_without_alerts_is_none(
    spark: SparkSession, delivery: FileDelivery, tmp_path: Path
) -> None:
    delivery.deliver(batch(spark, "b", "ä"), 0)
    delivery.deliver(batch(spark), 1)
    delivery.deliver(batch(spark, "c"), 2)

    assert there(tmp_path / "out") == {"alerts-job-0000000000.jsonl": "b\nä\n", "alerts-job-0000000002.jsonl": "c\n"}


def test_a_delivered_batch_is_not_rewritten(spark: SparkSession, delivery: FileDelivery, tmp_path: Path) -> None:
    delivery.deliver(batch(spark, "a"), 3)
    delivery.deliver(batch(spark, "another"), 3)

    assert there(tmp_path / "out") == {"alerts-job-0000000003.jsonl": "a\n"}


def test_a_batch_of_a_killed_process_is_rewritten(spark: SparkSession, delivery: FileDelivery, tmp_path: Path) -> None:
    left = tmp_path / "out" / ".alerts-job-0000000003"
    left.mkdir()
    (left / "part-00000-old.txt").write_text("half of it", encoding="utf-8")

    delivery.deliver(batch(spark, "a"), 3)

    assert there(tmp_path / "out") == {"alerts-job-0000000003.jsonl": "a\n"}


def test_two_jobs_may_have_one_directory(spark: SparkSession, delivery: FileDelivery, tmp_path: Path) -> None:
    other = FileDelivery(str(tmp_path / "out"), "other")

    delivery.deliver(batch(spark, "a"), 0)
    other.deliver(batch(spark, "b"), 0)

    assert sorted(there(tmp_path / "out").values()) == ["a\n", "b\n"]
