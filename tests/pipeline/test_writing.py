"""A command's results appear completely or not at all."""

import csv
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafka_quota_proxy.pipeline import file_system
from kafka_quota_proxy.pipeline.errors import UsageError
from kafka_quota_proxy.pipeline.writing import Output, staged


def files(directory: Path) -> list[str]:
    """Return the names of the visible files in a directory."""
    return sorted(path.name for path in directory.iterdir() if path.name[0] not in "._")


def test_results_appear_at_the_end_and_scratch_goes(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"

    with staged(str(out)) as output:
        output.table("numbers", spark.range(3), form="csv")
        kept = output.keep("kept", spark.range(5))
        assert kept.count() == 5
        output.text("note.txt", "ü\n")
        assert not out.exists()

    assert files(out) == ["note.txt", "numbers"]
    assert (out / "note.txt").read_text(encoding="utf-8") == "ü\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert not (out / "_scratch").exists()


def test_a_failure_keeps_the_last_results(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with staged(str(out)) as output:
        output.text("note.txt", "first")

    def fail() -> None:
        with staged(str(out)) as output:
            output.text("note.txt", "second")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert (out / "note.txt").read_text(encoding="utf-8") == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_second_run_replaces_all_of_the_first(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for name in ("first", "second"):
        with staged(str(out)) as output:
            output.text(name, name)

    assert files(out) == ["second"]


def test_a_daily_table_has_a_sorted_file_for_each_day(spark: SparkSession, output: Output) -> None:
    rows = [(f"2026-09-{day:02}", name, 1) for day in (9, 7, 8) for name in ("b", "a", "c")]

    output.daily("days", spark.createDataFrame(rows, "day string, name string, n int").repartition(5), "name")

    found = {path.name: list(path.glob("*.parquet")) for path in Path(output.path, "days").glob("day=*")}
    assert {name: len(paths) for name, paths in found.items()} == dict.fromkeys(
        ("day=2026-09-07", "day=2026-09-08", "day=2026-09-09"), 1
    )
    for (path,) in found.values():
        assert [row["name"] for row in spark.read.parquet(str(path)).collect()] == ["a", "b", "c"]


def test_a_failed_rename_keeps_the_last_results(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    with staged(str(out)) as output:
        output.text("note.txt", "first")
    rename = file_system.rename

    def full(source: str, target: str) -> None:
        if source.endswith(".staging"):
            raise OSError("no space left")
        rename(source, target)

    monkeypatch.setattr(file_system, "rename", full)

    with pytest.raises(OSError, match="no space left"), staged(str(out)) as output:
        output.text("note.txt", "second")

    assert (out / "note.txt").read_text(encoding="utf-8") == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_results_moved_aside_by_a_killed_run_are_restored(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with staged(str(out)) as output:
        output.text("note.txt", "first")
    out.rename(tmp_path / ".out.previous")

    def fail() -> None:
        with staged(str(out)):
            assert (out / "note.txt").read_text(encoding="utf-8") == "first"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert (out / "note.txt").read_text(encoding="utf-8") == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_directory_of_other_files_is_not_replaced(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("three years", encoding="utf-8")

    with pytest.raises(UsageError, match="was not written by this program"), staged(str(tmp_path)):
        pytest.fail("it must not begin")

    assert files(tmp_path) == ["thesis.tex"]


def test_an_empty_directory_is_taken(spark: SparkSession, tmp_path: Path) -> None:
    with staged(f"{tmp_path}/") as output:
        output.text("note.txt", "")

    assert files(tmp_path) == ["note.txt"]


def test_a_name_with_quotes_and_commas_is_read_back_by_any_reader_of_csv(spark: SparkSession, output: Output) -> None:
    names = ['a"b', "a,b", "\\", '\\"', '"', " x ", ""]

    output.table("names", spark.createDataFrame([(name, 1) for name in names], "name string, n int"), form="csv")

    (path,) = Path(output.path, "names").glob("*.csv")
    with path.open(encoding="utf-8", newline="") as file:
        assert [row["name"] for row in csv.DictReader(file)] == names


def test_sizes_of_local_files_are_known_before_spark_starts(tmp_path: Path) -> None:
    for name, size in (("a.jsonl", 3), ("b.jsonl.gz", 5), ("day/c.parquet", 7)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * size)

    def sizes(place: str) -> list[int]:
        return sorted(size for _, size in file_system.local_sizes(place))

    assert sizes(str(tmp_path)) == sizes(f"file://{tmp_path}/") == [3, 5, 7]
    assert sizes(f"{tmp_path}/*.jsonl*") == [3, 5]
    assert sizes(f"{tmp_path}/a.jsonl") == [3]
    assert sizes(f"{tmp_path}/none") == sizes("s3a://logs/usage") == sizes("kafka://broker1:9092/usage") == []
