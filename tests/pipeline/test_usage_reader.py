"""Tests of ``pipeline.usage_reader``."""

import gzip
import json
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.testing import assertDataFrameEqual

from kafka_quota_proxy.pipeline.errors import PipelineError, UsageError
from kafka_quota_proxy.pipeline.kafka_source import kafka_fault
from kafka_quota_proxy.pipeline.log_files import fault_of_gz, gz_faults, left_out_words
from kafka_quota_proxy.pipeline.usage_reader import Coarse, Usage, read
from kafka_quota_proxy.pipeline.writing import Output
from tests.pipeline.support import frame, lines, record, rows, write_log


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


def quarantine(output: Output) -> list[dict[str, object]]:
    """Return the malformed lines that were set aside, ordered by their place in the log."""
    found = [
        json.loads(line)
        for path in Path(output.path, "quarantine").glob("*.json")
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    return sorted(found, key=lambda one: (Path(one["source"]).name, one.get("line", 0)))


def counts(usage: Usage) -> tuple[int, int, int, int]:
    """Return the numbers of records, bad lines, broken files and duplicates."""
    assert usage.count == usage.records.count()
    return usage.count, usage.bad_lines, usage.broken_files, usage.duplicates


def test_json_lines_gzip_and_parquet_below_one_directory_are_one_log(
    spark: SparkSession, output: Output, tmp_path: Path
) -> None:
    first, second, third = (
        record(at_s=0),
        record(at_s=1, broker=None, user='ü "}{'),
        record(at_s=2, limit=5.5, connections=3),
    )
    write_log(tmp_path / "log" / "a b.jsonl", [first])
    (tmp_path / "log" / "deep").mkdir()
    (tmp_path / "log" / "deep" / "b.jsonl.gz").write_bytes(gzip.compress(lines([second]).encode()))
    frame(spark, [third]).write.parquet(str(tmp_path / "log" / "day=2026-09-07"))

    usage = read(spark, str(tmp_path / "log"), output)

    assertDataFrameEqual(usage.records, frame(spark, [first, second, third]))
    assert counts(usage) == (3, 0, 0, 0)
    assert usage.words() == []


def test_records_with_and_without_a_resolution_are_one_log(spark: SparkSession, output: Output, tmp_path: Path) -> None:
    proxys, stored = record(at_s=0), record(at_s=1)
    imported = record(at_s=2, interval_ms=60_000, resolution_ms=60_000)
    as_written = {name: value for name, value in proxys.items() if name != "resolution_ms"}
    write_log(tmp_path / "log" / "usage.jsonl", [as_written, imported])
    frame(spark, [stored]).drop("resolution_ms").write.parquet(str(tmp_path / "log" / "older"))

    usage = read(spark, str(tmp_path / "log"), output)

    assertDataFrameEqual(usage.records, frame(spark, [proxys, stored, imported]))
    assert counts(usage) == (3, 0, 0, 0)


def test_one_cluster_of_a_log_has_the_files_in_its_directories(
    spark: SparkSession, output: Output, tmp_path: Path
) -> None:
    for cluster in ("a", "b", "ab"):
        write_log(tmp_path / f"cluster={cluster}" / "deep" / "usage.jsonl", [record(user=cluster)])

    assert [row["user"] for row in read(spark, str(tmp_path), output, cluster="a").records.collect()] == ["a"]
    with pytest.raises(UsageError, match="has no file in a directory cluster=c"):
        read(spark, str(tmp_path), output, cluster="c")


def test_a_bad_line_is_kept_with_its_place_and_does_not_stop_the_job(
    spark: SparkSession, output: Output, tmp_path: Path
) -> None:
    good = lines([record(at_s=at) for at in range(3)]).splitlines()
    without_kind = json.dumps({name: value for name, value in record(at_s=9).items() if name != "kind"})
    path = tmp_path / "usage.jsonl"
    bad = [
        "not json",
        good[0][:40],
        '{"start_ms":"soon"}',
        without_kind,
        lines([record(amount=1.5)]).strip(),
        good[2] + good[1],
        f"[{good[2]}]",
        lines([record(interval_ms=-1)]).strip(),
        lines([record(amount=1e30)]).strip(),
        lines([record(amount=float("nan"))]).strip(),
        lines([record(start_ms=10**17)]).strip(),
    ]
    path.write_text("\n".join([good[0], *bad, "", good[1], good[2]]) + "\n", encoding="utf-8")

    usage = read(spark, str(path), output)

    assert counts(usage) == (3, len(bad), 0, 0)
    found = quarantine(output)
    assert [one["line"] for one in found] == list(range(2, 13))
    assert {one["source"] for one in found} == {str(path)}
    assert [one["text"] for one in found] == bad
    assert "cut off" in str(found[1]["fault"])
    assert found[3]["fault"] == "kind missing"
    assert "whole number" in str(found[4]["fault"])
    assert "more than one" in str(found[5]["fault"])
    assert usage.words() == ["11 bad lines were ignored: see quarantine/"]


@pytest.mark.kafka
def test_the_line_of_a_bad_line_is_right_in_a_file_that_is_read_in_blocks(
    spark: SparkSession, output: Output, tmp_path: Path
) -> None:
    text = lines([record(at_s=at) for at in range(400)]).splitlines()
    text.insert(17, "bad")
    text.insert(333, "worse")
    (tmp_path / "usage.jsonl").write_text("\n".join(text), encoding="utf-8")
    write_log(tmp_path / "other.jsonl", [record(at_s=at, proxy="p2") for at in range(50)])
    spark.conf.set("spark.sql.files.maxPartitionBytes", "20000")
    try:
        usage = read(spark, str(tmp_path), output)
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")

    assert [(one["line"], one["text"]) for one in quarantine(output)] == [(18, "bad"), (334, "worse")]
    assert usage.records.count() == 450


@pytest.mark.kafka
def test_a_truncated_gz_file_is_read_to_its_end_and_named(spark: SparkSession, output: Output, tmp_path: Path) -> None:
    whole = gzip.compress(lines([record(at_s=at, amount=at * 7_919) for at in range(5_000)]).encode())
    write_log(tmp_path / "good.jsonl", [record(proxy="p2")])
    (tmp_path / "truncated.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "damaged.jsonl.gz").write_bytes(whole[:5_000] + b"\xff" * 64 + whole[5_064:])

    usage = read(spark, str(tmp_path), output)

    assert usage.broken_files == 2
    # No record of the damaged file counts, because a damaged amount may look like a valid one.
    records = usage.records.where("proxy = 'p1'")
    assert 1_000 < records.count() < 5_000
    assert records.where(f"amount != (start_ms - {record()['start_ms']}) / 1000 * 7919").isEmpty()
    faults = {Path(str(one["source"])).name: str(one["fault"]) for one in quarantine(output) if "line" not in one}
    assert "too early" in faults["truncated.jsonl.gz"]
    assert "damaged" in faults["damaged.jsonl.gz"]


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_a_gz_file_may_have_members_and_padding(size: int) -> None:
    member = gzip.compress(b"a" * 3_000_000)

    def fault(content: bytes) -> str | None:
        return fault_of_gz(content[at : at + size] for at in range(0, len(content), size))

    assert fault(member + gzip.compress(b"b")) is None
    assert fault(member + b"\0" * 512) is None
    assert fault(b"") is not None
    assert fault(member[:-1]) is not None
    assert fault(member + member[:20]) is not None
    assert fault(member + b"no gzip") is not None


def test_a_gz_file_is_never_in_memory_as_a_whole() -> None:
    inflate, piece = zlib.compressobj(0, wbits=31), b"a" * (1 << 20)

    def pieces() -> Iterator[bytes]:
        for _ in range(200):
            yield inflate.compress(piece)
        yield inflate.flush()

    tracemalloc.start()
    try:
        assert fault_of_gz(pieces()) is None
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_gz_files_that_only_spark_can_open_are_checked_by_their_content() -> None:
    whole = gzip.compress(lines([record()]).encode())
    paths = ["s3a://logs/whole.jsonl.gz", "s3a://logs/cut.jsonl.gz"]
    batch = pd.DataFrame({"path": paths, "source": paths, "content": [whole, whole[:-9]]})

    (found,) = gz_faults(iter([batch]))

    assert found.to_dict("records") == [
        {"fault": "ends too early: its missing part was not read", "text": None, "source": paths[1], "line": None}
    ]


@pytest.mark.kafka
@pytest.mark.parametrize("damage", ["cut", "flipped", "other type"])
def test_unreadable_parquet_is_an_error_that_names_the_file(
    spark: SparkSession, output: Output, tmp_path: Path, damage: str
) -> None:
    log, good = tmp_path / "log", [record(at_s=at, amount=at * 7_919) for at in range(2_000)]
    whole_log = frame(spark, good)
    if damage == "other type":
        whole_log = whole_log.withColumn("amount", F.lit("much"))
    whole_log.coalesce(1).write.option("compression", "none").parquet(str(log))
    (path,) = log.glob("*.parquet")
    whole = path.read_bytes()
    if damage == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif damage == "flipped":
        flipped = bytearray(whole)
        flipped[whole.index((1_000 * 7_919).to_bytes(8, "little"))] ^= 1  # it would look like a valid amount
        path.write_bytes(flipped)
    (log / f".{path.name}.crc").unlink()

    with pytest.raises(PipelineError) as error:
        read(spark, str(log), output)

    assert str(error.value).startswith(f"{path}: cannot be read as Parquet")


@pytest.mark.kafka
def test_a_copied_file_counts_once(spark: SparkSession, output: Output, tmp_path: Path) -> None:
    log = [record(at_s=at, broker=broker) for at in range(5) for broker in (1, None)]
    write_log(tmp_path / "a.jsonl", log)
    write_log(tmp_path / "copy.jsonl", [*log, record(at_s=9)])
    frame(spark, log[:3]).write.parquet(str(tmp_path / "stored"))

    usage = read(spark, str(tmp_path), output)

    assert counts(usage) == (11, 0, 0, 13)
    assert sum(row["amount"] for row in rows(usage.records, "start_ms")) == 11_000
    assert usage.words() == ["13 records came more than once and were counted once"]


def test_records_of_two_listeners_are_not_duplicates(spark: SparkSession, output: Output, tmp_path: Path) -> None:
    write_log(tmp_path / "a.jsonl", [record(kind="connection", listener=name) for name in ("x", "y", None)])

    assert counts(read(spark, str(tmp_path), output)) == (3, 0, 0, 0)


def test_a_part_file_is_skipped(spark: SparkSession, output: Output, tmp_path: Path) -> None:
    write_log(tmp_path / "a.jsonl", [record()])
    write_log(tmp_path / "b.jsonl.part", [record(at_s=1)])

    usage = read(spark, str(tmp_path), output)

    assert counts(usage) == (1, 0, 0, 0)
    assert usage.words() == []


def test_the_case_of_a_file_name_does_not_matter(spark: SparkSession, output: Output, tmp_path: Path) -> None:
    """Hadoop finds the codec of .GZ, too. A damaged one is found as well."""
    for at, name in enumerate(("a.JSONL", "b.Json", "c.NDJSON")):
        write_log(tmp_path / "log" / name, [record(at_s=at)])
    (tmp_path / "log" / "d.jsonl.GZ").write_bytes(gzip.compress(lines([record(at_s=3)]).encode()))
    (tmp_path / "log" / "e.JSONL.gz").write_bytes(gzip.compress(lines([record(at_s=4)]).encode())[:-9])
    frame(spark, [record(at_s=5)]).coalesce(1).write.parquet(str(tmp_path / "stored"))
    (stored,) = (tmp_path / "stored").glob("*.parquet")
    stored.rename(tmp_path / "log" / "f.PARQUET")

    usage = read(spark, str(tmp_path / "log"), output)

    assert {row["start_ms"] for row in usage.records.collect()} >= {
        record(at_s=at)["start_ms"] for at in (0, 1, 2, 3, 5)
    }
    assert usage.words() == ["1 files are damaged or end too early: see quarantine/"]


def test_files_that_are_not_read_are_named(spark: SparkSession, output: Output, tmp_path: Path) -> None:
    """Hadoop finds no records at all in some of them, such as .lz4, and reports nothing."""
    write_log(tmp_path / "a.jsonl", [record()])
    for ending in ("zst", "bz2", "lz4", "xz"):
        (tmp_path / f"b.jsonl.{ending}").write_bytes(b"...")
    for hidden in ("_SUCCESS", ".b.jsonl.zst.crc"):
        (tmp_path / hidden).write_bytes(b"...")

    usage = read(spark, str(tmp_path), output)

    assert counts(usage) == (1, 0, 0, 0)
    names = ", ".join(f"{tmp_path}/b.jsonl.{ending}" for ending in ("bz2", "lz4", "xz", "zst"))
    assert usage.words() == [
        "4 files were not read, because the name does not end in .jsonl, .json or .ndjson (also .gz), or .parquet: "
        f"{names}"
    ]
    assert left_out_words([*usage.left_out, "c.csv", "d.csv"]).endswith(f"{names}, c.csv and 1 more")


@pytest.mark.parametrize("name", ["nothing/here", "", "*.jsonl"])
def test_a_missing_log_is_refused(spark: SparkSession, output: Output, tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"no usage log|no such file"):
        read(spark, f"{tmp_path}/{name}", output)


def test_without_the_connector_the_error_says_how_to_get_it(spark: SparkSession, output: Output) -> None:
    with pytest.raises(UsageError) as refused:
        read(spark, "kafka://127.0.0.1:9092/usage", output)
    # The connector of another version of Spark may not load.
    connector = f"spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.version},"
    assert connector in str(refused.value)
    with pytest.raises(UsageError, match="kafka://HOST:PORT/TOPIC"):
        read(spark, "kafka://127.0.0.1:9092", output)


def test_errors_of_kafkas_client_are_put_in_words() -> None:
    stack = (
        "py4j.protocol.Py4JJavaError: An error occurred while calling o1.parquet.\n"
        ": java.util.concurrent.ExecutionException: org.apache.kafka.common.KafkaException: Failed to create\n"
        "\tat java.base/java.util.concurrent.CompletableFuture.reportGet(CompletableFuture.java:396)\n"
        "Caused by: org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed during it\n"
        "\tat org.apache.kafka.common.security.Any.thing(Any.java:1)\n"
    )

    assert kafka_fault(stack) == "the login was refused: Authentication failed during it"
    assert kafka_fault("Caused by: org.apache.kafka.common.errors.UnsupportedVersionException: no\n") == (
        "UnsupportedVersionException: no"
    )
    assert kafka_fault("java.lang.OutOfMemoryError: Java heap space") is None
