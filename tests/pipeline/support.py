"""Builds records of the usage log. A test names only the values that matter."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from kafka_quota_proxy.pipeline.record import COLUMNS, RECORD

# A Spark process that lives for a minute spends half of its time on compiling code that it hardly runs again.
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

START_MS = 1_788_739_200_000  # Monday, 7 September 2026, 00:00 UTC


def record(**given: Any) -> dict[str, Any]:  # noqa: ANN401  (values of any column)
    """Return a record. ``at_s`` is the start of its interval, in seconds after ``START_MS``."""
    at_s = given.pop("at_s", 0)
    return {
        "start_ms": START_MS + int(at_s * 1_000),
        "interval_ms": 1_000,
        "proxy": "p1",
        "broker": 1,
        "kind": "produce",
        "user": "alice",
        "client_id": "etl",
        "listener": None,
        "rule_user": None,
        "rule_client_id": None,
        "limit": None,
        "amount": 1_000,
        "requests": 1,
        "throttled_requests": 0,
        "throttle_time_ms": 0,
        "enforced": True,
        "connections": None,
        "resolution_ms": None,
    } | given


def frame(spark: SparkSession, records: Iterable[dict[str, Any]]) -> DataFrame:
    """Return the records as a Spark data frame."""
    return spark.createDataFrame([tuple(one[name] for name in COLUMNS) for one in records], RECORD)


def lines(records: Iterable[dict[str, Any]]) -> str:
    """Return the records as JSON lines, as the proxy writes them."""
    return "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in records)


def write_log(path: Path, records: Iterable[dict[str, Any]]) -> Path:
    """Write the records to a file of the usage log, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(lines(records), encoding="utf-8")
    return path


def rows(frame: DataFrame, *order: str) -> list[dict[str, Any]]:
    """Return the rows of a small data frame, sorted by the columns ``order``."""
    return [row.asDict(recursive=True) for row in (frame.orderBy(*order) if order else frame).collect()]
