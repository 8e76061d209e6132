"""Tests that administrators' requests are stored, applied, and only then answered."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from math import ceil
from pathlib import Path
from time import perf_counter

import pytest

from kafka_quota_proxy.config.errors import StartError
from kafka_quota_proxy.config.model import IpRule, ProxyConfig, QuotaRule, Store
from kafka_quota_proxy.protocol.client_quotas import (
    Alteration,
    Altered,
    AlterRequest,
    Described,
    DescribeRequest,
    DescribeResponse,
    EntityParts,
    Op,
    read_describe_response,
)
from kafka_quota_proxy.protocol.codec import read_whole_head
from kafka_quota_proxy.protocol.errors import ProtocolError
from kafka_quota_proxy.proxy.quota.rule_tables import QuotaChanges
from kafka_quota_proxy.proxy.rules import codec as json_form
from kafka_quota_proxy.proxy.rules.administration import QuotaManager
from kafka_quota_proxy.proxy.rules.api import Origin, QuotaRequest, Ticket
from kafka_quota_proxy.proxy.rules.model import Change, Entity, StoredRule
from kafka_quota_proxy.proxy.rules.sqlite import directory_store
from kafka_quota_proxy.proxy.rules.sqlite.directory_store import DirectoryStore
from tests.support.quota_request_frames import (
    quota_ticket,
    read_alter_response,
    write_alter_request,
    write_describe_request,
)
from tests.support.stores import damage_header, keep, no_room_above
from tests.support.stub_broker import eventually, on_uvloop

ADMIN = Origin("admin", "adminclient-1", "10.0.0.5", "clients")
P, C, RATE = "producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"
ALICE: EntityParts = (("user", "alice"),)
EVERYTHING = DescribeRequest(1, 9, (), False)


class Client:
    """A connection that waits for its response."""

    def __init__(self) -> None:
        self.has_turn = asyncio.Event()

    def take_turn(self) -> None:
        self.has_turn.set()


def written(request: QuotaRequest) -> bytes:
    if isinstance(request, DescribeRequest):
        return write_describe_request(request, client_id="admin")
    return write_alter_request(request, client_id="admin")


class Bed:
    """A ``QuotaManager``, and the changes that it has reported."""

    def __init__(self, config: ProxyConfig) -> None:
        self.changes: list[QuotaChanges] = []
        self.manager = QuotaManager(config)

    async def ask(self, request: QuotaRequest) -> bytes:
        client = Client()
        ticket = quota_ticket(written(request), ADMIN, client)
        assert self.manager.submit(ticket)
        await asyncio.wait_for(client.has_turn.wait(), 20)
        assert ticket.answer is not None
        return ticket.answer

    async def set(
        self, entity: EntityParts, limits: Mapping[str, float | None], *, validate_only: bool = False
    ) -> list[Altered]:
        ops = tuple(Op(*limit) for limit in limits.items())
        request = AlterRequest(1, 7, (Alteration(entity, ops),), validate_only)
        return list(read_alter_response(await self.ask(request), 1).results)

    async def told(self, request: DescribeRequest = EVERYTHING) -> DescribeResponse:
        return read_describe_response(await self.ask(request), request.api_version)


@asynccontextmanager
async def bed(
    path: Path | None, *quotas: QuotaRule, ips: tuple[IpRule, ...] = (), store: Store | None = None
) -> AsyncIterator[Bed]:
    if path is not None and store is None:
        store = Store(directory=str(path))
    config = ProxyConfig(listeners=(), quotas=quotas, ip_quotas=ips, store=store)
    a_bed = Bed(config)
    await a_bed.manager.read(a_bed.changes.append)
    a_bed.manager.follow_file(config)
    running = asyncio.get_running_loop().create_task(a_bed.manager.run())
    if a_bed.manager.source is not None:
        with suppress(TimeoutError):
            await asyncio.wait_for(a_bed.manager.source.may_serve.wait(), 0.5)
    a_bed.changes.clear()
    try:
        yield a_bed
    finally:
        running.cancel()
        await asyncio.wait([running])
        await a_bed.manager.stop()


@on_uvloop
async def test_set_quota_is_stored_applied_and_described(tmp_path: Path) -> None:
    async with bed(tmp_path) as one:
        assert await one.set(ALICE, {P: 5.0}) == [Altered(0, None, ALICE)]

        rule = QuotaRule(user="alice", producer_byte_rate=5.0, source=str(tmp_path))
        assert one.changes == [({("alice", None): rule}, {})]
        assert one.manager.rules.quotas == (rule,)
        assert (await one.told()).entries == (Described(ALICE, ((P, 5.0),)),)
    async with bed(tmp_path) as again:
        assert again.manager.rules.quotas == (rule,)
        assert await again.set(ALICE, {P: None}) == [Altered(0, None, ALICE)]
        assert again.changes == [({("alice", None): None}, {})]
        assert (await again.told()).entries == ()
    async with bed(tmp_path) as last:
        assert last.manager.rules.quotas == ()


@on_uvloop
async def test_refused_users_are_one_line_in_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    manager = QuotaManager(ProxyConfig(listeners=()))
    for now_ms in (50_000, 50_001, 59_999, 60_000):
        manager.refused(ADMIN._replace(principal="alice"), f"No, alice ({now_ms}).", now_ms)

    assert [record.message for record in caplog.records] == [
        f"refused 10.0.0.5 on listener clients a request about quotas: No, alice ({now_ms})."
        for now_ms in (50_000, 60_000)
    ]


@on_uvloop
async def test_without_a_store_rules_are_described_and_cannot_be_changed() -> None:
    async with bed(None, QuotaRule(user="alice", producer_byte_rate=1.0, source="f.yaml:7")) as one:
        assert (await one.told()).entries == (Described(ALICE, ((P, 1.0),)),)
        (result,) = await one.set((("user", "bob"),), {P: 5.0})
        assert result[:2] == (44, "Quotas cannot be changed: this proxy has no store for them")


@on_uvloop
async def test_change_on_a_full_disk_is_refused_and_the_next_is_tried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, audit_log = Store(directory=str(tmp_path / "d"), audit_log=str(tmp_path / "a")), tmp_path / "a"
    many = tuple(Alteration((("user", str(number)),), (Op(P, 1.0),)) for number in range(200))
    async with bed(None, store=store) as one:
        assert isinstance(one.manager.store, DirectoryStore)
        await one.set(ALICE, {P: 3.0})
        connection = one.manager.store.database._connection
        assert connection is not None
        connection.execute("PRAGMA max_page_count = 3")
        full = read_alter_response(await one.ask(AlterRequest(1, 7, many, False)), 1).results
        connection.execute("PRAGMA max_page_count = 1000000")
        with no_room_above(one.manager.store.database.log_bytes):
            (unknown,) = await one.set(ALICE, {P: 5.0})

        assert {result[:2] for result in full} == {(56, "The quotas cannot be kept: database or disk is full")}
        assert unknown[:2] == (
            56, "The quotas cannot be kept: disk I/O error; after a restart the change may apply nevertheless",
        )  # fmt: skip
        assert caplog.text.count("changed no quota") == 2
        assert [rule.limits.get("producer_byte_rate") for rule in one.manager.rules.quotas] == [3.0]

        assert await one.set(ALICE, {P: 6.0}) == [Altered(0, None, ALICE)]
        assert one.manager.change_log is not None
        assert one.manager.change_log.counts == {"applied": 2, "refused": 200, "unknown": 1}
        assert one.manager.change_log.audit is not None
        assert one.manager.change_log.audit.lost <= 1  # the limit of file sizes may have hit the audit log, too
    lines = [json.loads(line) for line in audit_log.read_text().splitlines()]
    assert [line["result"] for line in lines if line["result"] == "applied"] == ["applied", "applied"]
    async with bed(tmp_path / "d") as again:
        assert [rule.limits.get("producer_byte_rate") for rule in again.manager.rules.quotas] == [6.0]


@on_uvloop
async def test_change_is_acknowledged_only_when_no_earlier_one_can_come_back(tmp_path: Path) -> None:
    async with bed(tmp_path) as one:
        assert isinstance(one.manager.store, DirectoryStore)
        await one.set(ALICE, {P: 3.0})
        log_bytes = one.manager.store.database.log_bytes
        with no_room_above(log_bytes):
            (unknown,) = await one.set(ALICE, {P: 5.0})
            (refused,) = await one.set(ALICE, {P: 3.0})  # changes nothing that is known

        assert "may apply nevertheless" in (unknown.error_message or "")
        assert refused[:2] == (
            56,
            f"No quota was changed: an earlier change may be in {tmp_path} or not, and the disk fails; try again",
        )
        assert await one.set(ALICE, {P: 3.0}) == [Altered(0, None, ALICE)]
        assert one.manager.store.database.log_bytes > log_bytes, "nothing was written over the earlier change"


class HangingDisk:
    """Holds up all writes of a store until ``goes_on`` is set. The writes then fail with ``error``, if there is one."""

    def __init__(self, one: Bed, monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
        assert isinstance(one.manager.store, DirectoryStore)
        self.goes_on = threading.Event()
        write = one.manager.store.database.write

        def held_up(changes: Iterable[Change]) -> None:
            assert self.goes_on.wait(20)
            if error is not None:
                raise error
            write(changes)

        monkeypatch.setattr(one.manager.store.database, "write", held_up)
        monkeypatch.setattr(directory_store, "_WRITE_S", 0.05)


@on_uvloop
async def test_write_that_takes_too_long_holds_no_other_request_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bed(tmp_path) as one:
        disk = HangingDisk(one, monkeypatch)
        try:
            (unknown,) = await one.set(ALICE, {P: 5.0})
            (refused,) = await one.set((("user", "bob"),), {P: 6.0})

            assert unknown[:2] == (
                7, f"The outcome is unknown: the change is not written to {tmp_path} yet, and may apply later",
            )  # fmt: skip
            assert refused[:2] == (
                56, f"No quota was changed: an earlier change is still being written to {tmp_path}; try again",
            )  # fmt: skip
            assert (await one.told()).entries == ()
        finally:
            disk.goes_on.set()
        # The next change is computed from the rules with the late one.
        await eventually(lambda: bool(one.changes))
        assert (await one.told()).entries == (Described(ALICE, ((P, 5.0),)),)
        assert await one.set(ALICE, {C: 7.0}) == [Altered(0, None, ALICE)]
        assert (await one.told()).entries == (Described(ALICE, ((C, 7.0), (P, 5.0))),)
    async with bed(tmp_path) as again:
        assert (await again.told()).entries == (Described(ALICE, ((C, 7.0), (P, 5.0))),)


@on_uvloop
async def test_requests_are_answered_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    async with bed(tmp_path) as one:
        limits = [float(number) for number in range(1, 21)]
        _, told = await asyncio.gather(
            asyncio.gather(*(one.set(ALICE, {P: limit}) for limit in limits)),
            one.told(),
        )
        assert told.entries == (Described(ALICE, ((P, 20.0),)),)
        rules = [rules["alice", None] for rules, _ in one.changes]
        assert [rule and rule.limits.get("producer_byte_rate") for rule in rules] == limits


@on_uvloop
async def test_damaged_store_keeps_the_proxy_from_starting(tmp_path: Path) -> None:
    keep(tmp_path, Entity("alice"))
    damage_header(tmp_path)

    with pytest.raises(StartError, match=r"quotas\.db is damaged: file is not a database; replace it"):
        async with bed(tmp_path):
            pass


@on_uvloop
async def test_unreadable_request_is_reported_and_the_next_is_answered() -> None:
    async with bed(None) as one:
        client = Client()
        frame = written(EVERYTHING)
        ticket = Ticket(ADMIN, client, frame=frame[:-1], head=read_whole_head(frame))
        assert one.manager.submit(ticket)
        await asyncio.wait_for(client.has_turn.wait(), 20)
        assert isinstance(ticket.error, ProtocolError)
        assert ticket.answer is None
        assert (await one.told()).entries == ()


@pytest.mark.usefixtures("has_faults")
@on_uvloop
async def test_request_that_raises_is_refused_and_the_next_is_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with bed(None, QuotaRule(user="u" * 40_000, producer_byte_rate=1.0, source="f.yaml:7")) as one:
        old = DescribeRequest(0, 9, (), False)
        told = await one.told(old)
        assert told[1:] == (-1, "The server experienced an unexpected error when processing the request.", None)
        assert "could not answer" in caplog.text
        one.manager.follow_file(ProxyConfig(listeners=()))
        assert (await one.told(old)).entries == ()


@pytest.mark.usefixtures("has_faults")
@on_uvloop
async def test_change_that_cannot_be_applied_is_reported_unknown_and_applied_with_the_next(tmp_path: Path) -> None:
    audit_log = tmp_path / "audit.jsonl"
    async with bed(None, store=Store(directory=str(tmp_path / "d"), audit_log=str(audit_log))) as one:

        def fails(*_: object) -> None:
            raise ValueError("a fault")

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(one.manager.keeper, "_on_changes", fails)
            assert (await one.set(ALICE, {P: 5.0}))[0].error_code == -1
        (line,) = audit_log.read_text().splitlines()
        assert (json.loads(line)["result"], json.loads(line)["new"]) == ("unknown", {P: 5.0})
        bob: EntityParts = (("user", "bob"),)
        assert await one.set(bob, {P: 6.0}) == [Altered(0, None, bob)]
        # The change that was stored but not applied is applied with the next one.
        assert [set(rules) for rules, _ in one.changes] == [{("alice", None), ("bob", None)}]


@on_uvloop
async def test_attempts_are_audited_in_order(tmp_path: Path) -> None:
    audit_log = tmp_path / "audit.jsonl"
    filed = QuotaRule(user="bob", producer_byte_rate=1.0, source="f.yaml:7")
    store = Store(directory=str(tmp_path / "d"), audit_log=str(audit_log))
    async with bed(None, filed, store=store) as one:
        await one.set(ALICE, {P: 5.0})
        await one.set(ALICE, {P: None}, validate_only=True)
        await one.set((("user", "bob"),), {P: 5.0})
        await one.told()
        lines = [json.loads(line) for line in audit_log.read_text().splitlines()]
        change_log = one.manager.change_log

    about = {"principal": "admin", "client_id": "adminclient-1", "address": "10.0.0.5", "listener": "clients"}
    assert all(line.items() >= about.items() for line in lines)
    said = [(line["entity"], line["asked"], line["old"], line["new"], line["result"]) for line in lines]
    alice, bob = {"user": "alice"}, {"user": "bob"}
    assert said == [
        (alice, {P: 5.0}, None, {P: 5.0}, "applied"),
        (alice, {P: None}, {P: 5.0}, None, "validated"),
        (bob, {P: 5.0}, {P: 1.0}, {P: 1.0}, "refused"),
    ]
    assert lines[2]["error"]["message"] == "The quotas of user bob are set in f.yaml:7; change them there"
    assert change_log is not None
    assert change_log.counts == {"applied": 1, "validated": 1, "refused": 1}
    (change,) = change_log.recent
    assert (change.origin.principal, change.outcome.entity) == ("admin", (("user", "alice"),))
    assert change.outcome.new == StoredRule(limits={P: 5.0})


@pytest.mark.usefixtures("has_faults")
@on_uvloop
async def test_change_is_made_and_answered_if_auditing_raises(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(directory=str(tmp_path / "d"), audit_log=str(tmp_path / "audit.jsonl"))
    async with bed(None, store=store) as one:

        def fails(*_: object, **__: object) -> None:
            raise ValueError("a fault")

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(one.manager.change_log, "write", fails)
            assert await one.set(ALICE, {P: 5.0}) == [Altered(0, None, ALICE)]
            client = Client()
            alteration = Alteration(ALICE, (Op(P, 6.0),))
            changes = json_form.RequestedChanges((alteration,), {}, is_dry_run=False)
            ticket = Ticket(ADMIN, client, changes=changes)
            assert one.manager.submit(ticket)
            await asyncio.wait_for(client.has_turn.wait(), 20)
        assert ticket.altered is not None
        assert ticket.altered.outcomes[0].result == "applied"
        assert [rule.limits.get("producer_byte_rate") for rule in one.manager.rules.quotas] == [6.0]
    assert caplog.text.count("could not audit a quota change by admin") == 2


@on_uvloop
async def test_changes_above_the_rate_limit_are_refused_with_a_throttle_time(tmp_path: Path) -> None:
    audit_log = tmp_path / "audit.jsonl"
    store = Store(directory=str(tmp_path / "d"), changes_per_second=0.1, audit_log=str(audit_log))
    some = tuple(Alteration((("user", str(number)),), (Op(P, 1.0),)) for number in range(3))
    async with bed(None, store=store) as one:
        first = read_alter_response(await one.ask(AlterRequest(1, 7, some, False)), 1)
        other = (Alteration(ALICE, (Op(P, 1.0),)), Alteration((("user", "0"),), (Op(P, 2.0),)))
        second = read_alter_response(await one.ask(AlterRequest(1, 7, other, False)), 1)
        told = await one.told()
    last = json.loads(audit_log.read_text().splitlines()[-1])

    # One change can be saved up. The first request has three, which leaves minus two.
    assert {result.error_code for result in first.results} == {0}
    assert [result.error_code for result in second.results] == [89, 89]
    assert 0 < second.throttle_time_ms <= 20_000
    message = f"Too many quotas are changed (store.changes_per_second); try again in {second.throttle_time_ms} ms"
    assert second.results[0].error_message == message
    assert told.entries is not None
    assert len(told.entries) == 3
    assert (last["entity"], last["error"]["name"]) == ({"user": "0"}, "THROTTLING_QUOTA_EXCEEDED")


@pytest.mark.parametrize(
    ("op", "is_dry_run"),
    [(Op(P, None), False), (Op(P, 1.0), True), (Op("bad", 1.0), False)],
    ids=["no-op", "dry run", "refusal"],
)
@on_uvloop
async def test_a_request_that_changes_nothing_counts_as_one(tmp_path: Path, op: Op, is_dry_run: bool) -> None:
    """A client that repeats a request without end is limited too."""
    store = Store(directory=str(tmp_path / "d"), changes_per_second=0.3)
    two = tuple(Alteration((("user", str(each)),), (op,)) for each in range(2))
    async with bed(None, store=store) as one:
        request = AlterRequest(1, 7, two, is_dry_run)
        answers = [read_alter_response(await one.ask(request), 1) for _ in range(5)]

    # Three changes can be saved up, and the fourth request overdraws them.
    assert [answer.results[0].error_code == 89 for answer in answers] == [False] * 4 + [True]
    assert answers[-1].throttle_time_ms > 0


@on_uvloop
async def test_repeated_refusals_have_a_bounded_number_of_lines_and_are_all_counted(tmp_path: Path) -> None:
    audit_log = tmp_path / "audit.jsonl"
    store = Store(directory=str(tmp_path / "d"), changes_per_second=None, audit_log=str(audit_log))
    bad = tuple(Alteration((("user", str(number)),), (Op("bad", 1.0),)) for number in range(100))

    async with bed(None, store=store) as one:
        begun = perf_counter()
        for _ in range(20):
            await one.ask(AlterRequest(1, 7, bad, False))
        most = 101 + ceil(10 * (perf_counter() - begun))
        assert 101 <= len(audit_log.read_text().splitlines()) <= most
        change_log = one.manager.change_log
    assert change_log is not None
    assert change_log.audit is not None
    assert (change_log.counts["refused"], change_log.audit.lost) == (2_000, 0)
