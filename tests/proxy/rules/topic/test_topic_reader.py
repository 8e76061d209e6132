"""Tests the requests and the events of the topic reader on a simulated cluster."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.metadata import MetadataRequest

from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.config.quota_record import RecordFault, Setting
from kafka_quota_proxy.proxy.rules.topic import topic_reader as reader_module
from kafka_quota_proxy.proxy.rules.topic.clients import (
    EndReached,
    ReaderEvent,
    ReadFailed,
    ReadingBegan,
    RecordsRead,
)
from kafka_quota_proxy.proxy.rules.topic.topic_reader import TopicReader
from tests.support.record_batches import batch
from tests.support.stub_broker import eventually
from tests.support.topic_cluster import BROKERS, SETTINGS, TopicCluster


def rule(number: int) -> Setting:
    return Setting(user=f"u{number}", key="producer_byte_rate", value=1.0)


@dataclass
class Cluster(TopicCluster):
    """The leader of a topic."""

    log: list[tuple[int, bytes]] = field(default_factory=list)  # next offset and bytes of each batch
    end_offset: int | None = None  # the high watermark; None means the end of the log
    beginning: int = 0
    latest: int | None = None  # the answer of ListOffsets; None means the end of the log
    fetch_error: int = 0
    # The throttle time of each of the next fetches, and whether its answer has the topic.
    fetch_throttles_ms: deque[tuple[int, bool]] = field(default_factory=deque)
    answer_error: int = 0
    asked: list[Any] = field(default_factory=list)
    fetches: int = 0

    def append(self, *records: Setting, gaps: int = 0, is_control: bool = False) -> None:
        first = self.log[-1][0] if self.log else self.beginning
        self.log.append((first + len(records) + gaps, batch(first, *records, gaps=gaps, is_control=is_control)))

    async def answer(self, request: object, *, node_id: int = BROKERS[0]) -> object:
        self.asked.append(request)
        return await super().answer(request, node_id=node_id)

    def has_been_asked_where(self, more_than: int) -> Callable[[object], bool]:
        """Return a check that is true after more than ``more_than`` further Metadata requests."""
        before = len(self.asked)
        return lambda _: sum(isinstance(one, MetadataRequest) for one in self.asked[before:]) > more_than

    def begin(self) -> int:
        return self.beginning

    def end(self) -> int:
        if self.latest is not None:
            return self.latest
        return self.log[-1][0] if self.log else self.beginning

    async def answer_of_leader(self, request: object) -> object:
        assert isinstance(request, FetchRequest)
        return await self.fetch(request)

    async def fetch(self, request: FetchRequest) -> object:
        ((_, ((_, offset, _),)),) = request._topics
        end_offset = self.end_offset if self.end_offset is not None else (self.log[-1][0] if self.log else 0)
        data = next((data for next_offset, data in self.log if next_offset > offset), b"")
        throttle_time_ms, has_topics = self.fetch_throttles_ms.popleft() if self.fetch_throttles_ms else (0, True)
        if self.answer_error or not has_topics:
            return SimpleNamespace(throttle_time_ms=throttle_time_ms, error_code=self.answer_error, topics=[])
        self.fetches += 1
        if not data and not self.fetch_error:
            await asyncio.sleep(0.005)
        topics: list[object] = [("store", [(0, self.fetch_error, end_offset, end_offset, 0, [], data)])]
        return SimpleNamespace(throttle_time_ms=throttle_time_ms, error_code=0, topics=topics)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()
    monkeypatch.setattr(reader_module, "AIOKafkaClient", cluster.client)
    monkeypatch.setattr(reader_module, "_BACKOFF_S", 0.001)
    monkeypatch.setattr(reader_module, "_MOST_BACKOFF_S", 0.002)
    return cluster


Until = Callable[[Callable[[list[ReaderEvent]], bool]], Any]


@asynccontextmanager
async def reading() -> AsyncIterator[tuple[list[ReaderEvent], Until]]:
    """Run a reader. Yield the list of its events, and a function that waits until the events satisfy a condition."""
    told: list[ReaderEvent] = []

    async def tell(one: ReaderEvent) -> None:
        told.append(one)

    async def until(is_enough: Callable[[list[ReaderEvent]], bool]) -> None:
        await eventually(lambda: is_enough(told))

    reader = TopicReader(SETTINGS, "me", tell, (Address(host="0.0.0.0", port=9092),))  # noqa: S104
    task = asyncio.ensure_future(reader._read_for_ever())
    try:
        yield told, until
    finally:
        task.cancel()
        await asyncio.wait([task])


def records(told: list[ReaderEvent]) -> list[Setting | RecordFault]:
    return [seen.record for one in told if isinstance(one, RecordsRead) for seen in one.records]


async def test_reads_from_the_beginning_and_then_new_records(cluster: Cluster) -> None:
    cluster.beginning = 40
    cluster.append(rule(1), rule(2))
    cluster.append(rule(3))

    async with reading() as (told, until):
        await until(lambda told: EndReached() in told)
        cluster.append(rule(4))
        await until(lambda told: rule(4) in records(told))

    assert told[0] == ReadingBegan()
    assert records(told) == [rule(1), rule(2), rule(3), rule(4)]
    seen = [one for some in told if isinstance(some, RecordsRead) for one in some.records]
    assert [one.offset for one in seen] == [40, 41, 42, 43]
    assert told.index(EndReached()) == 3
    assert told.count(EndReached()) == 1


async def test_each_portion_says_whether_its_batch_continues(cluster: Cluster) -> None:
    cluster.append(*(rule(number) for number in range(500)))
    cluster.append(*(rule(number) for number in range(251)), gaps=4)

    async with reading() as (told, until):
        await until(lambda told: EndReached() in told)

    portions = [(len(one.records), one.is_whole) for one in told if isinstance(one, RecordsRead)]
    assert portions == [(250, False), (250, True), (250, False), (1, True)]


async def test_progress_is_reported_also_past_emptied_batches(cluster: Cluster) -> None:
    cluster.append(rule(1), rule(2), gaps=2)

    async with reading() as (told, until):
        await until(lambda told: EndReached() in told)
        assert next(one.next_offset for one in told if isinstance(one, EndReached)) == 4
        cluster.append(rule(9), is_control=True)
        await until(lambda told: isinstance(told[-1], RecordsRead) and told[-1].next_offset == 5)
        cluster.append(rule(3))
        await until(lambda told: isinstance(told[-1], RecordsRead) and told[-1].next_offset == 6)

    assert [one.next_offset for one in told if isinstance(one, RecordsRead)] == [2, 5, 6]


async def test_a_wrong_checksum_is_read_again(cluster: Cluster) -> None:
    cluster.append(rule(1))
    next_offset, good = cluster.log[0]
    cluster.log[0] = (next_offset, good[:-1] + b"\xff")

    async with reading() as (told, until):
        await until(lambda told: any(isinstance(one, ReadFailed) for one in told))
        cluster.log[0] = (next_offset, good)
        await until(lambda told: EndReached() in told)

    assert next(one for one in told if isinstance(one, ReadFailed)).reason.endswith("has a wrong checksum")
    assert records(told) == [rule(1)]


@pytest.mark.parametrize(
    ("topic_error", "partitions", "reason"),
    [
        (3, 0, "there is no such topic"),
        (29, 0, "the cluster does not allow it: this client needs the right to READ and DESCRIBE the topic"),
        (0, 2, "the topic must have exactly one partition, but has 2: create it again with one"),
        (5, 1, "[Error 5] LeaderNotAvailableError"),
    ],
)
async def test_an_unreadable_topic_is_reported_and_retried(
    topic_error: int, partitions: int, reason: str, cluster: Cluster
) -> None:
    cluster.topic_error, cluster.partitions = topic_error, partitions

    async with reading() as (told, until):
        await until(lambda told: len(told) > 1)
        assert set(told) == {ReadFailed(reason)}
        cluster.topic_error, cluster.partitions = 0, 1
        await until(lambda told: EndReached() in told)

    assert cluster.clients > 2


async def test_an_unreachable_cluster_is_retried_without_leaking_sockets(cluster: Cluster) -> None:
    cluster.is_away = True

    async with reading() as (told, until):
        await until(lambda told: len(told) == 5)
        cluster.is_away = False
        await until(lambda told: EndReached() in told)

    assert told[0] == ReadFailed("KafkaConnectionError: Unable to bootstrap from k:9092")
    assert cluster.closed == cluster.clients == 6


async def test_a_failure_rereads_the_topic_from_the_beginning(cluster: Cluster) -> None:
    cluster.append(rule(1))

    async with reading() as (told, until):
        await until(lambda told: EndReached() in told)
        cluster.fetch_error = 6
        await until(lambda told: isinstance(told[-1], ReadFailed))
        cluster.append(rule(3))
        cluster.fetch_error = 0
        await until(lambda told: told.count(EndReached()) == 2)

    # The reader may have failed a second time before the broker recovered.
    second = told[max(at for at, one in enumerate(told) if isinstance(one, ReadFailed)) + 1 :]
    assert [type(one) for one in second] == [ReadingBegan, RecordsRead, RecordsRead, EndReached]
    assert records(second) == [rule(1), rule(3)]


async def test_a_high_watermark_below_the_known_end_is_ignored(cluster: Cluster) -> None:
    """A new leader may report a lower high watermark than the former leader for some time."""
    cluster.append(rule(1))
    cluster.append(rule(2))
    cluster.append(rule(3))
    cluster.end_offset = 1

    async with reading() as (told, until):
        held = cluster.log.pop()
        cluster.latest = held[0]
        await until(lambda told: rule(2) in records(told))
        await until(lambda _: cluster.fetches > 6)
        assert EndReached() not in told
        cluster.log.append(held)
        cluster.end_offset = None
        await until(lambda told: EndReached() in told)

    assert [type(one) for one in told] == [ReadingBegan, RecordsRead, RecordsRead, RecordsRead, EndReached]


async def test_a_leader_behind_this_proxy_is_refused(cluster: Cluster) -> None:
    cluster.leader = Address(host="127.0.0.1", port=9092)

    async with reading() as (told, until):
        await until(lambda told: len(told) > 1)
        cluster.leader = Address(host="127.0.0.1", port=9093)
        await until(lambda told: EndReached() in told)

    assert told[0] == ReadFailed(
        "its leader is reached at 127.0.0.1:9092, which is this proxy's own 0.0.0.0:9092: name a "
        "listener of the brokers that has no proxy in front",
        is_own_fault=True,
    )
    assert all(isinstance(request, MetadataRequest) for request in cluster.asked[: told.index(ReadingBegan())])


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the list of the reader's pauses in seconds, which take no real time."""
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def pause(delay_s: float) -> None:
        pauses.append(delay_s)
        await sleep(0)

    monkeypatch.setattr(reader_module, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": pause}))
    return pauses


@pytest.fixture
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "_CHECK_S", 0.002)


