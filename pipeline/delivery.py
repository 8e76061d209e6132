"""Delivers the alerts of a stream to a Kafka topic, to files or to stdout, at least once.

A stream numbers its batches, and after a crash it repeats the last batch with the same rows. In a topic the alerts of
this batch may then appear twice. In files they do not, because a batch is written to a file of its own.
"""

import sys
from collections.abc import Mapping
from typing import Final, Protocol

from pyspark.sql import DataFrame, SparkSession

from kafka_quota_proxy.pipeline import file_system
from kafka_quota_proxy.pipeline.errors import PipelineError
from kafka_quota_proxy.pipeline.kafka_source import kafka_fault, kafka_place, topic
from kafka_quota_proxy.pipeline.session import SPARK_FAULTS

# A broker acknowledges an alert when all replicas in sync have it.
_ACKNOWLEDGED: Final = {"kafka.acks": "all"}


class Delivery(Protocol):
    """A destination to which the alerts of a stream are written: a Kafka topic, files or stdout."""

    def deliver(self, rows: DataFrame, batch: int) -> None:
        """Write the alerts of a batch (``key``, ``value`` and ``start_ms``).

        All of ``rows`` must be evaluated, because that updates the state of the stream. Raises PipelineError if the
        batch could not be written. Only a new process can then try again.
        """


class TopicDelivery:
    """Writes alerts to the topic ``kafka://HOST:PORT/TOPIC``. ``kafka`` contains options of Spark's Kafka sink.

    Raises UsageError if the address is wrong, or if Spark lacks its Kafka connector, and PipelineError if the topic
    cannot be reached or does not exist.
    """

    def __init__(self, spark: SparkSession, place: str, kafka: Mapping[str, str]) -> None:
        servers, name = kafka_place(place, "--to")
        self._place = place
        self._options = {**kafka, **_ACKNOWLEDGED, "kafka.bootstrap.servers": servers, "topic": name}
        found = topic(spark, place, "--to", kafka=kafka)
        try:
            # Spark asks for the offsets of the topic's partitions here, and reads no record.
            found.rdd.getNumPartitions()
        except SPARK_FAULTS as error:
            raise self._fault(error) from error

    def deliver(self, rows: DataFrame, batch: int) -> None:
        """Send a batch, and wait until the brokers have acknowledged it. One task sends it, in the order of windows."""
        del batch
        try:
            _ordered(rows).select("key", "value").write.format("kafka").options(**self._options).save()
        except SPARK_FAULTS as error:
            raise self._fault(error) from error

    def _fault(self, error: Exception) -> PipelineError:
        text = str(error)
        return PipelineError(f"--to {self._place}: {kafka_fault(text) or text.partition(chr(10))[0]}")


class FileDelivery:
    """Writes each batch that has alerts as a file of JSON Lines, ``OUT/alerts-JOB-BATCH.jsonl``."""

    def __init__(self, out: str, job: str) -> None:
        self._out = out.rstrip("/") or "/"
        self._job = job
        file_system.make_directory(self._out)

    def deliver(self, rows: DataFrame, batch: int) -> None:
        """Write a batch to a hidden file, then rename the file, so that it appears only when it is complete."""
        name = f"alerts-{self._job}-{batch:010}"
        hidden, target = f"{self._out}/.{name}", f"{self._out}/{name}.jsonl"
        _ordered(rows).select("value").write.mode("overwrite").text(hidden)
        parts = [f"{hidden}/{name}" for name in file_system.names(hidden) if name.startswith("part-")]
        if len(parts) > 1:
            raise PipelineError(f"{hidden} has {len(parts)} files where there must be one")
        if parts and not file_system.exists(target) and not file_system.is_blank(parts[0]):
            file_system.rename(parts[0], target)
        file_system.delete(hidden)


class PrintDelivery:
    """Prints alerts to stdout as JSON Lines. It has no checkpoint, so a batch is never repeated."""

    def deliver(self, rows: DataFrame, batch: int) -> None:
        """Print the alerts of a batch, in the order of their windows."""
        del batch
        for row in _ordered(rows).toLocalIterator():
            sys.stdout.write(f"{row['value']}\n")
        sys.stdout.flush()


def _ordered(rows: DataFrame) -> DataFrame:
    """Return the rows in one partition, ordered by ``start_ms``.

    The rows are sorted within the partition, because a global sort would evaluate the stream's state twice.
    """
    return rows.repartition(1).sortWithinPartitions("start_ms", "value")
