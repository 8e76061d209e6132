"""Lines of the log are parsed into records, in batches of a few rows."""

from pyspark.sql import SparkSession

from kafka_quota_proxy.pipeline.parsing import duplicate_keys, parsed, without_duplicates
from tests.pipeline.support import frame, lines, record, rows


def test_an_unknown_field_and_an_unknown_kind_pass(spark: SparkSession) -> None:
    given = [record(kind="telepathy") | {"mood": "good {}"}]
    text = spark.createDataFrame(
        [(lines(given).strip(), "f", 0, 0)], "value string, source string, block long, position long"
    )

    (row,) = rows(parsed(text), "start_ms")

    assert (row["fault"], row["kind"]) == (None, "telepathy")


def test_time_of_requests_may_have_a_fraction_and_loses_it(spark: SparkSession) -> None:
    given = [record(kind="request", amount=12.6)]
    text = spark.createDataFrame(
        [(lines(given).strip(), "f", 0, 0)], "value string, source string, block long, position long"
    )

    (row,) = rows(parsed(text), "start_ms")

    assert (row["fault"], row["amount"]) == (None, 13)


def test_greatest_of_differing_copies_is_kept(spark: SparkSession) -> None:
    copies = [record(amount=amount) for amount in (5, 9, 7)]
    for given in (copies, copies[::-1]):
        records = frame(spark, [*given, record(at_s=1)])

        kept = rows(without_duplicates(records, duplicate_keys(records)), "start_ms")

        assert [row["amount"] for row in kept] == [9, 1_000]
