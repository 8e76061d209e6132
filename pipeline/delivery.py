"""Delivers alerts exactly once, to files or to a Kafka topic. ``writing`` writes tables.

A stream numbers its batches. After a crash it repeats the last one with the same rows. A delivery writes a batch and
its number atomically, and skips a batch whose number it finds, so a process may be killed at any time. Decision 0018.

* ``FileDelivery``   a file for each batch, which appears by a rename under the batch's name
* ``TopicDelivery``  a transaction for each batch, which also commits its number as the offset of a consumer group
* ``PrintDelivery``  prints, for people; not exactly once
"""

import sys
from collections.abc import Mapping
from typing import Final, Protocol

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError, ProducerFencedError
from kafka.structs import OffsetAndMetadata
from pyspark.sql import DataFrame, SparkSession

from kafka_quota_proxy.pipeline.errors import PipelineError
from kafka_quota_proxy.pipeline.files import Files

# Brokers allow 15 minutes by default and abort longer transactions, whose batch is then repeated.
_TRANSACTION_TIMEOUT_MS: Final = 600_000
# How long a cluster may take to answer at the start, and to accept records.
_TIMEOUT_MS: Final = 60_000
# How long until an unreachable cluster is reported.
_BOOTSTRAP_TIMEOUT_MS: Final = 15_000
_NAME: Final = "kafka-quota-pipeline-alerts"


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


class TopicDelivery:
    """Writes to a topic; a consumer with ``isolation.level=read_committed`` sees each alert once.

    Only one process writes under the job's transactional id: ``begin`` fences off an earlier process and waits until
    its transactions are committed or aborted.

    Args:
        servers: ``HOST:PORT``, with a comma between several.
        topic: the name of the topic.
        job: the part of the transactional id and of the consumer group that identifies the job.
        security: kafka-python's keyword arguments for SASL and TLS.
    """

    def __init__(self, servers: str, topic: str, job: str, security: Mapping[str, object] | None = None) -> None:
        self._security = dict(security or {})
        self._servers = servers.split(",")
        self._topic = topic
        self._name = f"{_NAME}-{job}"
        # Its "offset" is the number of the next batch. The group has no consumers.
        self._progress = TopicPartition(topic, 0)
        self._producer: KafkaProducer | None = None
        self._next = 0

    def begin(self) -> None:
        """Fence off an earlier process, then read the number of its next batch."""
        try:
            self._producer = KafkaProducer(
                bootstrap_servers=self._servers,
                transactional_id=self._name,
                transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS,
                max_block_ms=_TIMEOUT_MS,
                bootstrap_timeout_ms=_BOOTSTRAP_TIMEOUT_MS,
                **self._security,
            )
            self._producer.init_transactions()
            # With read_committed it waits for the offsets of a transaction that is being completed.
            consumer = KafkaConsumer(
                bootstrap_servers=self._servers,
                group_id=self._name,
                isolation_level="read_committed",
                enable_auto_commit=False,
                **self._security,
            )
            try:
                self._next = consumer.committed(self._progress, timeout_ms=_TIMEOUT_MS) or 0
            finally:
                consumer.close()
        except (KafkaError, OSError) as error:
            raise PipelineError(f"{self._where}: {_words(error)}") from error

    def deliver(self, rows: DataFrame, batch: int) -> None:
        """Send all rows and the batch's number in one transaction."""
        kept = rows.persist()
        try:
            # The rows are evaluated before the transaction begins, to keep it short.
            if kept.count() and batch >= self._next:
                self._send(kept, batch)
        except ProducerFencedError as error:
            raise PipelineError(
                f"{self._where}: another process with the same --checkpoint has taken over; run one of them"
            ) from error
        except (KafkaError, OSError) as error:
            raise PipelineError(f"{self._where}: {_words(error)}") from error
        finally:
            kept.unpersist()

    def end(self) -> None:
        """Close the connections."""
        if self._producer is not None:
            self._producer.close(timeout=1)

    def _send(self, rows: DataFrame, batch: int) -> None:
        producer = self._producer
        if producer is None:
            raise PipelineError(f"{self._where}: begin was not called")
        producer.begin_transaction()
        for row in rows.toLocalIterator():
            producer.send(
                self._topic, key=row["key"].encode(), value=row["value"].encode(), timestamp_ms=row["start_ms"]
            )
        producer.send_offsets_to_transaction({self._progress: OffsetAndMetadata(batch + 1, "", -1)}, self._name)
        # Waits for all records, and fails if any of them did.
        producer.commit_transaction()
        self._next = batch + 1

    @property
    def _where(self) -> str:
        return f"--to kafka://{','.join(self._servers)}/{self._topic}"


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")