@pytest.mark.usefixtures("_looks_often")
async def test_a_moved_leader_and_added_partitions_are_noticed_while_fetches_succeed(
    cluster: Cluster,
) -> None:
    async with reading() as (told, until):
        await until(lambda told: EndReached() in told)
        cluster.leader_id = 8
        await until(lambda told: isinstance(told[-1], EndReached) and told.count(EndReached()) == 2)
        assert [one.reason for one in told if isinstance(one, ReadFailed)] == ["its leader is another broker now"]

        cluster.partitions = 3
        await until(lambda told: isinstance(told[-1], ReadFailed))
        assert "exactly one partition, but has 3" in str(told[-1])


@pytest.mark.usefixtures("_looks_often")
async def test_a_partitioned_broker_alone_does_not_change_the_leader(
    cluster: Cluster,
) -> None:
    async with reading() as (told, until):
        await until(lambda told: EndReached() in told)
        cluster.mistaken = frozenset(BROKERS[:1])
        await until(cluster.has_been_asked_where(8))
        assert not any(isinstance(one, ReadFailed) for one in told)

        # If only two of the brokers answer, one of them alone is not believed either: each of the two may be wrong.
        cluster.silent = frozenset(BROKERS[1:2])
        await until(cluster.has_been_asked_where(8))
        assert not any(isinstance(one, ReadFailed) for one in told)

        cluster.silent, cluster.mistaken = frozenset(BROKERS[2:]), frozenset(BROKERS[:2])
        await until(lambda told: ReadFailed("its leader is another broker now") in told)


