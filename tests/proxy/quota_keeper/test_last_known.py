"""What a topic had last, on a disk: written behind what is in force, and there after the next start."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from config import terms as terms_module
from config.terms import read_terms
from proxy.quota_keeper import last_known as last_known_module
from proxy.quota_keeper.last_known import LastKnown
from proxy.quota_store import directory as directory_module
from proxy.quota_store.alter import Change
from proxy.quota_store.directory import StoreDirectory
from proxy.quota_store.entity import Entity, StoredRule
from tests.support.stub_broker import eventually, on_uvloop

ALICE = Entity(user="alice")


def rule(rate: float) -> StoredRule:
    return StoredRule(limits={"producer_byte_rate": rate})


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_known_module, "_AGAIN_S", 0.01)


@asynccontextmanager
async def running(path: Path, stored: dict[Entity, StoredRule]) -> AsyncIterator[LastKnown]:
    one = LastKnown(str(path), stored)
    stored |= await one.open()
    task = asyncio.ensure_future(one.run())
    try:
        yield one
    finally:
        task.cancel()
        await asyncio.wait([task])
        await one.close()


def put(one: LastKnown, stored: dict[Entity, StoredRule], entity: Entity, changed: StoredRule | None) -> None:
    if changed is None:
        del stored[entity]
    else:
        stored[entity] = changed
    one.put([Change(entity, changed)])


@on_uvloop
async def test_what_was_put_is_there_at_the_next_start_also_what_was_put_last(tmp_path: Path) -> None:
    stored: dict[Entity, StoredRule] = {}
    async with running(tmp_path, stored) as one:
        put(one, stored, ALICE, rule(1.0))
        await eventually(lambda: StoreDirectory(tmp_path).look().rules == stored)
        put(one, stored, ALICE, rule(2.0))
        put(one, stored, Entity(user="bob"), rule(3.0))
        put(one, stored, Entity(user="bob"), None)
    again: dict[Entity, StoredRule] = {}
    async with running(tmp_path, again):
        assert again == {ALICE: rule(2.0)}


@on_uvloop
async def test_a_disk_that_takes_nothing_is_counted_said_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    append, stored = StoreDirectory.append, dict[Entity, StoredRule]()
    is_full = True

    def sometimes(store: StoreDirectory, changes: Sequence[Change]) -> None:
        if is_full:
            raise OSError(28, "No space left on device")
        append(store, changes)

    monkeypatch.setattr(StoreDirectory, "append", sometimes)
    async with running(tmp_path, stored) as one:
        put(one, stored, ALICE, rule(5.0))
        await eventually(lambda: one.failures > 1)
        put(one, stored, ALICE, rule(6.0))
        is_full = False
        await eventually(lambda: StoreDirectory(tmp_path).look().rules == {ALICE: rule(6.0)})
    assert caplog.text.count("cannot be written: [Errno 28]") == 1


@on_uvloop
async def test_a_long_journal_is_followed_by_a_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_module, "_LEAST_JOURNAL_BYTES", 2_000)
    stored: dict[Entity, StoredRule] = {}
    async with running(tmp_path, stored) as one:
        for number in range(100):
            put(one, stored, Entity(user=f"u{number % 7}"), rule(1.0 + number))
            await asyncio.sleep(0.002)
        await eventually(lambda: list(tmp_path.glob("*.snapshot")))
    again: dict[Entity, StoredRule] = {}
    async with running(tmp_path, again):
        assert again == stored


@on_uvloop
async def test_what_cannot_be_read_is_set_aside_and_keeps_no_proxy_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stored: dict[Entity, StoredRule] = {}
    terms = read_terms({"schedule": {"days": ["mon"], "time_zone": "Europe/Berlin"}})
    async with running(tmp_path, stored) as one:
        put(one, stored, ALICE, StoredRule(limits={"producer_byte_rate": 1.0}, terms=terms))

    def gone(name: str) -> ZoneInfo:
        raise ValueError(name)

    again: dict[Entity, StoredRule] = {}
    with monkeypatch.context() as patched:
        patched.setattr(terms_module, "zone", gone)
        async with running(tmp_path, again) as one:
            assert again == {}
            put(one, again, ALICE, rule(2.0))
    assert "what was known last cannot be read: " in caplog.text
    assert "terms of user alice: schedule.time_zone: 'Europe/Berlin' is no time zone that is known here" in caplog.text
    await eventually(lambda: len(list(tmp_path.glob("*.damaged"))) == 1)
    async with running(tmp_path, {}):
        assert StoreDirectory(tmp_path).look().rules == {ALICE: rule(2.0)}
