"""A checkpoint is one job's, and the job stays what it was."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafka_quota_proxy.pipeline.checkpoint import job_of
from kafka_quota_proxy.pipeline.errors import UsageError
from kafka_quota_proxy.pipeline.files import Files


def test_a_directory_is_a_job(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark)
    first = job_of(files, f"{tmp_path}/a", {"--window": "1000ms"})

    assert job_of(files, f"{tmp_path}/a/", {"--window": "1000ms"}) == first
    assert job_of(files, f"{tmp_path}/b", {"--window": "1000ms"}) != first


def test_a_job_killed_while_its_id_was_written_gets_a_new_id(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "job.json.tmp").write_text('{"id": "3f', encoding="utf-8")

    assert len(job_of(Files(spark), f"{tmp_path}/a", {})) == 12


def test_settings_of_a_job_must_not_change(spark: SparkSession, tmp_path: Path) -> None:
    job_of(Files(spark), f"{tmp_path}/a", {"--window": "1000ms"})

    with pytest.raises(UsageError, match="belongs to --window 1000ms; for --window 2000ms"):
        job_of(Files(spark), f"{tmp_path}/a", {"--window": "2000ms"})


def test_a_directory_of_other_files_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("three years", encoding="utf-8")

    with pytest.raises(UsageError, match=r"has no job\.json"):
        job_of(Files(spark), str(tmp_path), {})
