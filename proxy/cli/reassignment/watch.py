"""Watches a reassignment: decides when to read the cluster, when to report, and when to stop."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TextIO, TypeAlias

from aiokafka.errors import UnknownTopicOrPartitionError

from kafka_quota_proxy.proxy.cli.reassignment.as_text import Deadline, as_json, lines
from kafka_quota_proxy.proxy.cli.reassignment.progress import Move, Progress, Report, Sample, Sizes, Waiting
from kafka_quota_proxy.proxy.kafka_client.admin_client import ClusterClient
from kafka_quota_proxy.proxy.kafka_client.admin_requests import Partition

_TopicPartition: TypeAlias = tuple[str, int]


class ReadingError(Exception):
    """A response from the cluster lacks information that a snapshot needs."""


def read_snapshot(admin: ClusterClient, *, clock_ms: Callable[[], int]) -> Sample:
    """Ask a cluster for all its moves and their sizes. ``clock_ms`` returns the milliseconds of a monotonic clock.

    Raises ReadingError if a topic cannot be described, or a broker does not report the size of a log. If the cluster
    does not respond, raises one of ``proxy.kafka_client.admin_client.ADMIN_ERRORS``.
    """
    moving = {
        Move(topic, partition, follower)
        for (topic, partition), adding in admin.reassignments().items()
        for follower in adding
    }
    partitions = _partitions(admin, {move.topic for move in moving})
    moves = sorted(move for move in moving if (move.topic, move.partition) in partitions)
    waiting: list[Waiting] = []
    led: list[Move] = []
    wanted: dict[str, set[int]] = {}
    brokers: set[int] = set()
    for move in moves:
        partition = partitions[move.topic, move.partition]
        if partition.leader < 0:
            candidates = set(partition.in_sync or partition.replicas) - {move.follower}
            waiting.append(Waiting(move, tuple(sorted(candidates)), "the partition has no leader"))
            continue
        led.append(move)
        brokers |= {partition.leader, move.follower}
        wanted.setdefault(move.topic, set()).add(move.partition)
    if not led:
        return Sample(time_ms=clock_ms(), moves={}, waiting=tuple(waiting))
    sizes, failures = admin.log_sizes({topic: sorted(numbers) for topic, numbers in wanted.items()}, sorted(brokers))
    now_ms = clock_ms()
    found: dict[Move, Sizes] = {}
    for move in led:
        partition = partitions[move.topic, move.partition]
        away = next((broker for broker in (partition.leader, move.follower) if broker in failures), None)
        if away is None:
            found[move] = _sizes_of(move, partition, moves, sizes)
        else:
            waiting.append(Waiting(move, (away,), str(failures[away]) or repr(failures[away])))
    return Sample(time_ms=now_ms, moves=found, waiting=tuple(waiting))


def _partitions(admin: ClusterClient, topics: Iterable[str]) -> dict[_TopicPartition, Partition]:
    names = sorted(topics)
    if not names:
        return {}
    found: dict[_TopicPartition, Partition] = {}
    for topic in admin.metadata(names).topics:
        if topic.error_code not in (0, UnknownTopicOrPartitionError.errno):  # unknown: it was deleted meanwhile
            raise ReadingError(f"topic {topic.name} cannot be described: Kafka's error {topic.error_code}")
        for partition in topic.partitions:
            found[topic.name, partition.number] = partition
    return found


def _sizes_of(
    move: Move, partition: Partition, moves: Iterable[Move], sizes: Mapping[tuple[int, str, int], int]
) -> Sizes:
    leader = partition.leader
    of_leader = sizes.get((leader, move.topic, move.partition))
    if of_leader is None:
        raise ReadingError(
            f"broker {leader} does not report the size of {move.topic}-{move.partition}: "
            "the admin client needs DESCRIBE on the cluster"
        )
    on_their_way = {other.follower for other in moves if other[:2] == move[:2]}
    return Sizes(
        leader=leader,
        leader_bytes=of_leader,
        follower_bytes=sizes.get((move.follower, move.topic, move.partition), 0),  # it may not be there yet
        in_sync_followers=len(set(partition.in_sync) - on_their_way - {leader}),
    )


# Half a second is short enough to see the steps of Kafka's own throttle, which come once a second.
_SAMPLE_MS: Final = 500
# How long the cluster may be unreachable during a watch.
_PATIENCE_MS: Final = 60_000


class Clock:
    """The clock of this machine. Tests replace it."""

    def now_ms(self) -> int:
        """Return the time of a monotonic clock, in milliseconds."""
        return time.monotonic_ns() // 1_000_000

    def local(self) -> datetime:
        """Return the local date and time, with the time zone."""
        return datetime.now(UTC).astimezone()

    def wait(self, duration_ms: int) -> None:
        """Sleep for ``duration_ms``."""
        time.sleep(duration_ms / 1_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Holds what the operator wants to know about a reassignment, and when to report.

    ``by`` asks which throttle would end it by this time. It is None if the operator did not ask.
    """

    every_ms: int  # the time before the first report, and between reports
    continues: bool = False  # whether to watch until the reassignment ends, and not only until the first report
    is_json: bool = False
    by: datetime | None = None
    by_words: str = ""


