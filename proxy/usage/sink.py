"""A bounded queue of batches, and the thread that writes them to files or to a topic.

The event loop puts batches and never waits. A failed write is retried until it succeeds. Meanwhile the queue fills, and
when it is full the event loop reads no counters: no record is lost, intervals grow. Only a stop has a time limit.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic, monotonic_ns, time
from typing import Final, Protocol

from kafka_quota_proxy.proxy.background.isolation import persisting
from kafka_quota_proxy.proxy.usage.record import Batch

log = logging.getLogger(__name__)

# Of some 300 bytes each: more than an hour of forty busy buckets logged each second.
MAX_QUEUED_RECORDS: Final = 200_000
_RETRY_S: Final = 1.0


class Writer(Protocol):
    """Writes batches in the sink's thread. Its methods may block and raise; the sink retries them."""

    name: str

    def begin(self) -> int:
        """Prepare to write; return the last ``start_ms`` of an earlier process, 0 if unknown."""

    def write(self, batch: Batch, *, now_ms: int) -> None:
        """Write a batch. After a failure the sink calls it with the same one again."""

    @property
    def rotate_from_ms(self) -> int | None:
        """When ``complete`` is due; None: never."""

    def complete(self) -> None:
        """Complete the current file."""

    def end(self) -> None:
        """Complete the current file, and release all resources."""


class Sink:
    """A destination of the usage log.

    Attributes:
        written: Records written since the start. Metrics read these attributes.
        dropped: Records that a stop did not wait for.
        failures: Failed attempts to write.
        is_failing: Whether the last attempt failed.
        last_write_s: When the last batch was written, Unix time; 0 before the first.
        queued: Records that wait to be written.
        last_start_ms: The start of the last interval of an earlier process; None while it is unknown.
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
        self._ends_s: float | None = None  # when a stop gives up; None: no stop
        self._thread = threading.Thread(target=persisting(self._run), name=f"usage-{writer.name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def has_room(self) -> bool:
        """Whether the queue takes another batch, of any size."""
        return self.queued < self._most

    def put(self, batch: Batch) -> None:
        """Queue a batch, without waiting. It is accepted even if the queue is full."""
        with self._changed:
            self._batches.append(batch)
            self.queued += len(batch.records)
            self._changed.notify()

    def stop(self, timeout_s: float) -> None:
        """Write the rest within the time limit and end; drop and count the remainder. ``join`` waits for it."""
        with self._changed:
            self._ends_s = monotonic() + timeout_s
            self._changed.notify()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread to end. If it hangs on a disk that does not answer, its records are dropped."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        if self.queued:
            self.dropped += self.queued
            log.error("usage log, %s: %d records were not written in time and are lost", self.name, self.queued)
            self.queued = 0

    # -- in the thread --

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
        """Return the next batch; None at the end."""
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
        """Retry ``work`` until it succeeds; return False if a stop's time limit is over before."""
        while True:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - no error of a library may end the thread
                self.failures += 1
                if not self.is_failing:
                    self.is_failing = True
                    log.error(  # noqa: TRY400 - its text says it all
                        "usage log, %s: cannot %s: %s; retrying, no record is lost meanwhile", self.name, what,
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
        """Wait before the next attempt; return whether there is time for one."""
        until_s = monotonic() + self._retry_s
        with self._changed:
            while (left_s := until_s - monotonic()) > 0:
                if self._ends_s is not None and monotonic() >= self._ends_s:
                    return False
                self._changed.wait(left_s if self._ends_s is None else min(left_s, self._ends_s - monotonic()))
        return self._ends_s is None or monotonic() < self._ends_s


def _words(error: Exception) -> str:
    return str(error) or repr(error)
