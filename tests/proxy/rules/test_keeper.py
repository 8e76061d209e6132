"""Tests that rules are applied when they change, and timed ones when they are due, also if the clock is set."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_quota_proxy.config.model import IpRule, ProxyConfig, QuotaRule
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.config.schedule import Ramp, Schedule
from kafka_quota_proxy.config.term_values import parse_instant_ms
from kafka_quota_proxy.config.terms import Terms
from kafka_quota_proxy.proxy.quota.rule_tables import QuotaChanges
from kafka_quota_proxy.proxy.rules.keeper import RuleKeeper
from kafka_quota_proxy.proxy.rules.model import Change, StoredRule
from kafka_quota_proxy.proxy.rules.model import Entity as StoreEntity
from tests.proxy.server.test_quota_manager import ETL, P, answers, config_to, put
from tests.support.frames import produce_request, produce_response
from tests.support.stores import write_rules
from tests.support.stub_broker import client_of, eventually, on_uvloop, running, stub_broker

START_MS = parse_instant_ms("2026-11-23T07:00:00Z")
HOUR_MS = 3_600_000


class Clock:
    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


class Bed:
    """A ``RuleKeeper``, its clock, and the changes that it has reported."""

    def __init__(self, *rules: QuotaRule, ips: tuple[IpRule, ...] = ()) -> None:
        self.clock = Clock()
        self.told: list[QuotaChanges] = []
        self.fails = 0
        config = ProxyConfig(listeners=(), quotas=rules, ip_quotas=ips)
        self.keeper = RuleKeeper(config, None, wall_ms=self.clock)
        self.in_force = self.keeper.rules
        self.keeper.begin(self._take)

    def _take(self, changes: QuotaChanges) -> None:
        if self.fails:
            self.fails -= 1
            raise RuntimeError("no")
        self.told.append(changes)

    async def at(self, now_ms: int) -> list[QuotaChanges]:
        """Set the clock, wake the timer, and return the changes that are due."""
        self.clock.now_ms = now_ms
        self.told.clear()
        self.keeper.wake()
        for _ in range(20):
            await asyncio.sleep(0)
        return list(self.told)


@asynccontextmanager
async def followed(bed: Bed) -> AsyncIterator[Bed]:
    task = asyncio.get_running_loop().create_task(bed.keeper.run())
    try:
        yield bed
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task])


def rule(user: str, **terms: object) -> QuotaRule:
    return QuotaRule(user=user, producer_byte_rate=1.0, **terms)  # type: ignore[arg-type]


OFFICE = Schedule(time_zone="UTC", begin_minute=8 * 60, end_minute=18 * 60)


async def test_each_rule_is_applied_when_it_is_due_and_no_other() -> None:
    ramp = Ramp(start=(("producer_byte_rate", 5.0),), begins_ms=START_MS, over_ms=4 * HOUR_MS, steps=4)
    expiring, scheduled, ramped = (
        rule("a", expires_ms=START_MS + HOUR_MS),
        rule("b", schedule=OFFICE),
        rule("c", ramp=ramp),
    )
    ip = IpRule(ip="10.0.0.7", connection_creation_rate=5.0, expires_ms=START_MS + 2 * HOUR_MS)
    async with followed(Bed(expiring, scheduled, ramped, rule("d"), ips=(ip,))) as bed:
        assert await bed.at(START_MS + HOUR_MS - 1) == []

        assert await bed.at(START_MS + HOUR_MS) == [
            (
                {
                    ("a", None): None,
                    ("b", None): scheduled,
                    ("c", None): replace(rule("c"), limits={**rule("c").limits, "producer_byte_rate": 4.0}),
                },
                {},
            )
        ]
        assert await bed.at(START_MS + HOUR_MS) == []
        assert await bed.at(START_MS + 2 * HOUR_MS) == [
            (
                {("c", None): replace(rule("c"), limits={**rule("c").limits, "producer_byte_rate": 3.0})},
                {"10.0.0.7": None},
            )
        ]


async def test_a_clock_that_is_set_is_followed_both_ways() -> None:
    one = rule("a", expires_ms=START_MS + HOUR_MS)
    async with followed(Bed(one)) as bed:
        assert await bed.at(START_MS + 900 * HOUR_MS) == [({("a", None): None}, {})]
        assert await bed.at(START_MS - 900 * HOUR_MS) == [({("a", None): one}, {})]


@pytest.mark.usefixtures("has_faults")
async def test_changes_that_could_not_be_applied_are_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kafka_quota_proxy.proxy.rules.keeper._AGAIN_S", 0.01)
    async with followed(Bed(rule("a", expires_ms=START_MS + 5), rule("b", expires_ms=START_MS + 900))) as bed:
        bed.fails = 1
        await bed.at(START_MS + 5)

        await eventually(lambda: bed.told)

        # The result has both rules, because either of them may have been applied.
        assert bed.told == [({("a", None): None, ("b", None): rule("b", expires_ms=START_MS + 900)}, {})]
    assert "rules could not be applied; trying again" in caplog.text


@on_uvloop
async def test_a_rule_of_the_file_expires_for_the_next_request_of_an_open_connection(tmp_path: Path) -> None:
    clock = Clock()
    rule = QuotaRule(client_id="etl", producer_byte_rate=1_000.0, expires_ms=START_MS + 20, source="f.yaml:3")
    async with (
        stub_broker(answers) as broker,
        running(config_to(broker, tmp_path, rule), wall_ms=clock) as server,
        client_of(server) as client,
    ):
        assert await client.ask(produce_request(1, size_bytes=20_000)) == produce_response(1, throttle_time_ms=77)
        clock.now_ms += 20
        await eventually(lambda: not server.quota_manager.rules.quotas)
        assert await client.ask(produce_request(2, size_bytes=20_000)) == produce_response(2)
        # The expired rule of the file still hides the rule of the store.
        assert await put(client, ETL, P, 2_000.0) == 44

        # After a reload the rule is still expired.
        server.apply(config_to(broker, tmp_path, rule))
        assert server.quota_manager.rules.quotas == ()


@pytest.mark.parametrize("is_stored", [True, False])
@on_uvloop
async def test_first_timed_rule_wakes_the_timer(tmp_path: Path, is_stored: bool) -> None:
    clock = Clock()
    async with stub_broker(answers) as broker:
        config = config_to(broker, tmp_path)
        async with running(config, wall_ms=clock) as server:
            async with client_of(server) as client:
                # This rule has no terms, so the timer has nothing to wait for.
                assert await put(client, ETL, P, 1_000.0) == 0

            if is_stored:
                stored = StoredRule(limits={P: 1.0}, terms=Terms(expires_ms=START_MS + 20))
                await server.quota_manager.keeper.apply((Change(StoreEntity(client_id="etl"), stored),))
            else:
                filed = QuotaRule(client_id="etl", producer_byte_rate=1.0, expires_ms=START_MS + 20)
                server.apply(replace(config, quotas=(filed,)))
            assert [one.limits.get("producer_byte_rate") for one in server.quota_manager.rules.quotas] == [1.0]
            clock.now_ms += 20

            await eventually(lambda: server.quota_manager.rules.quotas == ())


@on_uvloop
async def test_stored_ramp_continues_on_schedule_after_a_restart(tmp_path: Path) -> None:
    ramp = Ramp(start=((P, 9_000.0),), begins_ms=START_MS, over_ms=8_000, steps=8)
    stored = StoredRule(limits={P: 1_000.0}, terms=Terms(ramp=ramp))
    write_rules(tmp_path, [Change(StoreEntity(client_id="etl"), stored)])
    clock = Clock(START_MS + 990)
    limits = [await _over_a_run(tmp_path, clock, more_ms) for more_ms in (10, 3_000, 5_000)]

    assert limits == [(9_000.0, 8_000.0), (8_000.0, 5_000.0), (5_000.0, 1_000.0)]


async def _over_a_run(path: Path, clock: Clock, more_ms: int) -> tuple[float, float]:
    """Run a proxy for ``more_ms`` of its clock. Return the limit of client etl at the start and at the end."""
    async with stub_broker(answers) as broker, running(config_to(broker, path), wall_ms=clock) as server:
        ((_, quotas),) = server.brokers.quotas_by_name

        def limit() -> float:
            return quotas.bucket(QuotaKind.PRODUCE, principal="u", client_id="etl", now_ms=1_000_000).limit

        before = limit()
        clock.now_ms += more_ms
        await eventually(lambda: limit() != before)
        after = limit()
    return before, after


async def test_changes_before_the_beginning_are_returned_with_those_of_the_file() -> None:
    bed = Bed()
    keeper = RuleKeeper(ProxyConfig(listeners=()), None, wall_ms=bed.clock)
    await keeper.apply([Change(StoreEntity("a"), StoredRule(limits={P: 1.0}))])

    changes = keeper.follow_file(ProxyConfig(listeners=(), quotas=(rule("b"),)))

    assert list(changes.rules) == [("a", None), ("b", None)]
    assert bed.told == []