@pytest.mark.usefixtures("_looks_often")
async def test_a_broker_without_an_answer_about_the_topic_ends_nothing(
    cluster: Cluster,
) -> None:
    async with reading() as (told, until):
        await until(lambda told: EndReached() in told)
        cluster.topic_error = 5
        await until(cluster.has_been_asked_where(2))
        cluster.append(rule(1))
        await until(lambda told: rule(1) in records(told))

    assert not any(isinstance(one, ReadFailed) for one in told)


async def test_a_throttled_reader_waits_and_continues(cluster: Cluster, pauses: list[float]) -> None:
    cluster.append(rule(1))
    cluster.append(rule(2))
    cluster.fetch_throttles_ms.extend([(700, True), (2_000, False), (0, False)])

    async with reading() as (told, until):
        await until(lambda told: EndReached() in told)
        cluster.fetch_throttles_ms.append((3_000, False))
        await until(lambda _: not cluster.fetch_throttles_ms)
        cluster.append(rule(3))
        await until(lambda told: rule(3) in records(told))

    assert [type(one) for one in told] == [ReadingBegan, RecordsRead, RecordsRead, EndReached, RecordsRead]
    assert records(told) == [rule(1), rule(2), rule(3)]
    # The reader also pauses, by 0.25 s, after an answer that has neither the topic nor a throttle time.
    assert pauses == [0.7, 2.0, 0.25, 3.0]
    assert cluster.clients == 1


