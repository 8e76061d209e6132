"""Delivers alerts exactly once, to files; ``topic_delivery`` to a Kafka topic. ``writing`` writes tables.

A stream numbers its batches. After a crash it repeats the last one with the same rows. A delivery writes a batch and
its number atomically, and skips a batch whose number it finds, so a process may be killed at any time. Decision 0018.

* ``FileDelivery``   a file for each batch, which appears by a rename under the batch's name
* ``PrintDelivery``  prints, for people; not exactly once
"""

import sys
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from kafka_quota_proxy.pipeline.errors import PipelineError
from kafka_quota_proxy.pipeline.files import Files


class Delivery(Protocol):
    """The destination of alerts."""

    def begin(self) -> None:
        """Connect, and end the unfinished work of an earlier process.

        Raises:
            PipelineError: the destination cannot be reached.
        """

    def deliver(self, rows: DataFrame, batch: int) -> None:
        """Write a batch unless it is written already. All of ``rows`` is evaluated anyway, for the stream's state.

        Args:
            rows: ``key``, ``value``, ``start_ms``.
            batch: the number of the batch.

        Raises:
            PipelineError: the batch could not be written; another process has to retry it.
        """

    def end(self) -> None:
        """Close the connections."""


class FileDelivery:
    """Writes JSON Lines: ``OUT/alerts-JOB-BATCH.jsonl``, and nothing for a batch without alerts.

    Args:
        spark: the session.
        out: the directory.
        job: the part of file names that identifies the job.
    """

    def __init__(self, spark: SparkSession, out: str, job: str) -> None:
        self._files = Files(spark)
        self._out = out.rstrip("/") or "/"
        self._job = job

    def begin(self) -> None:
        """Create the directory."""
        self._files.make_directory(self._out)

    def deliver(self, rows: DataFrame, batch: int) -> None:
        """Write a hidden file, then rename it."""
        name = f"alerts-{self._job}-{batch:010}"
        beside, target = f"{self._out}/.{name}", f"{self._out}/{name}.jsonl"
        # Sorted for people; one file, so that the batch appears as a whole.
        rows.repartition(1).sortWithinPartitions("start_ms", "value").select("value").write.mode("overwrite").text(
            beside
        )
        parts = [part for part in self._files.names(beside) if part.startswith("part-")]
        if len(parts) > 1:
            raise PipelineError(f"{beside} has {len(parts)} files where there must be one")
        if parts and not self._files.exists(target) and not self._files.is_blank(f"{beside}/{parts[0]}"):
            self._files.rename(f"{beside}/{parts[0]}", target)
        self._files.delete(beside)

    def end(self) -> None:
        """Do nothing."""


class PrintDelivery:
    """Writes JSON Lines to stdout. A stream without a checkpoint never repeats a batch."""

    def begin(self) -> None:
        """Do nothing."""

    def deliver(self, rows: DataFrame, batch: int) -> None:
        """Print a batch, in the order of its windows."""
        del batch
        # One partition, which is evaluated once: a global sort would evaluate the stream's state twice.
        ordered = rows.repartition(1).sortWithinPartitions("start_ms", "value").select("value")
        for row in ordered.toLocalIterator():
            sys.stdout.write(f"{row['value']}\n")
        sys.stdout.flush()

    def end(self) -> None:
        """Do nothing."""
