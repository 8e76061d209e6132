"""A checkpoint belongs to one job with fixed settings, and keeps the most recent malformed lines."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafka_quota_proxy.pipeline import checkpoint
from kafka_quota_proxy.pipeline.checkpoint import LINES, Quarantine, bad_lines, job_of
from kafka_quota_proxy.pipeline.errors import UsageError
from kafka_quota_proxy.pipeline.parsing import parsed
from tests.pipeline.support import lines, record


def test_a_directory_is_a_job(tmp_path: Path) -> None:
    first = job_of(f"{tmp_path}/a", {"--window": "1000ms"})

    assert job_of(f"{tmp_path}/a/", {"--window": "1000ms"}) == first
    assert job_of(f"{tmp_path}/b", {"--window": "1000ms"}) != first


def test_a_job_killed_while_its_id_was_written_gets_a_new_id(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "job.json.tmp").write_text('{"id": "3f', encoding="utf-8")

    assert len(job_of(f"{tmp_path}/a", {})) == 12


def test_settings_of_a_job_must_not_change(tmp_path: Path) -> None:
    job_of(f"{tmp_path}/a", {"--window": "1000ms"})

    with pytest.raises(UsageError, match="belongs to --window 1000ms; for --window 2000ms"):
        job_of(f"{tmp_path}/a", {"--window": "2000ms"})


def test_a_directory_of_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("three years", encoding="utf-8")

    with pytest.raises(UsageError, match=r"has no job\.json"):
        job_of(str(tmp_path), {})


def test_some_bad_lines_of_a_batch_are_kept_with_their_places(spark: SparkSession) -> None:
    texts = [f"bad {number}" for number in range(LINES + 20)] + [lines([record()]).strip()]
    rows = [(text, "topic-0", 0, offset) for offset, text in enumerate(texts)]
    batch = parsed(spark.createDataFrame(rows, "value string, source string, block long, position long"))

    found = [json.loads(line) for line in batch.agg(bad_lines().alias("bad")).collect()[0]["bad"]]

    assert len(found) == LINES
    assert all(one["text"] == f"bad {one['line']}" for one in found)
    assert {(one["source"], one["fault"]) for one in found} == {
        ("topic-0", "is not a JSON object; a record is one object on one line")
    }


def test_good_lines_are_not_kept(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(lines([record()]).strip(), "topic-0", 0, 0)]
    batch = parsed(spark.createDataFrame(rows, "value string, source string, block long, position long"))

    Quarantine(str(tmp_path / "bad")).keep(1, batch.agg(bad_lines().alias("bad")).collect()[0]["bad"])

    assert not (tmp_path / "bad").exists()


def test_files_of_old_batches_are_deleted_and_a_repeated_batch_has_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "BATCHES", 4)
    quarantine = Quarantine(f"{tmp_path}/bad/")

    for batch in [0, *range(9), 8]:
        quarantine.keep(batch, [f'{{"text":"ü {batch}"}}'])

    kept = sorted(path.name for path in (tmp_path / "bad").glob("batch-*"))
    assert kept == [f"batch-{batch:010}.jsonl" for batch in range(5, 9)]
    assert (tmp_path / "bad" / kept[-1]).read_text(encoding="utf-8") == '{"text":"ü 8"}\n'