async def test_a_stop_does_not_wait_for_the_end_of_a_throttle(cluster: Cluster) -> None:
    cluster.fetch_throttles_ms.append((3_600_000, False))

    async with asyncio.timeout(5), reading() as (_, until):
        await until(lambda _: not cluster.fetch_throttles_ms)

    assert cluster.closed == 1


async def test_the_reader_survives_a_handler_that_fails(cluster: Cluster) -> None:
    cluster.append(rule(1))
    told: list[ReaderEvent] = []
    faults = [RecordsRead, ReadFailed, RecordsRead, ReadFailed]

    async def tell(one: ReaderEvent) -> None:
        if faults and isinstance(one, faults[0]):
            faults.pop(0)
            raise OSError("broken")
        told.append(one)

    task = asyncio.ensure_future(TopicReader(SETTINGS, "me", tell)._read_for_ever())
    await eventually(lambda: EndReached() in told or task.done())
    task.cancel()
    await asyncio.wait([task])

    assert [type(one) for one in told[:5]] == [ReadingBegan, ReadingBegan, ReadingBegan, RecordsRead, EndReached]


async def test_stop_ends_the_thread(cluster: Cluster) -> None:
    told: list[ReaderEvent] = []

    async def tell(one: ReaderEvent) -> None:
        told.append(one)

    reader = TopicReader(SETTINGS, "me", tell)
    reader.join(0)
    reader.start()
    await eventually(lambda: EndReached() in told)
    reader.stop()
    await asyncio.to_thread(reader.join, 10)

    assert not reader._thread.is_alive()
    assert cluster.closed == 1
    reader.stop()


async def test_a_reader_stopped_before_its_start_reads_nothing(cluster: Cluster) -> None:
    async def tell(one: ReaderEvent) -> None:
        raise AssertionError(one)

    reader = TopicReader(SETTINGS, "me", tell)
    reader.stop()
    reader.start()
    await asyncio.to_thread(reader.join, 1)

    assert not reader._thread.is_alive()
    assert cluster.clients == 0
