"""Starts the Spark session.

The same code runs on a laptop, on a cluster with ``--master``, and under ``spark-submit``.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

import pandas as pd
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

# What is raised if Spark cannot carry out a step.
SPARK_FAULTS: Final = (PySparkException, Py4JJavaError)
_ALWAYS: Final = {
    "spark.sql.session.timeZone": "UTC",
    # An impossible cast is an error and not a null, except in functions with a name that begins with try_.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # This is the default. It merges small partitions after a shuffle, and splits a partition that one client fills.
    "spark.sql.adaptive.enabled": "true",
}
_LOCAL: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    # With this number, each partition of 10^8 rows is sorted in memory. Adaptive execution merges those of small data.
    "spark.sql.shuffle.partitions": "64",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
}
# With few records, a command spends most of its time on planning, on compiling plans and on starting tasks. Without
# adaptive execution, a query with several shuffles is one job.
_SMALL_RECORDS: Final = 200_000
_SMALL: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
}
# A process that lives for seconds would spend much of its time on optimising code that it hardly runs again.
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Spark's messages below the level ERROR do not help a user.
_LOG_LEVEL: Final = "ERROR"


def session(
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    is_short_lived: bool = False,
) -> SparkSession:
    """Return the running Spark session, or start one.

    Without ``master``, Spark runs where spark-submit says, or else on this machine (``local[*]``). ``conf`` overrides
    the default settings of this module. With ``is_short_lived``, Spark on this
    machine starts sooner, and is slower on a large log. If neither ``master`` nor ``conf`` is given, a running session
    keeps its settings, apart from the few that all commands need.
    """
    active = SparkSession.getActiveSession()
    if active is not None and master is None and not conf:
        for key, value in _ALWAYS.items():
            active.conf.set(key, value)
        return active
    # spark-submit has started a JVM already, and says where it listens.
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if master is None and not is_submitted:
        master = "local[*]"
    settings = dict(_ALWAYS)
    if master is not None and master.startswith("local"):
        # By default workers take the first python3 on the PATH, which may not have pandas.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= _LOCAL
        if is_short_lived and _JAVA_OPTIONS not in (conf or {}):
            settings[_JAVA_OPTIONS] = _SHORT_LIVED
    settings["spark.ui.showConsoleProgress"] = str(sys.stderr.isatty()).lower()
    settings |= dict(conf or {})
    builder = SparkSession.builder.appName("kafka-quota-pipeline").config(map=dict(settings))
    if master is not None:
        builder = builder.master(master)
    spark = builder.getOrCreate()
    log_level(spark, _LOG_LEVEL)
    return spark


def log_level(spark: SparkSession, level: str) -> None:
    """Set which messages Spark writes to stderr."""
    spark.sparkContext.setLogLevel(level)


def local_frame(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: str | StructType) -> DataFrame:
    """Return rows of this process as a DataFrame.

    ``SparkSession.createDataFrame`` would start a Python process of Spark to read a list.
    """
    fields = cast(StructType, StructType.fromDDL(schema)) if isinstance(schema, str) else schema
    return spark.createDataFrame(pd.DataFrame(rows, columns=fields.names, dtype=object), fields)


def is_small(records: int) -> bool:
    """Return whether a log has so few records that Spark's work for each step takes longer than the step itself."""
    return records <= _SMALL_RECORDS


def fit(spark: SparkSession, records: int) -> None:
    """Change the settings of a session for the number of records that the next steps read.

    A setting that differs from its default was chosen by the user, and stays.
    """
    defaults = {"spark.sql.shuffle.partitions": {"200", _LOCAL["spark.sql.shuffle.partitions"]}}
    for key, value in _SMALL.items() if is_small(records) else ():
        if spark.conf.get(key) in defaults.get(key, {"true"}):
            spark.conf.set(key, value)


@contextmanager
def fitted(spark: SparkSession) -> Iterator[None]:
    """Restore at the end of the block the settings that ``fit`` changes."""
    before = {key: spark.conf.get(key) or "" for key in _SMALL}
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)


@contextmanager
def silenced(spark: SparkSession) -> Iterator[None]:
    """Turn off Spark's log during the block, for a caller that reports each failure in one sentence."""
    log_level(spark, "OFF")
    try:
        yield
    finally:
        log_level(spark, _LOG_LEVEL)
