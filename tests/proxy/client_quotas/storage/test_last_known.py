"""What a topic had last, on a disk: written behind what is in force, and there after the next start."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from kafka_quota_proxy.config import terms as terms_module
from kafka_quota_proxy.config.terms import read_terms
from kafka_quota_proxy.proxy.client_quotas.rules.alter import Change
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule
from kafka_quota_proxy.proxy.client_quotas.storage import last_known as last_known_module
from kafka_quota_proxy.proxy.client_quotas.storage import store_directory as directory_module
from kafka_quota_proxy.proxy.client_quotas.storage.journal import begun_journal
from kafka_quota_proxy.proxy.client_quotas.storage.last_known import TopicCopy
from kafka_quota_proxy.proxy.client_quotas.storage.record import write_line, written_changes
from kafka_quota_proxy.proxy.client_quotas.storage.store_directory import StoreDirectory
from tests.support.stub_broker import eventually, on_uvloop

ALICE = Entity(user="alice")


def rule(rate: float) -> StoredRule:
    return StoredRule(limits={"producer_byte_rate": rate})


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_known_module, "_AGAIN_S", 0.01)


@asynccontextmanager
async def running(path: Path, stored: dict[Entity, StoredRule]) -> AsyncIterator[TopicCopy]:
    one = TopicCopy(str(path), stored)
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


def aside(path: Path) -> list[Path]:
    return list(path.glob("*.damaged"))


def gone(name: str) -> ZoneInfo:
    raise ValueError(name)


IN_BERLIN = StoredRule(
    limits={"producer_byte_rate": 1.0},
    terms=read_terms({"schedule": {"days": ["mon"], "time_zone": "Europe/Berlin"}}),
)


@pytest.mark.parametrize("most_bytes", [1_000_000, 200], ids=["a journal", "snapshots"])
@on_uvloop
async def test_of_what_was_known_last_all_is_read_that_is_understood_and_said_how_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, most_bytes: int
) -> None:
    monkeypatch.setattr(directory_module, "_LEAST_JOURNAL_BYTES", most_bytes)
    stored: dict[Entity, StoredRule] = {}
    bob, carol = Entity(user="bob"), Entity(user="carol")
    async with running(tmp_path, stored) as one:
        for number in range(20):
            put(one, stored, Entity(user=f"u{number}"), rule(1.0 + number))
            await asyncio.sleep(0.002)
        # The last counts: of Alice that is one that is not understood, of Bob one that is, of Carol none.
        for entity, changed in ((ALICE, rule(7.0)), (bob, IN_BERLIN), (carol, IN_BERLIN)):
            put(one, stored, entity, changed)
            await eventually(lambda: StoreDirectory(tmp_path).look().rules == stored)
        then: list[tuple[Entity, StoredRule | None]] = [(ALICE, IN_BERLIN), (bob, rule(8.0)), (carol, None)]
        for entity, last in then:
            put(one, stored, entity, last)
            await eventually(lambda: StoreDirectory(tmp_path).look().rules == stored)

    again: dict[Entity, StoredRule] = {}
    understood = {entity: each for entity, each in stored.items() if entity != ALICE}
    with monkeypatch.context() as patched:
        patched.setattr(terms_module, "zone", gone)
        async with running(tmp_path, again) as one:
            assert again == understood
            put(one, again, ALICE, rule(2.0))
        assert "of what was known last of 22 entities 21 can be read" in caplog.text
        assert "'Europe/Berlin' is no time zone that is known here" in caplog.text
        assert aside(tmp_path)
        # What is not understood is not there any more, so that all others may read it, too.
        assert StoreDirectory(tmp_path).look().rules == {**understood, ALICE: rule(2.0)}


@pytest.mark.parametrize("has_older", [True, False])
@on_uvloop
async def test_of_a_damaged_snapshot_what_is_whole_is_read_where_no_older_files_have_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, has_older: bool
) -> None:
    store, rules = StoreDirectory(tmp_path), {Entity(user=f"u{number}"): rule(1.0) for number in range(5)}
    store.open()
    store.append([Change(entity, each) for entity, each in rules.items()])
    store.write_snapshot(store.begin_snapshot(), rules)
    store.append([Change(Entity(user="u0"), rule(2.0)), Change(ALICE, rule(3.0))])
    store.close()
    snapshot = tmp_path / f"{1:020}.snapshot"
    lines = snapshot.read_bytes().splitlines(keepends=True)
    snapshot.write_bytes(b"".join(lines[:-2]) + b"?" + b"".join(lines[-2:]))
    if not has_older:
        (tmp_path / f"{0:020}.journal").unlink()

    again: dict[Entity, StoredRule] = {}
    async with running(tmp_path, again):
        whole = rules if has_older else {entity: rules[entity] for entity in list(rules)[:3]}
        assert again == {**whole, Entity(user="u0"): rule(2.0), ALICE: rule(3.0)}
    assert ("of 6 entities 4 can be read" in caplog.text) == (not has_older)
    last: dict[Entity, StoredRule] = {}
    async with running(tmp_path, last):
        assert last == again


@on_uvloop
async def test_what_is_of_another_version_is_set_aside_and_keeps_no_proxy_from_starting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other, _ = write_line({"kafka-quota-store": 2, "file": "journal", "after": 0}, 0)
    (tmp_path / f"{0:020}.journal").write_bytes(other)

    again: dict[Entity, StoredRule] = {}
    async with running(tmp_path, again) as one:
        assert again == {}
        put(one, again, ALICE, rule(2.0))

    assert "what was known last cannot be read: " in caplog.text
    assert "version 2; this program knows 1" in caplog.text
    assert len(aside(tmp_path)) == 1
    async with running(tmp_path, {}):
        assert StoreDirectory(tmp_path).look().rules == {ALICE: rule(2.0)}


@on_uvloop
async def test_a_line_that_is_none_of_ours_is_read_up_to(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines, checksum = begun_journal(0)
    for number, content in enumerate([[ALICE, 1.0], "?", [Entity(user="bob"), 2.0]], 1):
        line = content if content == "?" else written_changes(number, [Change(content[0], rule(content[1]))])  # type: ignore[arg-type]
        data, checksum = write_line(line, checksum)
        lines += data
    (tmp_path / f"{0:020}.journal").write_bytes(lines)

    again: dict[Entity, StoredRule] = {}
    async with running(tmp_path, again):
        assert again == {ALICE: rule(1.0)}
    assert "not a change" in caplog.text
