"""``kafka-quota-pipeline ingest`` follows the usage log of a cluster, and adds its records to a lake.

The command runs until SIGTERM or Ctrl-C, or with ``--once`` until it has taken the existing records. After a crash it
continues where it was. Each record gets into the lake once.
"""

import argparse
import sys
from dataclasses import dataclass
from threading import Event
from typing import Any, Final
from urllib.parse import urlsplit

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from kafka_quota_proxy.pipeline import file_system
from kafka_quota_proxy.pipeline.commands.execution import (
    cause_of,
    kafka_options_of,
    line_counts,
    say,
    stop_requested,
)
from kafka_quota_proxy.pipeline.errors import PipelineError, UsageError
from kafka_quota_proxy.pipeline.lake import Lake, batch_writer, job_of
from kafka_quota_proxy.pipeline.log_files import left_out_of_stream
from kafka_quota_proxy.pipeline.parsing import parsed
from kafka_quota_proxy.pipeline.session import GATEWAY_GONE, log_level, session
from kafka_quota_proxy.pipeline.usage_reader import check_apart, followed

_POLL_S: Final = 1


def execute(args: argparse.Namespace) -> int:
    """Run the stream until it ends, and return the exit status."""
    if Lake.at(args.usage) is not None:
        raise UsageError(f"--usage {args.usage}: is a lake; ingest reads the log itself")
    check_apart(args.usage, "--lake", args.lake)
    lake = Lake.opened(args.lake)
    spark = session(master=args.master, conf=dict(args.conf))
    if not args.usage.startswith("kafka://"):
        words = left_out_of_stream(spark, args.usage)  # it raises UsageError before a lake is created
        if words:
            say(words)
    lake.create()
    rows = parsed(followed(spark, args.usage, kafka=kafka_options_of(args), skips_damage=True), is_placed=True)
    # Failures arrive as exceptions and are reported in one sentence. Spark would also print a stack trace.
    log_level(spark, "FATAL")
    job = job_of(_place(args.usage), args.cluster)
    writer = rows.observe("read", *line_counts()).writeStream
    writer = writer.foreachBatch(batch_writer(lake, args.cluster, job))
    writer = writer.option("checkpointLocation", lake.checkpoint(job))
    counts = _Counts()
    with lake.alone(args.cluster), stop_requested() as end:
        say(f"{'reading' if args.once else 'following'} {args.usage}")
        trigger = (
            writer.trigger(availableNow=True)
            if args.once
            else writer.trigger(processingTime=f"{args.every} milliseconds")
        )
        _run(trigger.start(), counts, end)
    say(counts.words("ended"))
    sys.stdout.write(f"{args.lake}\n")
    return 0


def _place(usage: str) -> str:
    """Return the name of a log, which stays the same when the servers of a topic change."""
    return f"kafka:{urlsplit(usage).path}" if usage.startswith("kafka://") else file_system.absolute(usage)


@dataclass(slots=True)
class _Counts:
    """Counts the lines of batches."""

    lines: int = 0
    bad: int = 0
    bad_one: str | None = None
    reported_until: str = ""  # the timestamp of the last progress that was counted

    def report(self, query: StreamingQuery) -> None:
        """Count the batches that have ended since the last call, and say what they contained."""
        # Spark keeps the last hundred progress reports, which are more than arrive between two calls.
        for progress in query.recentProgress:
            if progress["timestamp"] > self.reported_until:
                self.reported_until = progress["timestamp"]
                self._add(progress)

    def _add(self, progress: Any) -> None:  # noqa: ANN401  (PySpark's, without types)
        read = progress["observedMetrics"].get("read")
        if read is not None and read["lines"]:
            batch = _Counts(read["lines"], read["bad"], read["bad_one"])
            say(batch.words(f"batch {progress['batchId']}"))
            self.lines += batch.lines
            self.bad += batch.bad
            self.bad_one = batch.bad_one or self.bad_one

    def words(self, when: str) -> str:
        """Return the counts as a line of text that begins with ``when``."""
        bad = f"; {self.bad:,} bad: see quarantine/, such as {self.bad_one}" if self.bad else ""
        return f"{when}: {self.lines:,} lines{bad}"


def _run(query: StreamingQuery, counts: _Counts, end: Event) -> None:
    """Wait until the query ends, or stop it when ``end`` is set. Raises PipelineError if the query failed."""
    try:
        while not end.is_set() and not query.awaitTermination(_POLL_S):
            counts.report(query)
        counts.report(query)
        if query.isActive:
            # A batch that is stopped in the middle is repeated at the next start.
            query.stop()
    except StreamingQueryException as error:
        raise PipelineError(f"{cause_of(error)}\nStart it again to continue") from error
    except (PySparkException, *GATEWAY_GONE):
        # A signal to the process group also ends the JVM.
        if not end.is_set():
            raise