class Watcher:
    """Reads the state of a cluster's reassignments repeatedly and writes reports, until all reassignments have ended.

    ``read`` returns the state. It raises one of the exceptions ``failures`` if the cluster is unreachable.
    """

    def __init__(
        self,
        read: Callable[[], Sample],
        *,
        failures: tuple[type[Exception], ...],
        clock: Clock,
        plan: Plan,
        out: TextIO,
        errors: TextIO,
    ) -> None:
        self.status = 0  # the exit status as of the last report: 1 if it never ends or waits for brokers, otherwise 0
        self._read = read
        self._failures: tuple[type[Exception], ...] = (*failures, ReadingError)
        self._clock = clock
        self._plan = plan
        self._out = out
        self._errors = errors
        self._gap = ""

    def run(self) -> int:
        """Watch until the reassignment ends, or until the first report if the plan says so. Return the exit status.

        Raises ReadingError or one of ``failures`` if the cluster cannot be read. After a first successful read, a watch
        that continues tries again for a minute before it gives up.
        """
        due_ms = self._clock.now_ms() + self._plan.every_ms
        progress = Progress()
        has_begun = False
        while True:
            sample = self._read_patiently(has_begun=has_begun)
            if not sample.moves and not sample.waiting:
                self._end("ended" if has_begun else "none")
                return 0
            has_begun = True
            progress.add(sample)
            now_ms = self._clock.now_ms()
            if now_ms >= due_ms:
                self._report(progress.report())
                if not self._plan.continues:
                    return self.status
                due_ms += self._plan.every_ms * ((now_ms - due_ms) // self._plan.every_ms + 1)
            self._clock.wait(max(1, _SAMPLE_MS - (self._clock.now_ms() - sample.time_ms)))

    def _report(self, report: Report) -> None:
        self.status = 1 if report.never_ends or report.waiting else 0
        now = self._clock.local()
        by = None
        if self._plan.by is not None and self._plan.by > now:
            by = Deadline(duration_ms=(self._plan.by - now).total_seconds() * 1_000, words=self._plan.by_words)
        if self._plan.is_json:
            self._write_json(as_json(report, time_ms=_epoch_ms(now), by=by))
            return
        text = "\n".join(lines(report, now=now, by=by))
        self._out.write(f"{self._gap}{now:%Y-%m-%d %H:%M:%S}\n{text}\n")
        self._out.flush()
        self._gap = "\n"

    def _end(self, state: str) -> None:
        text = f"no reassignment in progress{' any more' if state == 'ended' else ''}"
        if self._plan.is_json:
            self._write_json({"time_ms": _epoch_ms(self._clock.local()), "state": state, "moves": []})
        else:
            self._out.write(f"{self._gap}{text}\n")

    def _write_json(self, fields: dict[str, Any]) -> None:
        self._out.write(f"{json.dumps(fields)}\n")
        self._out.flush()

    def _read_patiently(self, *, has_begun: bool) -> Sample:
        """Return the cluster's state. Once a watch has begun, retry for a minute before raising an error."""
        give_up_ms = self._clock.now_ms() + (_PATIENCE_MS if has_begun and self._plan.continues else 0)
        while True:
            try:
                return self._read()
            except self._failures as error:
                if self._clock.now_ms() >= give_up_ms:
                    raise
                self._errors.write(f"the cluster does not answer; trying again: {error}\n")
                self._clock.wait(_SAMPLE_MS)


def _epoch_ms(now: datetime) -> int:
    return round(now.timestamp() * 1_000)
