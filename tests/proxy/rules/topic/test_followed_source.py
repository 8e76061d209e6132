"""Tests the source of a quota topic: the changes that it reports, and its log."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from kafka_quota_proxy.config.model import Address, AdminClient, Listener, ProxyConfig, QuotaRule, QuotasFrom
from kafka_quota_proxy.config.quota_record import Setting
from kafka_quota_proxy.proxy.quota.entity import Entity
from kafka_quota_proxy.proxy.quota.rule_tables import QuotaChanges
from kafka_quota_proxy.proxy.rules.keeper import RuleKeeper
from kafka_quota_proxy.proxy.rules.topic.clients import (
    EndReached,
    EventHandler,
    ReaderEvent,
    ReadFailed,
    ReadingBegan,
    RecordsRead,
)
from kafka_quota_proxy.proxy.rules.topic.record_table import TopicRecord
from kafka_quota_proxy.proxy.rules.topic.topic_source import TopicSource
from kafka_quota_proxy.proxy.rules.topic.topic_state import TopicState
from tests.support.playbook import Playbook
from tests.support.stub_broker import eventually

SETTINGS = QuotasFrom(topic="store", client=AdminClient(bootstrap_servers=(Address(host="k", port=9092),)))
CONFIG = ProxyConfig(listeners=(Listener(name="a", bind=Address(host="h", port=9092)),), quotas_from=SETTINGS)
FILE = QuotaRule(user="filed", producer_byte_rate=7.0, source="f.yaml:3")
ALICE: Entity = ("alice", None)


def alice(byte_rate: float) -> Setting:
    return Setting(user="alice", key="producer_byte_rate", value=byte_rate)


def read(*records: Setting, is_whole: bool = True) -> RecordsRead:
    return RecordsRead(tuple(TopicRecord(offset, record) for offset, record in enumerate(records)), is_whole=is_whole)


class Watched:
    """A source with a scripted reader, and the changes that it has reported."""

    def __init__(self, *told: ReaderEvent) -> None:
        self.changes: dict[Entity, QuotaRule | None] = {}
        self.portions: list[int] = []
        self.fails = 0
        self.playbook: Playbook
        state = TopicState(name=str(SETTINGS))
        self.topic = TopicSource(str(SETTINGS), state, reader=lambda tell: self.reader(tell, told))
        config = replace(CONFIG, quotas=(FILE,))
        self.keeper = RuleKeeper(config, self.topic, wall_ms=lambda: 0)
        self.keeper.begin(self.changed)

    def reader(self, tell: EventHandler, told: tuple[ReaderEvent, ...]) -> Playbook:
        self.playbook = Playbook(tell, *told)
        return self.playbook

    def changed(self, changes: QuotaChanges) -> None:
        if self.fails:
            self.fails -= 1
            raise OSError("broken")
        self.changes.update(changes.rules)
        self.portions.append(len(changes.rules))

    def rate(self, entity: Entity = ALICE) -> float | None:
        rule = self.changes[entity]
        return None if rule is None else rule.limits.get("producer_byte_rate")


@asynccontextmanager
async def running(watched: Watched) -> AsyncIterator[Watched]:
    await watched.topic.start(watched.keeper.apply)
    runs = [asyncio.ensure_future(run()) for run in (watched.topic.changes, watched.keeper.run)]
    try:
        yield watched
    finally:
        for run in runs:
            run.cancel()
        await asyncio.wait(runs)
        await watched.topic.stop()


async def test_read_rules_are_in_force_before_the_reader_continues() -> None:
    watched = Watched(
        ReadingBegan(), read(*(Setting(user=f"u{n}", key="connections", value=5) for n in range(600))), EndReached()
    )

    async with running(watched):
        await eventually(lambda: watched.topic.has_read)

        assert len(watched.changes) == 600
        assert max(watched.portions) <= 250
        assert watched.topic.is_connected
        assert len(watched.keeper.rules.stored) == 600
    assert watched.playbook.is_stopped
    assert watched.playbook.errors == []


async def test_a_failure_is_logged_once_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    watched = Watched(
        ReadingBegan(),
        read(alice(5.0)),
        EndReached(),
        ReadFailed("away"),
        ReadFailed("still away"),
        ReadingBegan(),
        read(alice(6.0)),
        EndReached(),
    )

    async with running(watched):
        await eventually(lambda: watched.changes and watched.rate() == 6.0)

    assert watched.topic.failures == 2
    assert [record.getMessage().removeprefix("quotas_from kafka://k:9092/store: ") for record in caplog.records] == [
        "read, 1 entities have quotas",
        "cannot be read: away; trying again, and known quotas still apply",
        "read, 1 entities have quotas",
    ]


async def test_reread_rules_are_in_force_before_clients_are_served() -> None:
    rules = [Setting(user=f"u{n}", key="connections", value=5) for n in range(600)]
    watched = Watched(ReadingBegan(), read(*rules[:10]), ReadFailed("away"), ReadingBegan(), read(*rules), EndReached())
    in_force: list[int] = []

    async def serve() -> None:
        await watched.topic.may_serve.wait()
        in_force.append(len(watched.changes))

    first = asyncio.ensure_future(serve())
    async with running(watched), asyncio.timeout(10):
        await first

    assert in_force == [600]


@pytest.mark.parametrize(
    ("told", "may_serve", "has_read"),
    [
        (ReadFailed("away"), False, False),
        (ReadFailed("own", is_own_fault=True), True, False),
        (EndReached(), True, True),
    ],
)
async def test_clients_wait_only_for_a_topic_that_can_be_read(
    told: ReaderEvent, may_serve: bool, has_read: bool
) -> None:
    watched = Watched(told)

    async with running(watched):
        await eventually(lambda: watched.topic.failures or watched.topic.is_connected)

    assert (watched.topic.may_serve.is_set(), watched.topic.has_read) == (may_serve, has_read)
