"""Tests when the usage log reads the counters, on the event loop."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from time import time

import pytest

from kafka_quota_proxy.config.model import Address, Listener, ProxyConfig, QuotaRule, UsageFiles, UsageLog
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.usage import log as log_module
from kafka_quota_proxy.proxy.usage import meter as meter_module
from kafka_quota_proxy.proxy.usage.log import UsageLogger, _until_end_ms, usage_log
from kafka_quota_proxy.proxy.usage.meter import MeteredBroker
from kafka_quota_proxy.proxy.usage.record import Batch
from kafka_quota_proxy.proxy.usage.sink import Sink
from tests.support.stub_broker import eventually

CONFIG = ProxyConfig(
    listeners=(Listener(name="clients", bind=Address(host="127.0.0.1", port=9092)),),
    usage_log=UsageLog(interval_ms=20, proxy="p1", to=UsageFiles(directory="usage")),
    quotas=(QuotaRule(client_id="etl", producer_byte_rate=1_000.0),),
)


class Memory(Sink):
    """A sink that keeps batches in memory, without a thread."""

    def __init__(self, last_start_ms: int | None = 0) -> None:
        self.name = "memory"
        self.batches: list[Batch] = []
        self.is_full = False
        self.hangs = False
        self.stopped = 0.0
        self.last_start_ms = last_start_ms

    def start(self) -> None: ...

    @property
    def has_room(self) -> bool:
        return not self.is_full

    def put(self, batch: Batch) -> None:
        self.batches.append(batch)

    def stop(self, timeout_s: float) -> None:
        self.stopped = timeout_s

    def join(self, timeout_s: float) -> None: ...

    @property
    def is_running(self) -> bool:
        return self.hangs and self.stopped > 0

    @property
    def amounts(self) -> list[int]:
        return [used.amount for batch in self.batches for _, used in batch.records]


def charge(quotas: BrokerQuotas, amount: int) -> None:
    quotas.bucket(QuotaKind.PRODUCE, principal="alice", client_id="etl", now_ms=0).charge(amount, now_ms=0)


@asynccontextmanager
async def logging(quotas: BrokerQuotas, sink: Memory) -> AsyncIterator[UsageLogger]:
    assert CONFIG.usage_log is not None
    usage = UsageLogger(
        CONFIG.usage_log,
        "p1",
        brokers=lambda: [MeteredBroker(1, quotas, enforces=True)],
        replicas=lambda: (),
        sink=sink,
    )
    usage.start()
    async with asyncio.TaskGroup() as tasks:
        run = tasks.create_task(usage.run())
        yield usage
        run.cancel()


async def test_each_interval_goes_to_the_sink() -> None:
    quotas, sink = BrokerQuotas(CONFIG), Memory()
    async with logging(quotas, sink):
        charge(quotas, 5)
        await eventually(lambda: sink.batches)
        charge(quotas, 7)
        await eventually(lambda: len(sink.batches) > 1)

    assert sink.amounts == [5, 7]
    assert sink.batches[0].start_ms + sink.batches[0].interval_ms <= sink.batches[1].start_ms + 1


async def test_intervals_end_at_multiples_on_the_wall_clock() -> None:
    quotas, sink = BrokerQuotas(CONFIG), Memory()
    async with logging(quotas, sink):
        for number in range(1, 4):
            charge(quotas, 1)
            wanted = number
            await eventually(lambda: len(sink.batches) >= wanted)  # noqa: B023 - it is over before the next one

    late_ms = [(batch.start_ms + batch.interval_ms) % 20 for batch in sink.batches]
    assert min(late_ms) < 10


@pytest.mark.parametrize(
    ("wall_ms", "expected"), [(1_000_000, 1_000), (1_000_001, 999), (1_000_500, 500), (1_000_950, 1_050)]
)
def test_an_early_timer_does_not_split_an_interval(wall_ms: int, expected: int) -> None:
    assert _until_end_ms(wall_ms, 1_000) == expected


async def test_a_full_sink_extends_the_interval() -> None:
    quotas, full = BrokerQuotas(CONFIG), Memory()
    full.is_full = True
    async with logging(quotas, full) as usage:
        charge(quotas, 5)
        await eventually(lambda: usage.postponed >= 3)
        charge(quotas, 7)
        full.is_full = False
        await eventually(lambda: full.batches)

    assert full.amounts == [12]
    assert full.batches[0].interval_ms >= 3 * 20


async def test_reading_waits_for_the_last_start_of_an_earlier_process(
    caplog: pytest.LogCaptureFixture,
) -> None:
    quotas, sink = BrokerQuotas(CONFIG), Memory(last_start_ms=None)
    ahead_ms = int(time() * 1_000) + 60_000
    async with logging(quotas, sink) as usage:
        charge(quotas, 5)
        await eventually(lambda: usage.postponed >= 2)
        assert sink.batches == []
        sink.last_start_ms = ahead_ms
        await eventually(lambda: sink.batches)

    assert sink.batches[0].start_ms == ahead_ms + 1
    assert "the usage log is 59 s ahead of the clock" in caplog.text


@pytest.mark.parametrize("is_full", [False, True])
async def test_a_stop_logs_the_use_until_then(is_full: bool) -> None:
    quotas, sink = BrokerQuotas(CONFIG), Memory(last_start_ms=None if is_full else 0)
    sink.is_full = is_full
    async with logging(quotas, sink) as usage:
        pass
    charge(quotas, 5)
    await usage.stop(asyncio.Event())

    assert sink.amounts == [5]
    assert sink.stopped == log_module.STOP_TIMEOUT_S


async def test_a_hurried_stop_does_not_wait_for_a_hanging_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "_HURRIED_S", 0.01)
    sink, hurry = Memory(), asyncio.Event()
    sink.hangs = True
    async with logging(BrokerQuotas(CONFIG), sink) as usage:
        pass
    async with asyncio.timeout(log_module.STOP_TIMEOUT_S / 2), asyncio.TaskGroup() as tasks:
        stop = tasks.create_task(usage.stop(hurry))
        await eventually(lambda: sink.stopped == log_module.STOP_TIMEOUT_S)
        assert not stop.done()
        hurry.set()

    assert sink.stopped == 0


async def test_a_broker_may_join_during_a_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter_module, "_SLICE", 1)
    assert CONFIG.usage_log is not None
    brokers, sink = {1: BrokerQuotas(CONFIG), 2: BrokerQuotas(CONFIG)}, Memory()

    def joining() -> Iterator[MeteredBroker]:
        for node_id, quotas in brokers.items():
            yield MeteredBroker(node_id, quotas, enforces=True)

    usage = UsageLogger(CONFIG.usage_log, "p1", brokers=joining, replicas=lambda: (), sink=sink)
    charge(brokers[1], 5)
    charge(brokers[2], 7)
    reading = iter(usage._read())
    next(reading)
    next(reading)
    brokers[3] = BrokerQuotas(CONFIG)

    (batch,) = [batch for batch in reading if batch is not None]
    assert sorted(used.amount for _, used in batch.records) == [5, 7]


@pytest.mark.usefixtures("has_faults")
async def test_a_failed_reading_is_logged_and_retried(caplog: pytest.LogCaptureFixture) -> None:
    quotas, sink = BrokerQuotas(CONFIG), Memory()
    async with logging(quotas, sink) as usage:
        brokers, usage._brokers = usage._brokers, lambda: 1 / 0  # type: ignore[assignment, return-value]
        charge(quotas, 5)
        await eventually(lambda: "could not close an interval" in caplog.text)
        usage._brokers = brokers
        await eventually(lambda: sink.amounts == [5])


async def test_files_are_written(tmp_path: Path) -> None:
    config = replace(CONFIG, usage_log=UsageLog(interval_ms=20, to=UsageFiles(directory=str(tmp_path))))
    quotas = BrokerQuotas(config)
    for is_started in (False, True):
        usage = usage_log(config, brokers=lambda: [MeteredBroker(1, quotas, enforces=True)], replicas=lambda: ())
        assert usage is not None
        if is_started:
            usage.start()
            charge(quotas, 5)
        await usage.stop(asyncio.Event())

    (file,) = tmp_path.glob("*.jsonl")  # noqa: ASYNC240 - no client waits for this loop
    record = json.loads(file.read_bytes())
    assert record["amount"] == 5
    assert record["proxy"].endswith("-9092")


def test_without_the_section_there_is_no_logger() -> None:
    assert usage_log(replace(CONFIG, usage_log=None), brokers=lambda: (), replicas=lambda: ()) is None
