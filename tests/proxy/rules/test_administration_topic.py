"""Tests administrators' requests to a store in a topic, which decides on the changes of all proxies."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kafka_quota_proxy.config.model import QuotaRule, QuotasFrom, Store
from kafka_quota_proxy.config.quota_record import Setting
from kafka_quota_proxy.protocol.client_quotas import Alteration, AlterRequest, Op
from kafka_quota_proxy.proxy.rules.topic.clients import NotWrittenError
from tests.proxy.rules.test_administration import ALICE, Bed, P
from tests.proxy.rules.test_administration import bed as kept
from tests.support.quota_request_frames import read_alter_response
from tests.support.stub_broker import eventually, on_uvloop
from tests.support.topic_log import TopicLog, made_up


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> TopicLog:
    """Put a simulated topic in place of the configured one."""
    return made_up(monkeypatch)


@asynccontextmanager
async def bed(*quotas: QuotaRule, audit_log: str | None = None, changes_per_second: float = 100) -> AsyncIterator[Bed]:
    store = Store(topic=QuotasFrom(topic="store"), audit_log=audit_log, changes_per_second=changes_per_second)
    async with kept(None, *quotas, store=store) as one:
        yield one


@on_uvloop
async def test_quota_set_at_one_proxy_is_described_and_changed_at_the_other(log: TopicLog) -> None:
    async with bed() as one, bed() as other:
        assert (await one.set(ALICE, {P: 5.0}))[0].error_code == 0
        await eventually(lambda: other.manager.rules.quotas)
        assert other.manager.rules.quotas == (
            QuotaRule(user="alice", producer_byte_rate=5.0, source=one.manager.rules.quotas[0].source),
        )
        assert other.changes == one.changes
        assert (await other.told()).entries == (await one.told()).entries

        # The proxy reads the topic before it decides. The request changes nothing, so nothing is written.
        log.write(Setting(user="alice", key=P, value=6.0))
        written = len(log.records)
        assert (await other.set(ALICE, {P: 6.0}))[0].error_code == 0
        assert len(log.records) == written
        assert other.manager.rules.quotas[0].limits["producer_byte_rate"] == 6.0


@on_uvloop
async def test_rules_of_the_file_cannot_be_changed(log: TopicLog) -> None:
    log.write(Setting(user="alice", key=P, value=7.0), Setting(user="filed", key=P, value=1.0))
    async with bed(QuotaRule(user="filed", producer_byte_rate=9.0, source="f.yaml:7")) as one:
        assert {(rule.user, rule.limits.get("producer_byte_rate")) for rule in one.manager.rules.quotas} == {
            ("alice", 7.0),
            ("filed", 9.0),
        }
        (refused,) = await one.set((("user", "filed"),), {P: 5.0})
        assert refused.error_message == "The quotas of user filed are set in f.yaml:7; change them there"
        assert len(log.records) == 2
        assert (await one.set(ALICE, {P: 5.0}))[0].error_code == 0


@on_uvloop
async def test_write_with_unknown_outcome_is_not_reported_as_refused(log: TopicLog, tmp_path: Path) -> None:
    audit_log = tmp_path / "audit.jsonl"
    bob, carol = (("user", "bob"),), (("user", "carol"),)
    some = ((ALICE, {P: 5.0}), (bob, {P: 1.0}), (carol, {"bad": 1.0}))
    alterations = tuple(Alteration(entity, tuple(Op(*limit) for limit in limits.items())) for entity, limits in some)
    async with bed(audit_log=str(audit_log)) as one:
        await one.set(bob, {P: 1.0})
        log.error = NotWrittenError("no answer in time", may_be_there=True)
        answer = await one.ask(AlterRequest(1, 7, alterations, False))
        await eventually(lambda: len(one.manager.rules.quotas) == 2)
        change_log = one.manager.change_log

    told = [json.loads(line) for line in audit_log.read_text().splitlines()][1:]
    by_user = {line["entity"]["user"]: line for line in told}
    alice = by_user["alice"]
    assert (alice["result"], alice["asked"], alice["old"], alice["new"]) == ("unknown", {P: 5.0}, None, {P: 5.0})
    assert alice["error"]["name"] == "REQUEST_TIMED_OUT"
    assert by_user["carol"]["result"] == "refused"
    assert [result.error_code for result in read_alter_response(answer, 1).results] == [7, 0, 42]
    assert change_log is not None
    assert change_log.counts["unknown"] == 1
