"""Tests the copy of a topic's rules on disk: it is written after changes and read at the next start."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from kafka_quota_proxy.config import term_values
from kafka_quota_proxy.config.terms import read_terms
from kafka_quota_proxy.proxy.rules.model import Change, Entity, StoredRule
from kafka_quota_proxy.proxy.rules.sqlite.rule_database import RuleDatabase, read_store
from kafka_quota_proxy.proxy.rules.topic import topic_copy as module
from kafka_quota_proxy.proxy.rules.topic.topic_copy import TopicCopy
from tests.support.stores import damage, keep
from tests.support.stub_broker import eventually, on_uvloop

ALICE = Entity(user="alice")


def rule(rate: float) -> StoredRule:
    return StoredRule(limits={"producer_byte_rate": rate})


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RETRY_S", 0.01)


@asynccontextmanager
async def running(path: Path, stored: dict[Entity, StoredRule]) -> AsyncIterator[TopicCopy]:
    one = TopicCopy(str(path))
    stored |= await one.open()
    task = asyncio.ensure_future(one.run())
    try:
        yield one
    finally:
        task.cancel()
        await asyncio.wait([task])
        await one.close()


def put(one: TopicCopy, stored: dict[Entity, StoredRule], entity: Entity, changed: StoredRule | None) -> None:
    if changed is None:
        del stored[entity]
    else:
        stored[entity] = changed
    one.put([Change(entity, changed)])


@on_uvloop
async def test_changes_are_there_at_the_next_start_also_the_last_one(tmp_path: Path) -> None:
    stored: dict[Entity, StoredRule] = {}
    async with running(tmp_path, stored) as one:
        put(one, stored, ALICE, rule(1.0))
        await eventually(lambda: read_store(tmp_path).rules == stored)
        put(one, stored, ALICE, rule(2.0))
        put(one, stored, Entity(user="bob"), rule(3.0))
        put(one, stored, Entity(user="bob"), None)
    again: dict[Entity, StoredRule] = {}
    async with running(tmp_path, again):
        assert again == {ALICE: rule(2.0)}


@on_uvloop
async def test_failed_writes_are_counted_logged_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write, stored = RuleDatabase.write, dict[Entity, StoredRule]()
    is_full = True

    def sometimes(database: RuleDatabase, changes: Sequence[Change]) -> None:
        if is_full:
            raise OSError(28, "No space left on device")
        write(database, changes)

    monkeypatch.setattr(RuleDatabase, "write", sometimes)
    async with running(tmp_path, stored) as one:
        put(one, stored, ALICE, rule(5.0))
        await eventually(lambda: one.failures > 1)
        put(one, stored, ALICE, rule(6.0))
        is_full = False
        await eventually(lambda: read_store(tmp_path).rules == {ALICE: rule(6.0)})
    assert caplog.text.count("cannot be written: [Errno 28]") == 1


def gone(name: str) -> ZoneInfo:
    raise ValueError(name)


IN_BERLIN = StoredRule(
    limits={"producer_byte_rate": 1.0},
    terms=read_terms({"schedule": {"days": ["mon"], "time_zone": "Europe/Berlin"}}),
)


@on_uvloop
async def test_rules_that_are_not_understood_are_counted_and_leave_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stored: dict[Entity, StoredRule] = {}
    async with running(tmp_path, stored) as one:
        for number in range(20):
            put(one, stored, Entity(user=f"u{number}"), rule(1.0 + number))
        put(one, stored, ALICE, rule(7.0))
        put(one, stored, ALICE, IN_BERLIN)

    again: dict[Entity, StoredRule] = {}
    understood = {entity: each for entity, each in stored.items() if entity != ALICE}
    monkeypatch.setattr(term_values, "zone", gone)
    async with running(tmp_path, again) as one:
        assert again == understood
        assert read_store(tmp_path).rules == understood
        put(one, again, ALICE, rule(2.0))
    assert "20 of the 21 last known quotas can be read" in caplog.text
    assert "'Europe/Berlin' is not a known time zone" in caplog.text
    assert read_store(tmp_path).rules == {**understood, ALICE: rule(2.0)}


@on_uvloop
async def test_damaged_copy_is_read_as_far_as_possible_and_written_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keep(tmp_path, *(Entity(user=f"u{number:04}") for number in range(1_000)))
    damage(tmp_path)

    again: dict[Entity, StoredRule] = {}
    async with running(tmp_path, again):
        assert 0 < len(again) < 1_000
    assert f"is damaged: database disk image is malformed; it was set aside; {len(again)} of its quotas could" in (
        caplog.text
    )
    last: dict[Entity, StoredRule] = {}
    async with running(tmp_path, last):
        assert last == again
