"""The sums of a lake are those of its records, whether they are ready or not."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from kafka_quota_proxy.pipeline.lake import Lake
from kafka_quota_proxy.pipeline.lake_rollup import days, refresh, sums
from kafka_quota_proxy.pipeline.rollup import broker_minutes, byte_usage, hours, merged_rates, rates
from kafka_quota_proxy.pipeline.time_span import TimeSpan, utc_day
from tests.pipeline.support import frame, record

TABLES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "rates": rates,
    "hours": hours,
    "broker_minutes": broker_minutes,
    "days": days,
}


@pytest.mark.kafka
@pytest.mark.parametrize("is_late", [False, True])
def test_sums_are_those_of_the_records(spark: SparkSession, tmp_path: Path, *, is_late: bool) -> None:
    """With ``is_late``, one of the days gets a record after its sums were computed."""
    lake = Lake.opened(str(tmp_path / "lake"), None)
    lake.create(spark)
    # Two clusters whose brokers have the same numbers, and two brokers in the same hour.
    log = [record(at_s=at * 5_000, broker=1 + at % 2, amount=1_000 + at, limit=9.0 + at) for at in range(40)]
    for cluster in ("orders", "logs"):
        lake.append(frame(spark, log).withColumn("day", utc_day()), cluster)
        assert refresh(spark, lake, cluster) == len(log)
    if is_late:
        lake.append(frame(spark, [record(at_s=1, client_id="late")]).withColumn("day", utc_day()), "orders")

    found = sums(spark, lake, TimeSpan(), None)

    usage = byte_usage(lake.records(spark))
    assert found.records == 2 * len(log) + is_late
    for name, table in TABLES.items():
        stored: DataFrame = getattr(found, name)
        of_parts = {"rates": merged_rates}.get(name, lambda frame: frame)
        if name == "days":
            stored = stored.groupBy("kind", "user", "client_id", "start_ms").sum("amount", "requests")
            stored = stored.toDF(*table(usage).columns)
        expected = table(usage)
        assertDataFrameEqual(of_parts(stored).select(*expected.columns), expected)
