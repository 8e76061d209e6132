"""Delivers alerts exactly once, to files; ``topic_delivery`` to a Kafka topic. ``writing`` writes tables.

A stream numbers its batches. After a crash it repeats the last one with the same rows. A delivery writes a batch and
its number atomically, and skips a batch whose number it finds, so a process may be killed at any time. Decision 0018.

* ``FileDelivery``   a file for each batch, which appears by a rename under the batch's name
* ``PrintDelivery``  prints, for people; not exactly once
"""

import sys
from abc import ABC, abstractmethod

from pyspark.sql import DataFrame, SparkSession

from kafka_quota_proxy.pipeline.errors import PipelineError
from kafka_quota_proxy.pipeline.files import Files


class Delivery(ABC):
    """The destination of alerts."""

    def begin(self) -> None:  # noqa: B027 - not every destination has something to begin
        """Connect, and end the unfinished work of an earlier process.

        Raises:
            PipelineError: the destination cannot be reached.
        """

    @abstractmethod
    def deliver(self, rows: DataFrame, batch: int) -> None:
        """Write the ``key``, ``value`` and ``start_ms`` of a batch unless its number is written already.

        All of ``rows`` is evaluated anyway, for the stream's state.

        Raises:
            PipelineError: the batch could not be written; another process has to retry it.
        """

    def end(self) -> None:  # noqa: B027
        """Close the connections."""


class FileDelivery(Delivery):
    """Writes JSON Lines: ``OUT/alerts-JOB-BATCH.jsonl``, and nothing for a batch without alerts."""

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
        hidden, target = f"{self._out}/.{name}", f"{self._out}/{name}.jsonl"
        _ordered(rows).write.mode("overwrite").text(hidden)
        parts = [f"{hidden}/{name}" for name in self._files.names(hidden) if name.startswith("part-")]
        if len(parts) > 1:
            raise PipelineError(f"{hidden} has {len(parts)} files where there must be one")
        if parts and not self._files.exists(target) and not self._files.is_blank(parts[0]):
            self._files.rename(parts[0], target)
        self._files.delete(hidden)


class PrintDelivery(Delivery):
    """Writes JSON Lines to stdout. A stream without a checkpoint never repeats a batch."""

    def deliver(self, rows: DataFrame, batch: int) -> None:
        """Print a batch, in the order of its windows."""
        del batch
        for row in _ordered(rows).toLocalIterator():
            sys.stdout.write(f"{row['value']}\n")
        sys.stdout.flush()


def _ordered(rows: DataFrame) -> DataFrame:
    """Return values by time, in one partition: a global sort would evaluate the stream's state twice."""
    return rows.repartition(1).sortWithinPartitions("start_ms", "value").select("value")
