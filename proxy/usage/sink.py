"""Queues batches of usage records, and writes them to files or to a topic in a thread.

A failed write is retried until it succeeds. Whoever fills the queue must check ``Sink.has_room`` first. While the queue
is full, the current interval of the usage log is not ended, so it gets longer and no usage is lost. When the proxy
stops, the writes have a time limit, and records that are still queued after it are dropped.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic, monotonic_ns, time
from typing import Final, Protocol

from kafka_quota_proxy.proxy.runtime.isolation import persisting
from kafka_quota_proxy.proxy.usage.record import Batch

log = logging.getLogger(__name__)

# A record has some 300 bytes. The queue has room for more than an hour if forty busy buckets are logged each second.
MAX_QUEUED_RECORDS: Final = 200_000
_RETRY_S: Final = 1.0


class Writer(Protocol):
    """Writes batches to one destination: files or a topic.

    A sink calls the methods in its thread. If a method raises an error, the sink logs it and calls the method again.
    """

    name: str

    def begin(self) -> int:
        """Prepare to write. Return the ``start_ms`` of the last logged interval, or 0 if it is unknown."""

    def write(self, batch: Batch, *, now_ms: int) -> None:
        """Write a batch of usage records. After a failure, the ``Sink`` calls this method again with the same batch."""

    @property
    def rotate_from_ms(self) -> int | None:
        """Return when to call ``complete`` (ms, monotonic clock), or None if there is no file to complete."""

    def complete(self) -> None:
        """Complete the current file, so that the next batch goes to a new one."""

    def end(self) -> None:
        """Complete the current file and release all resources."""


class Sink:
    """Queues batches of usage records, and writes them with ``writer`` in a thread of its own.

    Attributes:
        written: The number of records that were written since the start.
        dropped: The number of records that could not be written before the proxy stopped.
        failures: The number of failed attempts to write.
        is_failing: Whether the last attempt to write failed.
        last_write_s: The Unix time at which the last batch was written, or 0 before the first batch.
        queued: The number of records in the queue.
        last_start_ms: The start, in Unix time, of the last interval that was logged before this process started, or 0
            if unknown. It is None until ``Writer.begin`` has returned it.
    """

    def __init__(self, writer: Writer, *, retry_s: float = _RETRY_S, most: int = MAX_QUEUED_RECORDS) -> None:
        self.name = writer.name
        self.written = self.dropped = self.failures = 0
        self.is_failing = False
        self.last_write_s = 0.0
        self._writer = writer
        self._retry_s = retry_s
        self._most = most
        self._batches: deque[Batch] = deque()  # the first one is being written
        self.queued = 0
        self._changed = threading.Condition()
        self.last_start_ms: int | None = None
        self._ends_s: float | None = None  # when the time limit of a stop is over; None before a stop
        self._thread = threading.Thread(target=persisting(self._run), name=f"usage-{writer.name}", daemon=True)

    def start(self) -> None:
        """Start the thread that writes."""
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether the thread that writes is alive."""
        return self._thread.is_alive()

    @property
    def has_room(self) -> bool:
        """Whether the queue holds fewer records than its limit. If so, it accepts another batch of any size."""
        return self.queued < self._most

    def put(self, batch: Batch) -> None:
        """Add a batch of usage records to the queue. Never waits, because a full queue takes the batch, too."""
        with self._changed:
            self._batches.append(batch)
            self.queued += len(batch.records)
            self._changed.notify()

    def stop(self, timeout_s: float) -> None:
        """Ask the thread to end once it has written the queue, or after ``timeout_s`` at the latest. Return at once."""
        with self._changed:
            self._ends_s = monotonic() + timeout_s
            self._changed.notify()

    def join(self, timeout_s: float) -> None:
        """Wait up to ``timeout_s`` for the thread to end. Records that are then still queued count as dropped."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        if self.queued:
            self.dropped += self.queued
            log.error("usage log, %s: %d records were not written in time and are lost", self.name, self.queued)
            self.queued = 0

    # -- these methods run in the thread --

    def _run(self) -> None:
        if self._retried(self._begin, "begin"):
            while (batch := self._next()) is not None:
                if not self._retried(lambda batch=batch: self._write(batch), "write"):  # type: ignore[misc]
                    break
        try:
            self._writer.end()
        except Exception as error:  # noqa: BLE001 - as in _retried
            log.error(  # noqa: TRY400 - its text says it all
                "usage log, %s: could not complete the last file: %s; the next start completes it",
                self.name,
                _words(error),
            )

    def _begin(self) -> None:
        self.last_start_ms = self._writer.begin()

    def _write(self, batch: Batch) -> None:
        self._writer.write(batch, now_ms=monotonic_ns() // 1_000_000)
        with self._changed:
            self._batches.popleft()
            self.queued -= len(batch.records)
        self.written += len(batch.records)
        self.last_write_s = time()

    def _next(self) -> Batch | None:
        """Wait for the next batch and return it, or None after a stop. Meanwhile complete files that are due."""
        while True:
            due_ms = self._writer.rotate_from_ms
            if due_ms is not None and monotonic_ns() // 1_000_000 >= due_ms:
                self._retried(self._writer.complete, "complete")
            with self._changed:
                if self._batches:
                    return self._batches[0]
                if self._ends_s is not None:
                    return None
                due_ms = self._writer.rotate_from_ms
                self._changed.wait(None if due_ms is None else max(0.0, due_ms / 1_000 - monotonic()))

    def _retried(self, work: Callable[[], None], what: str) -> bool:
        """Call ``work`` until it succeeds, and return True. Return False if the time limit of ``stop`` passes first."""
        while True:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - no error of a library may end the thread
                self.failures += 1
                if not self.is_failing:
                    self.is_failing = True
                    log.error(  # noqa: TRY400 - its text says it all
                        "usage log, %s: cannot %s: %s; retrying; no record is lost", self.name, what,
                        _words(error),
                    )  # fmt: skip
                if not self._wait_to_retry():
                    return False
            else:
                if self.is_failing:
                    self.is_failing = False
                    log.warning("usage log, %s: works again; %d records wait", self.name, self.queued)
                return True

    def _wait_to_retry(self) -> bool:
        """Wait before the next attempt. Return False if the time limit of ``stop`` has passed."""
        until_s = monotonic() + self._retry_s
        with self._changed:
            while (left_s := until_s - monotonic()) > 0:
                if self._ends_s is not None and monotonic() >= self._ends_s:
                    return False
                self._changed.wait(left_s if self._ends_s is None else min(left_s, self._ends_s - monotonic()))
        return self._ends_s is None or monotonic() < self._ends_s


def _words(error: Exception) -> str:
    return str(error) or repr(error)
