"""Provides what all commands share: starting Spark, writing results, reading the usage log, and progress on stderr."""

import argparse
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Event
from typing import Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from kafka_quota_proxy.pipeline import file_system
from kafka_quota_proxy.pipeline.errors import UsageError
from kafka_quota_proxy.pipeline.kafka_source import kafka_options
from kafka_quota_proxy.pipeline.lake import Lake
from kafka_quota_proxy.pipeline.session import fit, fitted, session
from kafka_quota_proxy.pipeline.time_span import TimeSpan
from kafka_quota_proxy.pipeline.usage_reader import Usage, read, stored_usage
from kafka_quota_proxy.pipeline.writing import Output, passing, staged

_REPORT_EVERY_S: Final = 10.0
# The largest log, as JSON Lines, of which a command needs seconds. Compressed files have these factors.
QUICK_BYTES: Final = 64 << 20
_COMPRESSED: Final = {".parquet": 25, ".gz": 10}
_FAILED: Final = "terminated with exception: "


@contextmanager
def running(args: argparse.Namespace) -> Iterator[tuple[SparkSession, Output]]:
    """Yield the Spark session and the ``Output`` to which a command writes its results.

    If ``--out`` is given and the command succeeds, the results become the directory ``--out`` at the end of the block.
    Otherwise they are deleted.
    """
    if "usage" in args:
        Lake.at(args.usage)  # a place that cannot be reached is an error before Spark has started
    spark = session(
        master=args.master,
        conf=dict(args.conf),
        is_short_lived="usage" in args and is_quickly_read(args.usage),
    )
    place = passing() if args.out is None else staged(args.out, is_log=args.command == "simulate")
    with fitted(spark), place as output, progress_lines(spark):
        yield spark, output


def is_quickly_read(usage: str) -> bool:
    """Return whether a usage log is on this machine and so small that a command ends within seconds."""
    total = 0
    for name, size in file_system.local_sizes(usage):
        total += size * next((factor for ending, factor in _COMPRESSED.items() if name.lower().endswith(ending)), 1)
        if total > QUICK_BYTES:
            return False
    return total > 0


def usage_of(args: argparse.Namespace, spark: SparkSession, output: Output, *, span: TimeSpan | None = None) -> Usage:
    """Read the usage log that ``--usage`` names, and report on stderr what was left out.

    Only records that start within ``span`` are returned, which is ``span_of(args)`` by default.
    """
    say(f"reading {args.usage}")
    span = span_of(args) if span is None else span
    lake = Lake.at(args.usage)
    if lake is not None:
        # A lake has no bad lines and no duplicates.
        usage = stored_usage(lake.records(spark, span, args.cluster))
        fit(spark, usage.count)
        for words in usage.words():
            say(words)
        return usage
    check_cluster(args)
    usage = read(spark, args.usage, output, kafka=kafka_options_of(args), cluster=args.cluster)
    for directory in usage.passed_over:
        say(f"{directory} has results of a command and was not read")
    for words in usage.words():
        say(words)
    if args.out is None and (usage.bad_lines or usage.broken_files):
        say("quarantine/ is kept with --out DIR")
    return usage if span.is_all else replace(usage, records=usage.records.where(span.starts_within()))


def span_of(args: argparse.Namespace) -> TimeSpan:
    """Return the time span that ``--from`` and ``--until`` name. Raises UsageError if it is empty."""
    span = TimeSpan.local(args.begin, args.end, args.timezone)
    if span.from_ms is not None and span.until_ms is not None and span.until_ms <= span.from_ms:
        raise UsageError(f"--until {args.end.isoformat()}: is not after --from {args.begin.isoformat()}")
    return span


def check_cluster(args: argparse.Namespace) -> None:
    """Check that ``--cluster`` can be told from ``--usage``, which is no lake. Raises UsageError if it cannot."""
    if args.cluster is not None and args.usage.startswith("kafka://"):
        raise UsageError(
            f"--cluster {args.cluster}: the records of a topic do not name their cluster; name the topic of this "
            "cluster, or bring each topic into a lake with: ingest --usage kafka://… --lake DIR --cluster NAME"
        )


def kafka_options_of(args: argparse.Namespace) -> dict[str, str]:
    """Return the properties in the file that ``--kafka-config`` names as options of Spark's Kafka source and sink."""
    return kafka_options(args.kafka_config) if args.kafka_config else {}


def say(words: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()


@contextmanager
def progress_lines(spark: SparkSession, *, every_s: float = _REPORT_EVERY_S) -> Iterator[None]:
    """Write the progress of Spark's current step to stderr, unless Spark shows its own progress bar on a terminal."""
    if sys.stderr.isatty():
        yield
        return
    ended = threading.Event()

    def report() -> None:
        last, tracker = "", spark.sparkContext.statusTracker()
        while not ended.wait(every_s):
            stages = [stage for at in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(at)) is not None]
            done, tasks = sum(one.numCompletedTasks for one in stages), sum(one.numTasks for one in stages)
            words = f"  {done} of {tasks} tasks of this step are done"
            if tasks and words != last:
                say(words)
                last = words

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def cause_of(error: StreamingQueryException) -> str:
    """Return one line that says why a stream ended."""
    text = str(error)
    return text.partition(_FAILED)[2].partition("\n")[0] or text.partition("\n")[0]


def line_counts() -> list[Column]:
    """Return Spark aggregations over the rows of ``parsing.parsed``, for messages about bad lines.

    They compute the number of lines, the number of bad lines, and one bad line as an example.
    """
    words = F.concat_ws(": ", F.concat_ws(" at ", "source", "position"), "fault")
    bad_one = F.max(F.when(F.col("fault").isNotNull(), words))
    return [F.count("*").alias("lines"), F.count("fault").alias("bad"), bad_one.alias("bad_one")]


@contextmanager
def stop_requested() -> Iterator[Event]:
    """Yield an event that is set when SIGTERM or Ctrl-C arrives during the block."""
    end = Event()
    before = {number: signal.signal(number, lambda *_: end.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield end
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
