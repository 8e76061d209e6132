"""Delivers what a stream finds exactly once: to files, or to a Kafka topic. ``writing`` writes tables.

A stream gives its batches numbers, and after a crash it gives the last of them once more, with the same rows. A
delivery writes a batch and its number in one step that happens as a whole or not at all, and leaves out a batch whose
number it finds. Which is true at every instant, so a process may be killed at any. Decision 0018.

* ``FileDelivery``   a file for each batch, which appears by a rename under a name that is the batch's
* ``TopicDelivery``  a transaction for each batch, with its number as the offset of a consumer group in the transaction
* ``PrintDelivery``  prints: for a person who looks on, and not exactly once
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

# Brokers allow 15 minutes by default, and end what takes longer. What was sent is then aborted and sent again.
_TRANSACTION_TIMEOUT_MS: Final = 600_000
# How long a cluster may take to answer at the start, and to take what is sent.
_TIMEOUT_MS: Final = 60_000
# How long until it is said that nobody is there.
_BOOTSTRAP_TIMEOUT_MS: Final = 15_000
_NAME: Final = "kafka-quota-pipeline-alerts"


class Delivery(Protocol):
    """Where alerts go."""

    def begin(self) -> None:
        """Reach the place, and end what an earlier process has left there half done.

        Raises:
            PipelineError: it cannot be reached.
        """

    def deliver(self, rows: DataFrame, batch: int) -> None:
        """Write a batch, unless it is there already. In any case all of ``rows`` is run: the stream's state needs it.

        Args:
            rows: ``key``, ``value``, ``start_ms``.
            batch: its number.

        Raises:
            PipelineError: it could not be written. To be tried again by another process.
        """

    def end(self) -> None:
        """Let go of the place."""


class FileDelivery:
    """Writes JSON Lines: ``OUT/alerts-JOB-BATCH.jsonl``, and nothing for a batch without alerts.

    Args:
        spark: the session.
        out: the directory.
        job: tells this job's files from those of others in the directory.
    """

    def __init__(self, spark: SparkSession, out: str, job: str) -> None:
        self._files = Files(spark)
        self._out = out.rstrip("/") or "/"
        self._job = job

    def begin(self) -> None:
        """Make the directory."""
        self._files.make_directory(self._out)

    def deliver(self, rows: DataFrame, batch: int) -> None:
        """Write beside, then rename."""
        name = f"alerts-{self._job}-{batch:010}"
        beside, target = f"{self._out}/.{name}", f"{self._out}/{name}.jsonl"
        # Sorted, that a person finds something; in one file, that it appears as a whole.
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
        """Nothing is open."""


class PrintDelivery:
    """Writes JSON Lines to stdout. Nothing is remembered: a stream without a checkpoint never gives a batch again."""

    def begin(self) -> None:
        """Nothing has to be reached."""

    def deliver(self, rows: DataFrame, batch: int) -> None:
        """Print a batch, in the order of its windows."""
        del batch
        # In one partition, which is run once: a sort of all would run the stream's state twice.
        ordered = rows.repartition(1).sortWithinPartitions("start_ms", "value").select("value")
        for row in ordered.toLocalIterator():
            sys.stdout.write(f"{row['value']}\n")
        sys.stdout.flush()

    def end(self) -> None:
        """Nothing is open."""


class TopicDelivery:
    """Writes to a topic; who reads it with ``isolation.level=read_committed`` sees each alert once.

    Nobody else writes under the job's transactional id: ``begin`` makes the brokers refuse what a process that was
    thought dead still sends, and waits until each of its transactions is ended, one way or the other.

    Args:
        servers: ``HOST:PORT``, with a comma between several.
        topic: its name.
        job: the transactional id's part that is this job's, and the consumer group's.
        security: kafka-python's keyword arguments, of how to log in and by which TLS.
    """

    def __init__(self, servers: str, topic: str, job: str, security: Mapping[str, object] | None = None) -> None:
        self._security = dict(security or {})
        self._servers = servers.split(",")
        self._topic = topic
        self._name = f"{_NAME}-{job}"
        # Its "offset" is the number of the next batch. No consumer is ever in the group.
        self._progress = TopicPartition(topic, 0)
        self._producer: KafkaProducer | None = None
        self._next = 0

    def begin(self) -> None:
        """Fence off whoever wrote before, then find out how far he came."""
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
            # Reading committed, it waits for offsets of a transaction that is just being completed.
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
        """Send all and commit, with the batch's number in the transaction."""
        kept = rows.persist()
        try:
            # All of it is run before the transaction begins, which has to be a short one.
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
            raise PipelineError(f"{self._where}: was not begun")
        producer.begin_transaction()
        for row in rows.toLocalIterator():
            producer.send(
                self._topic, key=row["key"].encode(), value=row["value"].encode(), timestamp_ms=row["start_ms"]
            )
        producer.send_offsets_to_transaction({self._progress: OffsetAndMetadata(batch + 1, "", -1)}, self._name)
        # Waits for all that was sent, and fails if anything of it did.
        producer.commit_transaction()
        self._next = batch + 1

    @property
    def _where(self) -> str:
        return f"--to kafka://{','.join(self._servers)}/{self._topic}"


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")
