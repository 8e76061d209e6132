"""``kafka-quota-pipeline alerts`` follows the usage log, and reports each quota whose use is over its limit or near it.

The command runs until SIGTERM or Ctrl-C, or with ``--once`` until it has read the existing records. After a crash it
continues from ``--checkpoint``. Without ``--to`` and ``--out`` it prints the alerts of new records, and keeps no
checkpoint.
"""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Event, Lock
from typing import Any, Final
from urllib.parse import urlsplit

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from kafka_quota_proxy.config.model import UsageFiles
from kafka_quota_proxy.pipeline.alerts import alerts, encoded, marked_ahead, once
from kafka_quota_proxy.pipeline.checkpoint import Quarantine, bad_lines, job_of, spark_part
from kafka_quota_proxy.pipeline.commands.execution import (
    cause_of,
    check_cluster,
    kafka_options_of,
    line_counts,
    say,
    span_of,
    stop_requested,
)
from kafka_quota_proxy.pipeline.delivery import Delivery, FileDelivery, PrintDelivery, TopicDelivery
from kafka_quota_proxy.pipeline.errors import PipelineError, UsageError
from kafka_quota_proxy.pipeline.kafka_source import topic
from kafka_quota_proxy.pipeline.lake import Lake
from kafka_quota_proxy.pipeline.log_files import left_out_of_stream
from kafka_quota_proxy.pipeline.parsing import parsed
from kafka_quota_proxy.pipeline.session import GATEWAY_GONE, log_level, session
from kafka_quota_proxy.pipeline.usage_reader import check_apart, followed

# Each partition of the state writes a file or two per batch, and a bucket has a few hundred bytes. So on one machine,
# more partitions would cost more than they help. A checkpoint keeps this setting.
_STATE: Final = {"spark.sql.shuffle.partitions": "4"}
_POLL_S: Final = 0.5
_LATE_MS: Final = 120_000


def execute(args: argparse.Namespace) -> int:
    """Run the stream until it ends, and return the exit status."""
    _check(args)
    if args.late is None:
        # A proxy shows the records of a file when the file is complete.
        args.late = _LATE_MS + (0 if args.usage.startswith("kafka://") else UsageFiles(directory="").rotate_interval_ms)
    spark = session(master=args.master, conf=_STATE | dict(args.conf))
    # Failures arrive as exceptions and are reported in one sentence. Spark would also print a stack trace.
    log_level(spark, "FATAL")
    kafka = kafka_options_of(args)
    for name, place in (("--out", args.out), ("--checkpoint", args.checkpoint)):
        if place:
            check_apart(args.usage, name, place)
    lines = _lines(spark, args, kafka)
    delivery = _delivery(spark, args, kafka)
    quarantine = Quarantine(f"{args.checkpoint.rstrip('/')}/quarantine") if args.checkpoint else None
    stream = _Stream(delivery, quarantine, _BatchCounts())
    frame = encoded(_found(lines, args))
    with stop_requested() as end:
        writer = frame.writeStream.foreachBatch(stream.deliver)
        if args.checkpoint is not None:
            writer = writer.option("checkpointLocation", spark_part(args.checkpoint))
        trigger = (
            writer.trigger(availableNow=True)
            if args.once
            else writer.trigger(processingTime=f"{args.every} milliseconds")
        )
        say(f"following {args.usage}" if not args.once else f"reading {args.usage}")
        stream.run(trigger.start(), end)
    say(stream.counts.words("ended"))
    if not _is_printed(args):
        sys.stdout.write(f"{args.to or args.out}\n")
    return 0


def _is_printed(args: argparse.Namespace) -> bool:
    return args.to is None and args.out is None


def _check(args: argparse.Namespace) -> None:
    if Lake.at(args.usage) is not None:
        raise UsageError(f"--usage {args.usage}: is a lake; alerts follows the log itself")
    check_cluster(args)
    span_of(args)
    if not _is_printed(args) and args.checkpoint is None:
        raise UsageError(
            f"alerts {'--to' if args.to else '--out'} needs --checkpoint DIR: a directory of this job's own, in which "
            "it stores its progress, so that no alert is lost after a crash"
        )
    if _is_printed(args) and args.checkpoint is not None:
        raise UsageError("--checkpoint goes with --to or --out: the progress of printed alerts is not stored")


def _lines(spark: SparkSession, args: argparse.Namespace, kafka: Mapping[str, str]) -> DataFrame:
    # A topic may have weeks of records, so alerts are printed for new records only.
    if _is_printed(args) and not args.once and args.usage.startswith("kafka://"):
        return topic(spark, args.usage, kafka=kafka, is_stream=True, is_new_only=True)
    lines = followed(spark, args.usage, kafka=kafka)
    if not args.usage.startswith("kafka://") and (words := left_out_of_stream(spark, args.usage)):
        say(words)
    return lines if args.cluster is None else lines.where(F.col("source").contains(f"/cluster={args.cluster}/"))


def _settings(args: argparse.Namespace) -> dict[str, str]:
    # During a job, the servers of an address may change, but the topic must not.
    def name(place: str) -> str:
        return urlsplit(place).path if place.startswith("kafka://") else place.rstrip("/")

    place = {"--to": name(args.to)} if args.to else {"--out": name(args.out)}
    times = {"--window": f"{args.window}ms", "--late": f"{args.late}ms"}
    return {"--usage": name(args.usage), **place, **times}


