"""Bad lines of a stream: each batch's with their places, and never more than so many."""

import json
from pathlib import Path

from pyspark.sql import SparkSession

from kafka_quota_proxy.pipeline.files import Files
from kafka_quota_proxy.pipeline.parsing import parsed
from kafka_quota_proxy.pipeline.quarantine import BATCHES, LINES, Quarantine, bad_lines
from tests.pipeline.support import lines, record


def test_some_bad_lines_of_a_batch_are_kept_with_their_places(spark: SparkSession) -> None:
    texts = [f"bad {number}" for number in range(LINES + 20)] + [lines([record()]).strip()]
    rows = [(text, "topic-0", 0, offset) for offset, text in enumerate(texts)]
    batch = parsed(spark.createDataFrame(rows, "value string, source string, block long, position long"))

    found = [json.loads(line) for line in batch.agg(bad_lines().alias("bad")).collect()[0]["bad"]]

    assert len(found) == LINES
    assert all(one["text"] == f"bad {one['line']}" for one in found)
    assert {(one["source"], one["fault"]) for one in found} == {
        ("topic-0", "is no JSON object; a record is one object on one line")
    }


def test_good_lines_are_not_kept(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(lines([record()]).strip(), "topic-0", 0, 0)]
    batch = parsed(spark.createDataFrame(rows, "value string, source string, block long, position long"))

    Quarantine(Files(spark), str(tmp_path / "bad")).keep(1, batch.agg(bad_lines().alias("bad")).collect()[0]["bad"])

    assert not (tmp_path / "bad").exists()


def test_files_of_old_batches_are_deleted_and_a_repeated_batch_has_one_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    quarantine = Quarantine(Files(spark), f"{tmp_path}/bad/")

    for batch in [0, *range(BATCHES + 5), BATCHES + 4]:
        quarantine.keep(batch, [f'{{"text":"ü {batch}"}}'])

    kept = sorted(path.name for path in (tmp_path / "bad").glob("batch-*"))
    assert kept == [f"batch-{batch:010}.jsonl" for batch in range(5, BATCHES + 5)]
    assert (tmp_path / "bad" / kept[-1]).read_text(encoding="utf-8") == f'{{"text":"ü {BATCHES + 4}"}}\n'
