"""Tests a store in a simulated topic: a quota set at one proxy is in force at all of them."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from kafka_quota_proxy.config.model import DEFAULT, Enforcement
from kafka_quota_proxy.config.quota_record import TERMS, Setting
from kafka_quota_proxy.config.terms import Terms
from kafka_quota_proxy.proxy.rules.errors import KAFKA_STORAGE_ERROR, POLICY_VIOLATION, REQUEST_TIMED_OUT
from kafka_quota_proxy.proxy.rules.model import Change, Entity, StoredRule
from kafka_quota_proxy.proxy.rules.source import NotKeptError
from kafka_quota_proxy.proxy.rules.topic import topic_source as topic_module
from kafka_quota_proxy.proxy.rules.topic import topic_state as topic_state
from kafka_quota_proxy.proxy.rules.topic.clients import (
    EndReached,
    NotWrittenError,
    ReaderEvent,
    ReadFailed,
    ReadingBegan,
    Record,
    RecordsRead,
)
from kafka_quota_proxy.proxy.rules.topic.record_table import TopicRecord
from kafka_quota_proxy.proxy.rules.topic.topic_source import TopicSource
from kafka_quota_proxy.proxy.rules.topic.topic_state import TopicChange, TopicState
from tests.support.playbook import Playbook
from tests.support.stub_broker import eventually, on_uvloop
from tests.support.topic_log import LogWriter, TopicLog, stored_in

P, C = "producer_byte_rate", "consumer_byte_rate"
ALICE = Entity(user="alice")
NAME = "kafka://k:9092/store"


def rule(**limits: float) -> StoredRule:
    return StoredRule(limits=limits)


class Bed:
    """A ``TopicSource``, and the changes that it has applied."""

    def __init__(self, log: TopicLog) -> None:
        self.stored: dict[Entity, StoredRule] = {}
        self.held: list[list[Entity]] = []
        self.fails = 0
        self.writer = LogWriter(log)
        self.store = stored_in(log, self.writer)

    async def hold(self, changes: Sequence[Change]) -> None:
        await asyncio.sleep(0)
        if changes:
            self.held.append([entity for entity, _ in changes])
        for entity, changed in changes:
            if changed is None:
                del self.stored[entity]
            else:
                self.stored[entity] = changed
        if self.fails and self.store.has_read:
            self.fails -= 1
            raise RuntimeError("not now")

    async def set(self, entity: Entity, limits: Mapping[str, float]) -> None:
        await self.store.catch_up()
        change = Change(entity, StoredRule(limits=limits) if limits else None)
        await self.store.keep([change], dict(self.stored))


@asynccontextmanager
async def bed(log: TopicLog) -> AsyncIterator[Bed]:
    one = Bed(log)
    await one.store.start(one.hold)
    running = asyncio.ensure_future(one.store.changes())
    try:
        if not log.is_away:
            await one.store.may_serve.wait()
        yield one
    finally:
        running.cancel()
        await asyncio.wait([running])
        await one.store.stop()
        assert one.writer.is_closed


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_module, "_CHECK_S", 0.001)


@on_uvloop
async def test_change_is_in_force_when_it_is_answered_and_then_at_every_proxy() -> None:
    log = TopicLog()
    async with bed(log) as one, bed(log) as other:
        await one.set(ALICE, {P: 5.0, C: 6.0})
        assert one.stored == {ALICE: rule(**{P: 5.0, C: 6.0})}

        # The second proxy decides on the first proxy's change, even if it had not read that change before.
        await other.set(ALICE, {P: 5.0, C: 7.0})
        await one.set(Entity(ip=DEFAULT), {"connection_creation_rate": 2.0})
        await eventually(lambda: one.stored == other.stored)
        assert one.stored[ALICE] == rule(**{P: 5.0, C: 7.0})
        assert [value is None for _, value in log.records] == [False, False, False, False]
        await other.set(ALICE, {})
        assert ALICE not in other.stored
    assert log.records[-2:] == [
        (b'{"user":"alice","key":"consumer_byte_rate"}', None),
        (b'{"user":"alice","key":"producer_byte_rate"}', None),
    ]


def batch(offset: int, *records: Setting, is_whole: bool = True) -> RecordsRead:
    """Return the event that a reader reports for the records of a batch."""
    seen = tuple(TopicRecord(at, record) for at, record in enumerate(records, start=offset))
    return RecordsRead(seen, offset + len(seen), is_whole=is_whole)


@on_uvloop
async def test_batch_is_applied_when_all_of_it_is_read() -> None:
    """The terms of a limit may follow in the same batch, and change its meaning."""
    limit, lower = (Setting(user="alice", key=P, value=value) for value in (5.0, 1.0))
    terms = Setting(user="alice", key=TERMS, value={"enforcement": "observe"})
    held: list[Change] = []
    offsets: list[int] = []

    async def hold(changes: Sequence[Change]) -> None:
        held.extend(changes)
        offsets.extend(store.offset for _ in changes)

    told: list[ReaderEvent] = [
        ReadingBegan(), EndReached(0),
        batch(0, limit, is_whole=False), batch(1, terms),
        batch(2, lower, is_whole=False), batch(3, replace(terms, value=None)),
    ]  # fmt: skip
    store = TopicSource(
        NAME, TopicState(name=NAME), reader=lambda tell: Playbook(tell, *told), writer=LogWriter(TopicLog())
    )
    await store.start(hold)
    await eventually(lambda: store.offset == 4)
    await store.stop()

    observed = StoredRule(limits={P: 5.0}, terms=Terms(enforcement=Enforcement.OBSERVE))
    assert held == [Change(ALICE, observed), Change(ALICE, rule(**{P: 1.0}))]
    assert offsets == [0, 2]


@on_uvloop
async def test_batch_that_the_reader_fails_in_is_not_applied() -> None:
    limit = Setting(user="alice", key=P, value=5.0)
    terms = Setting(user="alice", key=TERMS, value={"enforcement": "observe"})
    bob = Setting(user="bob", key=P, value=1.0)
    held: list[Change] = []

    async def hold(changes: Sequence[Change]) -> None:
        held.extend(changes)

    told: list[ReaderEvent] = [
        ReadingBegan(), EndReached(0), batch(0, limit, is_whole=False), ReadFailed("cut off"),
        ReadingBegan(), batch(0, limit, terms), batch(2, bob), EndReached(3),
    ]  # fmt: skip
    store = TopicSource(
        NAME, TopicState(name=NAME), reader=lambda tell: Playbook(tell, *told), writer=LogWriter(TopicLog())
    )
    await store.start(hold)
    await eventually(lambda: store.offset == 3)
    await store.stop()

    observed = StoredRule(limits={P: 5.0}, terms=Terms(enforcement=Enforcement.OBSERVE))
    assert held == [Change(ALICE, observed), Change(Entity(user="bob"), rule(**{P: 1.0}))]


@on_uvloop
async def test_topic_is_read_to_its_end_before_clients_are_served() -> None:
    log = TopicLog()
    log.write(*(Setting(client_id=f"c{number}", key=P, value=1.0) for number in range(600)))

    async with bed(log) as one:
        assert one.store.has_read
        assert len(one.stored) == 600
        assert max(map(len, one.held)) == 250
        assert one.store.status() == {
            "topic": NAME, "connected": True, "read": True, "entities": 600, "offset": 600,
        }  # fmt: skip


@on_uvloop
async def test_other_tasks_run_while_an_unchanged_topic_is_read_again() -> None:
    log = TopicLog()
    log.write(*(Setting(client_id=f"c{number}", key=P, value=1.0) for number in range(1_000)))
    turns, looked_at = 0, []

    async def tick() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with bed(log) as one:
        log.is_away = True
        await eventually(lambda: not one.store.is_connected)
        ticking, changes = asyncio.ensure_future(tick()), one.store.state.changes

        def counted(most: int | None = None) -> list[TopicChange]:
            looked_at.append(turns)
            return changes(most)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(one.store.state, "changes", counted)
            log.is_away = False
            await eventually(lambda: one.store.is_connected)
        ticking.cancel()
    assert len(looked_at) == 4
    assert len(set(looked_at)) == 4


@on_uvloop
async def test_unreachable_topic_keeps_its_rules_and_refuses_changes() -> None:
    log = TopicLog()
    async with bed(log) as one, bed(log) as other:
        await one.set(ALICE, {P: 5.0})
        await eventually(lambda: other.stored)
        log.is_away = True
        await eventually(lambda: not one.store.is_connected)

        with pytest.raises(NotKeptError, match="while kafka://k:9092/store cannot be read: the cluster is away") as no:
            await one.set(ALICE, {P: 6.0})
        assert no.value.error_code == KAFKA_STORAGE_ERROR
        assert one.store.status()["reason"] == "the cluster is away"
        assert one.stored == {ALICE: rule(**{P: 5.0})}
        assert one.store.refused == 1

        log.write(Setting(user="alice", key=P, value=7.0), Setting(user="alice", key=C, value=8.0))
        log.is_away = False
        await eventually(lambda: one.stored == other.stored == {ALICE: rule(**{P: 7.0, C: 8.0})})
        # The rules are applied before the topic counts as read, so wait for that as well.
        await eventually(lambda: one.store.is_connected)
        await one.set(ALICE, {C: 8.0})
        assert one.stored == {ALICE: rule(**{C: 8.0})}


@on_uvloop
async def test_failed_write_is_refused_with_its_reason() -> None:
    log = TopicLog()
    async with bed(log) as one:
        log.error = NotWrittenError("not enough replicas")
        with pytest.raises(NotKeptError, match=r"No quota was changed: .* cannot be written: not enough") as no:
            await one.set(ALICE, {P: 5.0})
        assert no.value.error_code == KAFKA_STORAGE_ERROR
        log.error = NotWrittenError("ask for less", is_final=True)
        with pytest.raises(NotKeptError, match="ask for less") as no:
            await one.set(ALICE, {P: 5.0})
        assert no.value.error_code == POLICY_VIOLATION
        log.error = NotWrittenError("no answer", may_be_there=True)
        with pytest.raises(NotKeptError, match=r"may be in kafka://k:9092/store and apply later: no answer") as no:
            await one.set(ALICE, {P: 5.0})
        assert no.value.error_code == REQUEST_TIMED_OUT
        await eventually(lambda: one.stored == {ALICE: rule(**{P: 5.0})})
        with pytest.raises(NotKeptError, match="a name has 32768 bytes; at most 32767 are allowed") as no:
            await one.set(Entity(user="a" * 32_768), {P: 5.0})
        assert no.value.error_code == POLICY_VIOLATION


@on_uvloop
async def test_change_that_is_not_read_back_has_an_unknown_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    # This timeout is for this test alone. On a busy machine, reading back may take longer.
    monkeypatch.setattr(topic_module, "_READ_BACK_S", 0.2)
    log = TopicLog()
    async with bed(log) as one:
        log.is_reading = False
        with pytest.raises(NotKeptError, match="at offset 0, but does not apply at this proxy yet") as no:
            await one.set(ALICE, {P: 5.0})
        assert no.value.error_code == REQUEST_TIMED_OUT
        with pytest.raises(NotKeptError, match=r"No quota was changed: .* is behind"):
            await one.set(ALICE, {P: 6.0})
        log.is_reading, log.garbles = True, True
        await eventually(lambda: one.stored)
        with pytest.raises(NotKeptError, match="at offset 1, but could not be read back"):
            await one.set(ALICE, {P: 6.0})
        assert one.stored == {ALICE: rule(**{P: 5.0})}


@on_uvloop
@pytest.mark.parametrize("comes", [True, False])
async def test_change_after_one_of_unknown_outcome_is_made(monkeypatch: pytest.MonkeyPatch, comes: bool) -> None:
    log = TopicLog()
    async with bed(log) as one:
        append, lost = one.writer.append, list[Record]()

        async def times_out(records: Sequence[Record]) -> int:
            lost.extend(records)
            raise NotWrittenError("no answer in time", may_be_there=True)

        monkeypatch.setattr(one.writer, "append", times_out)
        with pytest.raises(NotKeptError, match="The outcome is unknown") as no:
            await one.set(ALICE, {P: 5.0})
        assert no.value.may_hold
        monkeypatch.setattr(one.writer, "append", append)
        if comes:
            log.records += lost

        await one.set(Entity(user="bob"), {P: 6.0})

        late = {ALICE: rule(**{P: 5.0})} if comes else {}
        assert one.stored == {**late, Entity(user="bob"): rule(**{P: 6.0})}


@on_uvloop
async def test_change_with_unknown_terms_from_elsewhere_has_an_unknown_outcome() -> None:
    log = TopicLog()
    async with bed(log) as one:
        append = one.writer.append

        async def overtaken(records: Sequence[Record]) -> int:
            log.records.append((b'{"user":"alice","key":"terms"}', b'{"value":["of a later version"]}'))
            return await append(records)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(one.writer, "append", overtaken)
            with pytest.raises(NotKeptError, match=r"because of the terms of user alice in kafka://.*/store@1") as no:
                await one.set(ALICE, {P: 5.0})
        assert (no.value.error_code, no.value.may_hold) == (REQUEST_TIMED_OUT, True)
        assert one.stored == {}


@on_uvloop
async def test_change_written_to_a_recreated_topic_has_an_unknown_outcome() -> None:
    log = TopicLog()
    log.write(*(Setting(user=f"u{number}", key=P, value=1.0) for number in range(9)))
    async with bed(log) as one:
        append, log.is_reading = one.writer.append, False

        async def too_late(records: Sequence[Record]) -> int:
            log.records.clear()
            return await append(records)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(one.writer, "append", too_late)
            with pytest.raises(NotKeptError, match="at offset 0, of a topic that was read up to 9 before") as no:
                await one.set(ALICE, {P: 5.0})
        assert (no.value.error_code, no.value.may_hold) == (REQUEST_TIMED_OUT, True)

        # If this is noticed before the write, nothing is written.
        with pytest.raises(NotKeptError, match="ends at offset 1, and was read up to 9 before; try again") as no:
            await one.set(ALICE, {P: 5.0})
        assert (no.value.error_code, no.value.may_hold) == (KAFKA_STORAGE_ERROR, False)
        assert len(log.records) == 1
        # The broker may be a former leader, so the next call looks for the leader again.
        assert one.writer.is_closed


@on_uvloop
async def test_records_written_while_the_end_is_asked_for_do_not_look_like_a_recreated_topic() -> None:
    log = TopicLog()
    async with bed(log) as one:
        end_offset = one.writer.end_offset

        async def overtaken() -> int:
            told = await end_offset()
            log.write(Setting(user="bob", key=P, value=1.0))
            await eventually(lambda: one.store.offset > told)
            return told

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(one.writer, "end_offset", overtaken)
            await one.set(ALICE, {P: 5.0})
        assert one.stored == {ALICE: rule(**{P: 5.0}), Entity(user="bob"): rule(**{P: 1.0})}


@pytest.mark.usefixtures("has_faults")
@on_uvloop
async def test_changes_that_could_not_be_applied_are_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    log = TopicLog()
    async with bed(log) as one:
        one.fails = 2
        log.write(Setting(user="alice", key=P, value=5.0))
        await eventually(lambda: not one.fails and one.store.is_connected)
        assert one.stored == {ALICE: rule(**{P: 5.0})}
    assert caplog.text.count("records of a topic could not be applied; reading them again") == 2


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"cleanup.policy": "delete"}, "has cleanup.policy=delete, and quotas would expire with its retention"),
        ({"cleanup.policy": "compact,delete"}, "has cleanup.policy=compact,delete, and quotas would expire"),
        ({"compression.type": "zstd"}, "has compression.type=zstd, which no proxy can read"),
        (None, "grant DESCRIBE_CONFIGS for the topic"),
        ({"cleanup.policy": "compact", "compression.type": "gzip"}, ""),
    ],
)
@on_uvloop
async def test_unsafe_topic_configuration_is_warned_of(
    config: Mapping[str, str] | None, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = TopicLog(config=config)
    async with bed(log) as one:
        for _ in range(2):
            log.is_away = True
            await eventually(lambda: not one.store.is_connected)
            log.is_away = False
            await eventually(lambda: one.store.is_connected)
            await asyncio.sleep(0.005)

    warnings = [record.getMessage() for record in caplog.records if "cannot be read" not in record.getMessage()]
    assert len(warnings) == bool(said)
    assert said in "".join(warnings)


async def fails() -> None:
    raise ValueError("a fault")
