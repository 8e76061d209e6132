"""A job that is killed and resumed ten times delivers each alert, into files once, into a topic at least once."""

from __future__ import annotations

import heapq
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, Protocol

import confluent_kafka
import pytest

from tests.end_to_end.support.artifacts import spark_connector
from tests.end_to_end.support.clients import QUIET, create_topic
from tests.end_to_end.support.kafka import Kafka
from tests.end_to_end.support.processes import Process, wait_until
from tests.pipeline.support import lines, record

pytestmark = [pytest.mark.pipeline, pytest.mark.timeout(1_800)]

REPOSITORY: Final = Path(__file__).parents[2]
BASE_MS: Final = 1_767_225_600_000  # 1 January 2026, 00:00 UTC
WINDOW_S: Final = 10
LATE_S: Final = 30
# A record counts if it is late by at most this.
OUT_OF_ORDER_S: Final = 20
LIMIT: Final = 1_000.0
NEAR: Final = 0.8
# Seconds of event time per second of the test.
SPEED: Final = 20
KILLS: Final = 10
PARTITIONS: Final = 3
# The longest batch: the first after a start has all waiting records, and the machine may be busy.
PATIENCE_S: Final = 300
# How often the job is polled for the moment at which to kill it.
AT_ONCE_S: Final = 0.002
# The use of a window, relative to the limit.
FILLED: Final = (0.4, 0.78, 0.82, 0.95, 1.05, 1.5)
BUCKETS: Final[tuple[dict[str, Any], ...]] = tuple(
    {"proxy": f"p{broker or 0}", "broker": broker, "kind": kind, "user": user, "client_id": client_id}
    for broker in (1, 2, None)
    for kind in ("produce", "fetch")
    for user, client_id in (("alice", "etl"), ("bob", ""), ('ü"', "<other>"))
)

Record = dict[str, Any]
Send = Callable[[Iterable[Record]], None]


class Reader(Protocol):
    """Reads alerts in the order in which they arrive."""

    seen: list[Record]

    def read(self) -> None:
        """Read new alerts."""


def seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311  (the same run again)


def identity(one: Record) -> tuple[Any, ...]:
    return tuple(one[name] for name in ("start_ms", "proxy", "broker", "kind", "user", "client_id", "listener"))


def expected(log: Iterable[Record]) -> list[Record]:
    """Return the alerts that a log must cause, computed in plain Python."""
    windows: dict[tuple[Any, ...], list[Record]] = {}
    for one in {identity(one): one for one in log}.values():
        start_ms = one["start_ms"] - one["start_ms"] % (WINDOW_S * 1_000)
        windows.setdefault((start_ms, *identity(one)[1:]), []).append(one)
    found = []
    for (start_ms, proxy, broker, kind, user, client_id, listener), ones in windows.items():
        amount, throttled, waited = (
            sum(one[name] for one in ones) for name in ("amount", "throttled_requests", "throttle_time_ms")
        )
        use = amount / (LIMIT * WINDOW_S)
        level = "over" if throttled or use > 1 else "near" if use > NEAR else None
        if level:
            found.append(
                {
                    "start_ms": start_ms, "window_ms": WINDOW_S * 1_000, "level": level, "proxy": proxy,
                    "broker": broker, "kind": kind, "user": user, "client_id": client_id, "listener": listener,
                    "limit": LIMIT, "amount": amount, "use": use, "requests": len(ones),
                    "throttled_requests": throttled, "throttle_time_ms": waited, "enforced": True,
                }
            )  # fmt: skip
    return found


