"""Tests the queue and the thread of a sink: no record is lost while writes fail, and a stop has a time limit."""

import threading
from collections.abc import Callable, Iterator
from time import monotonic, sleep

import pytest

from kafka_quota_proxy.proxy.usage.record import Batch, UsageCounts, UsageKey
from kafka_quota_proxy.proxy.usage.sink import Sink


def a_batch(number: int, records: int = 1) -> Batch:
    used = UsageCounts(number, 1, 0, 0, True)
    return Batch("p1", number, 1_000, tuple((UsageKey(1, "produce", "", f"c-{i}"), used) for i in range(records)))


class Paper:
    """A writer that a test can make fail or hang."""

    name = "paper"
    rotate_from_ms: int | None = None

    def __init__(self) -> None:
        self.written: list[int] = []
        self.fails = threading.Event()
        self.hangs = threading.Event()
        self.begin_fails = False
        self.completed = 0
        self.has_ended = threading.Event()

    def begin(self) -> int:
        if self.begin_fails:
            raise OSError("no directory")
        return 42

    def write(self, batch: Batch, *, now_ms: int) -> None:
        while self.hangs.is_set():
            sleep(0.001)
        if self.fails.is_set():
            raise OSError("no space left")
        self.written.append(batch.start_ms)

    def complete(self) -> None:
        self.completed += 1
        self.rotate_from_ms = None

    def end(self) -> None:
        self.has_ended.set()


@pytest.fixture
def paper() -> Iterator[Paper]:
    paper = Paper()
    yield paper
    paper.hangs.clear()
    paper.fails.clear()


def started(paper: Paper, most: int = 5) -> Sink:
    sink = Sink(paper, retry_s=0.005, most=most)
    sink.start()
    return sink


def wait_until(is_so: Callable[[], object]) -> None:
    deadline_s = monotonic() + 5
    while not is_so():
        assert monotonic() < deadline_s
        sleep(0.001)


def ended(sink: Sink) -> None:
    sink.stop(5)
    sink.join(5)


def test_batches_are_written_in_their_order_and_counted(paper: Paper) -> None:
    sink = started(paper)
    for number in range(3):
        sink.put(a_batch(number, records=2))
    ended(sink)

    assert paper.written == [0, 1, 2]
    assert (sink.written, sink.queued, sink.dropped, sink.last_start_ms) == (6, 0, 0, 42)
    assert sink.last_write_s > 0
    assert paper.has_ended.is_set()


def test_a_failure_is_retried_and_logged_once(paper: Paper, caplog: pytest.LogCaptureFixture) -> None:
    paper.begin_fails = True
    paper.fails.set()
    sink = started(paper, most=2)
    wait_until(lambda: sink.failures >= 2)
    assert sink.last_start_ms is None
    paper.begin_fails = False
    wait_until(lambda: sink.last_start_ms == 42)

    sink.put(a_batch(1))
    wait_until(lambda: sink.failures >= 5)
    assert sink.has_room
    sink.put(a_batch(2))
    assert (sink.has_room, sink.queued, sink.is_failing) == (False, 2, True)
    sink.stop(5)
    sleep(0.02)
    paper.fails.clear()
    sink.join(5)

    assert (paper.written, sink.dropped, sink.has_room) == ([1, 2], 0, True)
    assert caplog.text.count("cannot begin: no directory; retrying") == 1
    assert caplog.text.count("cannot write: no space left; retrying") == 1
    assert caplog.text.count("works again; ") == 2


def test_a_stop_times_out_and_counts_dropped_records(paper: Paper, caplog: pytest.LogCaptureFixture) -> None:
    paper.fails.set()
    sink = started(paper)
    sink.put(a_batch(1, records=3))
    before_s = monotonic()
    sink.stop(0.05)
    sink.join(5)

    assert monotonic() - before_s < 2
    assert (sink.dropped, sink.queued) == (3, 0)
    assert "3 records were not written in time and are lost" in caplog.text
    assert paper.has_ended.is_set()


def test_an_unexpected_error_is_retried(paper: Paper, monkeypatch: pytest.MonkeyPatch) -> None:
    write, tries = paper.write, []

    def fail_once(batch: Batch, *, now_ms: int) -> None:
        tries.append(batch)
        if len(tries) == 1:
            raise KeyError
        write(batch, now_ms=now_ms)

    monkeypatch.setattr(paper, "write", fail_once)
    sink = started(paper)
    sink.put(a_batch(1))
    wait_until(lambda: paper.written)
    assert sink.failures == 1
    assert not sink.is_failing
    ended(sink)

    assert paper.written == [1]
    assert not sink.is_running


def test_a_hanging_thread_does_not_block_a_stop(paper: Paper) -> None:
    paper.hangs.set()
    sink = started(paper)
    sink.put(a_batch(1))
    sink.stop(0.01)
    sink.join(0.05)

    assert sink.dropped == 1


def test_an_idle_sink_rotates_its_file(paper: Paper) -> None:
    due_ms = paper.rotate_from_ms = int(monotonic() * 1_000) + 20
    sink = started(paper)
    wait_until(lambda: paper.completed)

    assert monotonic() * 1_000 >= due_ms
    assert paper.completed == 1
    ended(sink)