def _delivery(spark: SparkSession, args: argparse.Namespace, kafka: Mapping[str, str]) -> Delivery:
    if _is_printed(args):
        return PrintDelivery()
    job = job_of(args.checkpoint, _settings(args))
    return TopicDelivery(spark, args.to, kafka) if args.to else FileDelivery(args.out, job)


def _found(lines: DataFrame, args: argparse.Namespace) -> DataFrame:
    rows = marked_ahead(parsed(lines), F.current_timestamp(), late_ms=args.late)
    rows = rows.observe(
        "read",
        *line_counts(),
        bad_lines().alias("bad_lines"),
        F.count_if("is_ahead").alias("ahead"),
        F.max(F.when(F.col("is_ahead"), F.col("proxy"))).alias("ahead_one"),
    )
    wanted = rows.where("fault IS NULL AND NOT is_ahead").where(span_of(args).starts_within())
    records = once(wanted, window_ms=args.window, late_ms=args.late)
    found = alerts(records, window_ms=args.window, near=args.near)
    return found.observe("found", F.count("*").alias("alerts"))


@dataclass(slots=True)
class _BatchCounts:
    """Counts the lines and alerts of batches. Lines that were left out are also counted by reason."""

    lines: int = 0
    alerts: int = 0
    bad: int = 0
    ahead: int = 0
    twice: int = 0
    late: int = 0
    bad_one: str | None = None
    ahead_one: str | None = None

    def add(self, progress: Any) -> None:  # noqa: ANN401  (PySpark's, without types)
        """Add the counts of a batch, which Spark's progress report contains."""
        observed = progress["observedMetrics"]
        if "read" in observed:
            read = observed["read"]
            self.lines += read["lines"]
            self.bad += read["bad"]
            self.ahead += read["ahead"]
            self.bad_one = read["bad_one"] or self.bad_one
            self.ahead_one = read["ahead_one"] or self.ahead_one
        if "found" in observed:
            self.alerts += observed["found"]["alerts"]
        for operator in progress["stateOperators"]:
            # The window operator that follows counts groups, and never drops a row that this operator passes.
            if operator["operatorName"] == "dedupe":
                self.late += operator["numRowsDroppedByWatermark"]
                self.twice += operator["customMetrics"].get("numDroppedDuplicateRows", 0)

    def words(self, when: str) -> str:
        """Return the counts as a line of text that begins with ``when``."""
        left_out = [
            (self.late, "too late (a longer --late keeps more)"),
            (self.twice, "more than once"),
            (self.ahead, f"from the future (look at the clock of {self.ahead_one})"),
            (self.bad, f"bad, such as {self.bad_one}"),
        ]
        parts = [f"{count:,} {what}" for count, what in left_out if count]
        said = f"{when}: {self.lines:,} lines, {self.alerts:,} alerts"
        return f"{said}; left out: {', '.join(parts)}" if parts else said


class _Stream:
    """Delivers the alerts of a Spark streaming query, batch by batch, and watches the query for errors.

    Spark calls ``deliver`` in a thread of its own, while ``run`` waits in the main thread.
    """

    def __init__(self, delivery: Delivery, quarantine: Quarantine | None, counts: _BatchCounts) -> None:
        self.counts = counts
        self._delivery = delivery
        self._quarantine = quarantine
        self._fault: Exception | None = None
        self._is_ending = False
        self._delivering = Lock()
        self._reported_until = ""  # the timestamp of the last reported progress

    def deliver(self, rows: DataFrame, batch: int) -> None:
        """Deliver a batch of alerts. If the stream is ending, raise InterruptedError instead."""
        with self._delivering:
            if self._is_ending:
                raise InterruptedError
            try:
                self._delivery.deliver(rows, batch)
            except (PipelineError, BrokenPipeError) as fault:
                self._fault = fault
                raise

    def run(self, query: StreamingQuery, end: Event) -> None:
        """Wait until the query ends, or stop it when ``end`` is set.

        Raises PipelineError if the query failed, and BrokenPipeError if the reader of stdout is gone.
        """
        try:
            while not end.is_set() and not query.awaitTermination(_POLL_S):  # type: ignore[arg-type]  # (or part of a second)
                self._report(query)
            if query.isActive:
                # The current batch is not interrupted. The next start could repeat it, but Spark would log an error.
                with self._delivering:
                    self._is_ending = True
                query.stop()
            self._report(query)
        except StreamingQueryException as error:
            raise self._fault or PipelineError(_sentence(error)) from error
        except GATEWAY_GONE:
            # A signal to the process group also ends the JVM.
            if not end.is_set():
                raise

    def _report(self, query: StreamingQuery) -> None:
        last = query.lastProgress
        if last is None or last["timestamp"] == self._reported_until:
            return
        # Spark keeps the last hundred progress reports, which are more than arrive between two calls.
        for progress in query.recentProgress:
            if progress["timestamp"] > self._reported_until:
                batch = _BatchCounts()
                batch.add(progress)
                self.counts.add(progress)
                if self._quarantine is not None and batch.bad:
                    self._quarantine.keep(progress["batchId"], progress["observedMetrics"]["read"]["bad_lines"])
                if batch.lines or batch.alerts:
                    until = progress["eventTime"].get("max") or progress["eventTime"].get("watermark", "")
                    say(batch.words(f"{until} batch {progress['batchId']}"))
        self._reported_until = last["timestamp"]


def _sentence(error: StreamingQueryException) -> str:
    return f"{cause_of(error)}\nStart it again with the same --checkpoint to continue"
