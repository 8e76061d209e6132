"""Simulates a quota topic, the writer of the proxy and the reader that follows the topic from its beginning."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from kafka_quota_proxy.config.quota_record import Setting, decode, encode
from kafka_quota_proxy.proxy.rules import administration
from kafka_quota_proxy.proxy.rules.topic.clients import (
    EndReached,
    EventHandler,
    NotWrittenError,
    ReadFailed,
    ReadingBegan,
    Record,
    RecordsRead,
    TopicWriter,
)
from kafka_quota_proxy.proxy.rules.topic.record_table import TopicRecord
from kafka_quota_proxy.proxy.rules.topic.topic_source import TopicSource
from kafka_quota_proxy.proxy.rules.topic.topic_state import TopicState

NAME = "kafka://k:9092/store"


@dataclass
class TopicLog:
    """The records of the topic, and its simulated faults.

    Attributes:
        records: All records from offset 0 on.
        is_away: Whether readers and writers fail.
        is_reading: Whether readers get the records.
        error: The error of the next write. If ``may_be_there`` is set, the records are written nevertheless.
        garbles: Whether new records are written as garbage.
        config: The configuration of the topic.
        readers: The number of readers so far.
    """

    records: list[Record] = field(default_factory=list)
    is_away: bool = False
    is_reading: bool = True
    error: NotWrittenError | None = None
    garbles: bool = False
    config: Mapping[str, str] | None = field(default_factory=lambda: {"cleanup.policy": "compact"})
    readers: int = 0

    def write(self, *records: Setting) -> None:
        self.records += map(encode, records)


class LogWriter:
    """Stands in for ``TopicWriter``. It writes to a ``TopicLog``."""

    def __init__(self, log: TopicLog) -> None:
        self.log = log
        self.is_closed = False

    async def end_offset(self) -> int:
        if self.log.is_away:
            raise NotWrittenError("no answer in time")
        return len(self.log.records)

    async def append(self, records: Sequence[Record]) -> int:
        await asyncio.sleep(0)
        error, self.log.error = self.log.error, None
        offset = len(self.log.records)
        if error is None or error.may_be_there:
            self.log.records += [(key, b"garbage") for key, _ in records] if self.log.garbles else records
        if error is not None:
            raise error
        return offset

    async def configuration(self) -> Mapping[str, str] | None:
        return self.log.config

    async def close(self) -> None:
        self.is_closed = True


class LogReader:
    """Stands in for the reader thread. It reads at most 250 records at a time, on the caller's event loop."""

    def __init__(self, log: TopicLog, tell: EventHandler) -> None:
        self.log = log
        self._tell = tell
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.log.readers += 1
        self._task = asyncio.ensure_future(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.get_loop().call_soon_threadsafe(self._task.cancel)

    def join(self, timeout_s: float) -> None:
        """Do nothing, because the reader ends in the next iteration of the event loop."""

    async def _run(self) -> None:
        while True:
            try:
                await self._read_anew()
            except Exception as error:  # noqa: BLE001 - as the real one
                with suppress(Exception):
                    await self._tell(ReadFailed(str(error)))
            await asyncio.sleep(0.001)

    async def _read_anew(self) -> None:
        if self.log.is_away:
            raise ConnectionError("the cluster is away")
        await self._tell(ReadingBegan())
        offset, is_at_end = 0, False
        while not self.log.is_away:
            some = self.log.records[offset : offset + 250] if self.log.is_reading else []
            if some:
                seen = tuple(TopicRecord(offset + index, decode(*record)) for index, record in enumerate(some))
                offset += len(some)
                await self._tell(RecordsRead(seen, offset))
            elif not is_at_end:
                is_at_end = True
                await self._tell(EndReached(offset))
            await asyncio.sleep(0.001)
        raise ConnectionError("the cluster is away")


def made_up(monkeypatch: pytest.MonkeyPatch) -> TopicLog:
    """Return a topic that quota managers use from now on, in place of the topic of their configuration."""
    log = TopicLog()

    monkeypatch.setattr(administration, "source_of", lambda _: stored_in(log))
    return log


def stored_in(log: TopicLog, writer: TopicWriter | None = None) -> TopicSource:
    """Return a store in a made-up topic. The writer may be another than the one that writes to the topic."""
    return TopicSource(
        NAME,
        TopicState(name=NAME),
        reader=lambda tell: LogReader(log, tell),
        writer=writer or LogWriter(log),
    )