class Log:
    """A growing usage log, with records that are out of order, duplicated or too late."""

    def __init__(self, send: Send, reader: Reader, seed: int, *, together_s: int = 1) -> None:
        self.sent: list[Record] = []  # without records that are too late
        self.late = 0
        self._send, self._reader = send, reader
        self._random = seeded(seed)
        self._together_s = together_s
        self._filled: dict[tuple[int, int], float] = {}
        self._waiting: list[tuple[float, int, Record]] = []
        self._end = Event()
        self._fault: BaseException | None = None
        self._thread = Thread(target=self._run)

    def __enter__(self) -> Log:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.complete()

    def complete(self) -> None:
        """Send the remaining records, and records that close all windows."""
        self._end.set()
        self._thread.join()
        if self._fault is not None:
            raise self._fault

    def _run(self) -> None:
        try:
            started = time.monotonic()
            second = 0
            while not self._end.is_set():
                self._write(second)
                if second % self._together_s == 0:
                    self._send_until(second)
                if second % 40 == 39:
                    self._send_too_late()
                second += 1
                self._end.wait(max(0.0, started + second / SPEED - time.monotonic()))
            self._send_until(second + OUT_OF_ORDER_S)
            # The watermark is that of the previous batch, so two steps close all windows.
            for more in (1_000, 2_000):
                self._send([self._record(second + more, BUCKETS[0], amount=0)])
                time.sleep(1)
        except BaseException as fault:  # noqa: BLE001  (raised where it is seen)
            self._fault = fault

    def _write(self, second: int) -> None:
        chance = self._random
        for number, bucket in enumerate(BUCKETS):
            filled = self._filled.setdefault((second // WINDOW_S, number), chance.choice(FILLED))
            amount = int(LIMIT * filled * chance.uniform(0.9, 1.1))
            waits = {"throttled_requests": 1, "throttle_time_ms": 9} if chance.random() < 0.005 else {}
            one = self._record(second, bucket, amount=amount, **waits)
            for _ in range(2 if chance.random() < 0.05 else 1):
                delay = chance.uniform(0, OUT_OF_ORDER_S) if chance.random() < 0.2 else 0
                heapq.heappush(self._waiting, (second + delay, chance.getrandbits(60), one))

    def _send_until(self, second: int) -> None:
        due = []
        while self._waiting and self._waiting[0][0] <= second:
            due.append(heapq.heappop(self._waiting)[2])
        self.sent += due
        self._send(due)

    def _send_too_late(self) -> None:
        """Send a record for a closed window. Its alert must not change or appear again."""
        self._reader.read()
        if self._reader.seen:
            newest_ms = max(one["start_ms"] for one in self._reader.seen)
            at_s = (newest_ms - BASE_MS) // 1_000 - self._random.randrange(3) * WINDOW_S + 0.5
            self._send([self._record(at_s, self._random.choice(BUCKETS), throttled_requests=1)])
            self.late += 1

    def _record(self, at_s: float, bucket: Record, **given: Any) -> Record:  # noqa: ANN401
        return record(start_ms=BASE_MS + int(at_s * 1_000), limit=LIMIT, **bucket, **given)


class TopicReader:
    """Reads the alerts of a topic, each once, and counts those that come again."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self.seen: list[Record] = []
        self.keys: list[tuple[str, int]] = []
        self.again = 0
        self._values: set[bytes] = set()
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "group.id": "reader",
                "enable.auto.commit": False,
                **QUIET,
            }
        )
        every = [confluent_kafka.TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]
        self._consumer.assign(every)

    def read(self) -> None:
        while messages := self._consumer.consume(1_000, timeout=1):
            for message in messages:
                key, value, partition = message.key(), message.value(), message.partition()
                assert message.error() is None
                assert key is not None
                assert value is not None
                assert partition is not None
                self.keys.append((key.decode(), partition))
                if value in self._values:
                    self.again += 1
                else:
                    self._values.add(value)
                    self.seen.append(json.loads(value))

    def close(self) -> None:
        self._consumer.close()


class FileReader:
    """Reads each complete file of alerts once."""

    def __init__(self, out: Path) -> None:
        self.seen: list[Record] = []
        self._out = out
        self._read: set[Path] = set()

    def read(self) -> None:
        for path in sorted(set(self._out.glob("*.jsonl")) - self._read):
            self._read.add(path)
            self.seen += [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def to_topic(kafka: Kafka, topic: str, seed: int) -> Send:
    """Return a function that writes records to random partitions, and waits until they are acknowledged."""
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0, **QUIET})
    chance = seeded(seed)

    def send(log: Iterable[Record]) -> None:
        for one in log:
            producer.produce(topic, lines([one]).strip(), partition=chance.randrange(PARTITIONS))
        assert producer.flush(30) == 0

    return send


def to_files(directory: Path) -> Send:
    """Return a function that writes records to a new file. The file appears when it is complete."""
    directory.mkdir()
    count = 0

    def send(log: Iterable[Record]) -> None:
        nonlocal count
        if text := lines(log):
            part = directory / f"usage-{count:06}.jsonl.part"
            part.write_text(text, encoding="utf-8")
            part.rename(part.with_suffix(""))
            count += 1

    return send


class Job:
    def __init__(self, directory: Path, *words: str) -> None:
        self.log = directory / "job.log"
        self._checkpoint = directory / "checkpoint"
        self._command = [
            sys.executable, "-m", "kafka_quota_proxy.pipeline", "alerts", *words, "--checkpoint", str(self._checkpoint),
            "--window", f"{WINDOW_S}s", "--late", f"{LATE_S}s", "--near", str(NEAR), "--every", "50ms",
            "--master", "local[2]", "--conf", "spark.driver.memory=1g",
        ]  # fmt: skip

    def start(self, *more: str) -> Process:
        env = {"PYTHONPATH": str(REPOSITORY)}
        return Process([*self._command, *more], log=self.log, env=env, cwd=REPOSITORY)

    def numbers(self, part: str) -> int:
        """Return the number of the last planned (``offsets``) or finished (``commits``) batch, or -1."""
        directory = self._checkpoint / "spark" / part
        with suppress(FileNotFoundError):
            return max((int(path.name) for path in directory.iterdir() if path.name.isdigit()), default=-1)
        return -1


def patiently(is_true: Callable[[], bool], what: str, *, poll_s: float = 0.05) -> None:
    wait_until(is_true, timeout_s=PATIENCE_S, what=what, poll_s=poll_s)


def kill_often(job: Job, reader: Reader, chance: random.Random) -> tuple[int, int]:
    """Kill the job ten times. Return the number of kills within a batch, and right after its delivery."""
    within = delivered = 0
    for number in range(KILLS):
        process = job.start()
        before = job.numbers("commits")
        patiently(lambda: job.numbers("commits") > before or not process.is_running, "does a batch")  # noqa: B023  (called at once)
        assert process.is_running, process.log_tail()
        time.sleep(chance.uniform(0, 3))
        reader.read()
        count, planned = len(reader.seen), job.numbers("offsets")
        if number % 2:
            patiently(lambda: job.numbers("offsets") > planned, "plans a batch", poll_s=AT_ONCE_S)  # noqa: B023
            time.sleep(chance.uniform(0, 0.8))
        else:
            patiently(lambda: _has_more(reader, count), "delivers alerts", poll_s=AT_ONCE_S)  # noqa: B023
        if number % 3:
            process.kill()
        else:
            # The JVM survives for a moment and may continue its work.
            process.signal(signal.SIGKILL)
        is_within = job.numbers("offsets") > job.numbers("commits")
        within += is_within
        delivered += is_within and not number % 2
    return within, delivered


def _has_more(reader: Reader, count: int) -> bool:
    reader.read()
    return len(reader.seen) > count


def as_texts(alerts: Iterable[Record]) -> list[str]:
    return sorted(json.dumps(one, sort_keys=True) for one in alerts)


def prove(job: Job, log: Log, reader: Reader, chance: random.Random) -> None:
    """Kill and resume the job, let it end, and compare its alerts with the expected ones."""
    with log:
        within, delivered = kill_often(job, reader, chance)
    wanted = expected(log.sent)
    process = job.start()

    def is_complete() -> bool:
        reader.read()
        return len(reader.seen) >= len(wanted) or not process.is_running

    patiently(is_complete, "all alerts are there")
    status = process.stop()
    again = job.start("--once")
    patiently(lambda: not again.is_running, "sees that there is nothing more")
    reader.read()

    assert status == 0, process.log_tail()
    assert again.exit_status == 0, again.log_tail()
    assert as_texts(reader.seen) == as_texts(wanted)
    assert log.late > 3
    assert "too late" in job.log.read_text()
    assert within > 0
    sys.stdout.write(
        f"{len(log.sent):,} records, {log.late} too late; {len(wanted):,} alerts; {KILLS} kills, {within} "
        f"within a batch, {delivered} just after alerts had been seen of it; {job.numbers('commits') + 1} batches\n"
    )


def test_alerts_to_topic_are_read_at_least_once_although_the_job_is_killed(kafka_4: Kafka, tmp_path: Path) -> None:
    seed = int(os.environ.get("ALERTS_SEED", "1"))
    usage, alerts = (create_topic(kafka_4, partitions=PARTITIONS) for _ in range(2))
    reader = TopicReader(kafka_4, alerts)
    jars = ",".join(str(jar) for jar in spark_connector())
    job = Job(
        tmp_path,
        *("--conf", f"spark.jars={jars}"),
        *("--usage", f"kafka://{kafka_4.bootstrap_servers}/{usage}"),
        *("--to", f"kafka://{kafka_4.bootstrap_servers}/{alerts}"),
    )

    try:
        prove(job, Log(to_topic(kafka_4, usage, seed), reader, seed), reader, seeded(seed))
    finally:
        reader.close()

    sys.stdout.write(f"{reader.again} alerts came again\n")
    # All alerts of a bucket are in one partition.
    assert len(set(reader.keys)) == len({key for key, _ in reader.keys})


def test_alerts_to_files_are_written_once_although_the_job_is_killed(tmp_path: Path) -> None:
    seed = int(os.environ.get("ALERTS_SEED", "1"))
    reader = FileReader(tmp_path / "alerts")
    job = Job(tmp_path, "--usage", str(tmp_path / "usage"), "--out", str(tmp_path / "alerts"))

    # Two files a second instead of twenty, because each batch lists all files, and the first one after a start opens
    # all new ones.
    prove(job, Log(to_files(tmp_path / "usage"), reader, seed, together_s=10), reader, seeded(seed))


def test_command_without_reachable_broker_fails_with_a_message(tmp_path: Path) -> None:
    (tmp_path / "usage").mkdir()
    jars = ",".join(str(jar) for jar in spark_connector())
    places = ("--usage", str(tmp_path / "usage"), "--to", "kafka://127.0.0.1:1/alerts")
    job = Job(tmp_path, "--conf", f"spark.jars={jars}", *places)

    process = job.start()
    wait_until(lambda: not process.is_running, timeout_s=90, what="gives up")

    assert process.exit_status == 1
    printed = process.log_tail(1)
    assert "--to kafka://127.0.0.1:1/alerts: " in printed
    assert "Traceback" not in process.output()
