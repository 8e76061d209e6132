"""A bounded queue of batches and the thread in which they are written, to files or to a topic.

The loop gives and never waits. What cannot be written is tried again until it can; meanwhile the queue fills, and then
the loop reads no counters: nothing is lost, intervals grow. Only a stop does not wait for ever.
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

# Of some 300 bytes each. At forty busy buckets and a second that is more than an hour.
MAX_QUEUED_RECORDS: Final = 200_000
_RETRY_S: Final = 1.0


class Writer(Protocol):
    """What writes batches; all of it runs in the sink's thread, and may block and raise: it is tried again."""

    name: str

    def begin(self) -> int:
        """Make ready; return the last ``start_ms`` that was written by an earlier process, as far as it is known."""

    def write(self, batch: Batch, *, now_ms: int) -> None:
        """Write a batch. After a failure it is called with the same one again."""

    @property
    def rotate_from_ms(self) -> int | None:
        """When ``complete`` is due; None: never."""

    def complete(self) -> None:
        """Complete what was written."""

    def end(self) -> None:
        """Complete it, and let go of everything."""


class Sink:
    """One of the places that the usage log goes to.

    Attributes:
        written: Records, since the start. These are read by metrics as they are.
        dropped: Records that a stop did not wait for.
        failures: Times that something could not be written.
        is_failing: Whether that is so now.
        last_write_s: When the last batch was written, Unix time; 0 before the first.
    """

    def __init__(self, writer: Writer, *, retry_s: float = _RETRY_S, most: int = MAX_QUEUED_RECORDS) -> None:
        self.name = writer.name
        self.written = self.dropped = self.failures = 0
        self.is_failing = False
        self.last_write_s = 0.0
        self._writer = writer
        self._retry_s = retry_s
        self._most = most
        self._batches: deque[Batch] = deque()  # the one in front is being written
        self._queued = 0  # records
        self._changed = threading.Condition()
        self._last_start_ms: int | None = None
        self._ends_s: float | None = None  # until when a stop waits; None: there is none
        self._thread = threading.Thread(target=persisting(self._run), name=f"usage-{writer.name}", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    @property
    def queued(self) -> int:
        """How many records wait to be written."""
        return self._queued

    @property
    def last_start_ms(self) -> int | None:
        """The last interval that an earlier process has written there; None while that is not known."""
        return self._last_start_ms

    @property
    def is_running(self) -> bool:
        """Whether its thread has not ended."""
        return self._thread.is_alive()

    @property
    def has_room(self) -> bool:
        """Whether one more batch, of any size, may come."""
        return self._queued < self._most

    def put(self, batch: Batch) -> None:
        """Have a batch written. Never waits, and always takes it."""
        with self._changed:
            self._batches.append(batch)
            self._queued += len(batch.records)
            self._changed.notify()

    def stop(self, timeout_s: float) -> None:
        """Write what is left, and end; what cannot be written in that time is dropped, and counted. ``join`` waits."""
        with self._changed:
            self._ends_s = monotonic() + timeout_s
            self._changed.notify()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread to end. Where it hangs, in a disk that does not answer, what it had is dropped."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        if self._queued:
            self.dropped += self._queued
            log.error("usage log, %s: %d records were not written in time and are lost", self.name, self._queued)
            self._queued = 0

    # -- in the thread --

    def _run(self) -> None:
        if self._tried(self._begin, "begin"):
            while (batch := self._next()) is not None:
                if not self._tried(lambda batch=batch: self._write(batch), "write"):  # type: ignore[misc]
                    break
        try:
            self._writer.end()
        except Exception as error:  # noqa: BLE001 - as in _tried
            log.error(  # noqa: TRY400 - its text says it all
                "usage log, %s: could not be completed: %s; the next start completes it", self.name, _words(error)
            )

    def _begin(self) -> None:
        self._last_start_ms = self._writer.begin()

    def _write(self, batch: Batch) -> None:
        self._writer.write(batch, now_ms=monotonic_ns() // 1_000_000)
        with self._changed:
            self._batches.popleft()
            self._queued -= len(batch.records)
        self.written += len(batch.records)
        self.last_write_s = time()

    def _next(self) -> Batch | None:
        """Return the batch that is to be written; None at the end."""
        while True:
            due_ms = self._writer.rotate_from_ms
            if due_ms is not None and monotonic_ns() // 1_000_000 >= due_ms:
                self._tried(self._writer.complete, "complete")
            with self._changed:
                if self._batches:
                    return self._batches[0]
                if self._ends_s is not None:
                    return None
                due_ms = self._writer.rotate_from_ms
                self._changed.wait(None if due_ms is None else max(0.0, due_ms / 1_000 - monotonic()))

    def _tried(self, work: Callable[[], None], what: str) -> bool:
        """Do it until it works; return whether it did before the time of a stop was over."""
        while True:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - whatever a library raises: without a thread nothing is written
                self.failures += 1
                if not self.is_failing:
                    self.is_failing = True
                    log.error(  # noqa: TRY400 - its text says it all
                        "usage log, %s: cannot %s: %s; it is tried again, nothing is lost meanwhile", self.name, what,
                        _words(error),
                    )  # fmt: skip
                if not self._wait_to_retry():
                    return False
            else:
                if self.is_failing:
                    self.is_failing = False
                    log.warning("usage log, %s: works again; %d records wait", self.name, self._queued)
                return True

    def _wait_to_retry(self) -> bool:
        """Wait a while; return whether there is time for another attempt."""
        until_s = monotonic() + self._retry_s
        with self._changed:
            while (left_s := until_s - monotonic()) > 0:
                if self._ends_s is not None and monotonic() >= self._ends_s:
                    return False
                self._changed.wait(left_s if self._ends_s is None else min(left_s, self._ends_s - monotonic()))
        return self._ends_s is None or monotonic() < self._ends_s


def _words(error: Exception) -> str:
    return str(error) or repr(error)
