"""Delivers the alerts of a stream to files or to stdout. The module ``topic_delivery`` writes them to a Kafka topic.

Files and topics receive each alert exactly once. A stream numbers its batches, and after a crash it repeats the last
batch with the same rows. A delivery writes a batch together with its number, in one atomic step, and skips a batch that
is written already. So a process may be killed at any time without losing or repeating an alert (decision 0018).
"""

import sys
from abc import ABC, abstractmethod

from pyspark.sql import DataFrame

from kafka_quota_proxy.pipeline import file_system
from kafka_quota_proxy.pipeline.errors import PipelineError


class Delivery(ABC):
    """A destination to which the alerts of a stream are written: files, stdout or a Kafka topic."""

    def begin(self) -> None:  # noqa: B027 - not every destination has something to begin
        """Connect to the destination, and finish or undo what an earlier process has left unfinished.

        Raises PipelineError if that fails.
        """

    @abstractmethod
    def deliver(self, rows: DataFrame, batch: int) -> None:
        """Write the alerts of a batch (``key``, ``value`` and ``start_ms``), unless the batch is written already.

        In either case, all of ``rows`` must be evaluated, because that updates the state of the stream. Raises
        PipelineError if the batch could not be written. Only a new process can then try again.
        """

    def end(self) -> None:  # noqa: B027
        """Close the connections to the destination."""


class FileDelivery(Delivery):
    """Writes each batch that has alerts as a file of JSON Lines, ``OUT/alerts-JOB-BATCH.jsonl``."""

    def __init__(self, out: str, job: str) -> None:
        self._out = out.rstrip("/") or "/"
        self._job = job

    def begin(self) -> None:
        """Create the output directory."""
        file_system.make_directory(self._out)

    def deliver(self, rows: DataFrame, batch: int) -> None:
        """Write a batch to a hidden file, then rename the file, so that it appears only when it is complete."""
        name = f"alerts-{self._job}-{batch:010}"
        hidden, target = f"{self._out}/.{name}", f"{self._out}/{name}.jsonl"
        _ordered(rows).write.mode("overwrite").text(hidden)
        parts = [f"{hidden}/{name}" for name in file_system.names(hidden) if name.startswith("part-")]
        if len(parts) > 1:
            raise PipelineError(f"{hidden} has {len(parts)} files where there must be one")
        if parts and not file_system.exists(target) and not file_system.is_blank(parts[0]):
            file_system.rename(parts[0], target)
        file_system.delete(hidden)


class PrintDelivery(Delivery):
    """Prints alerts to stdout as JSON Lines. It has no checkpoint, so a batch is never repeated."""

    def deliver(self, rows: DataFrame, batch: int) -> None:
        """Print the alerts of a batch, in the order of their windows."""
        del batch
        for row in _ordered(rows).toLocalIterator():
            sys.stdout.write(f"{row['value']}\n")
        sys.stdout.flush()


def _ordered(rows: DataFrame) -> DataFrame:
    """Return the column ``value`` in one partition, ordered by ``start_ms``.

    The rows are sorted within the partition, because a global sort would evaluate the stream's state twice.
    """
    return rows.repartition(1).sortWithinPartitions("start_ms", "value").select("value")
