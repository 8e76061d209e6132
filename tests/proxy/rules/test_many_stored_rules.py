"""Tests what a hundred thousand rules cost: changes of rules, connections and requests."""

import asyncio
import gc
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Never

import pytest

from kafka_quota_proxy.config.model import (
    DEFAULT,
    Address,
    Cluster,
    Listener,
    ProxyConfig,
    QuotaRule,
    Store,
)
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.protocol.client_quotas import Alteration, AlterRequest, Op
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.quota.entity import Entity as RuleEntity
from kafka_quota_proxy.proxy.quota.rule_tables import RuleTable
from kafka_quota_proxy.proxy.rules.api import Origin
from kafka_quota_proxy.proxy.rules.effective import EffectiveRules
from kafka_quota_proxy.proxy.rules.model import Change, Entity, StoredRule
from kafka_quota_proxy.proxy.server.server import Server
from tests.support.builds import interpreted_only
from tests.support.quota_request_frames import quota_ticket, read_alter_response, write_alter_request
from tests.support.stores import write_rules
from tests.support.stub_broker import listener_to, on_uvloop, running, stub_broker

FEW, MANY = 5_000, 100_000
LISTENER = Listener(name="a", bind=Address(host="127.0.0.1", port=0), upstream=Address(host="127.0.0.1", port=9))
CLUSTER = Cluster(
    bootstrap_servers=(Address(host="127.0.0.1", port=9),), advertised_host="127.0.0.1", first_port=1, last_port=9
)
OF_CLUSTER = Listener(name="a", bind=Address(host="127.0.0.1", port=0), cluster=CLUSTER)
RULE = StoredRule(limits={"producer_byte_rate": 1e6, "consumer_byte_rate": 2e6})


class Client:
    def __init__(self) -> None:
        self.has_turn = asyncio.Event()

    def take_turn(self) -> None:
        self.has_turn.set()


def alter_of(number: int) -> bytes:
    """Return a request that sets a limit of one entity, to another value for each ``number``."""
    entity = (("user", f"user-{number % 100}"), ("client-id", "etl"))
    request = AlterRequest(1, 7, (Alteration(entity, (Op("producer_byte_rate", 2e6 + number),)),), False)
    return write_alter_request(request, client_id="admin")


def is_done(answer: bytes | None) -> bool:
    return answer is not None and [result.error_code for result in read_alter_response(answer, 1).results] == [0]


async def altered(server: Server, number: int) -> None:
    client = Client()
    ticket = quota_ticket(alter_of(number), Origin("admin"), client)
    assert server.quota_manager.submit(ticket)
    await client.has_turn.wait()
    assert is_done(ticket.answer)


def fill(path: Path, count: int) -> None:
    write_rules(path, [Change(Entity(f"user-{number}", "etl"), RULE) for number in range(count)])


@asynccontextmanager
async def stored(path: Path, count: int, *, listener: Listener = LISTENER) -> AsyncIterator[Server]:
    fill(path, count)
    server = Server(ProxyConfig(listeners=(listener,), store=Store(directory=str(path))))
    await server.quota_manager.read(server.brokers.follow)
    server.apply(server.config)
    running = asyncio.ensure_future(server.quota_manager.run())
    yield server
    running.cancel()
    await asyncio.wait([running])
    await server.quota_manager.stop()


@on_uvloop
async def test_one_change_looks_at_no_other_rule_and_uses_a_thread_only_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed_over: list[object] = []
    submit = ThreadPoolExecutor.submit

    def counts(pool: ThreadPoolExecutor, *arguments: object) -> object:
        handed_over.append(arguments)
        return submit(pool, *arguments)  # type: ignore[arg-type]

    async with stored(tmp_path, 0) as server:
        monkeypatch.setattr(ThreadPoolExecutor, "submit", counts)
        with monkeypatch.context() as patched:
            patched.setattr(EffectiveRules, "quotas", None)
            patched.setattr(EffectiveRules, "ip_quotas", None)
            await altered(server, 1)

        assert len(handed_over) == 1
        assert [rule.limits.get("producer_byte_rate") for rule in server.quota_manager.rules.quotas] == [2e6 + 1]


@on_uvloop
async def test_garbage_collector_skips_rules_read_at_the_start(tmp_path: Path) -> None:
    fill(tmp_path, 100)
    try:
        async with stub_broker() as broker:
            config = ProxyConfig(listeners=(listener_to(broker.address),), store=Store(directory=str(tmp_path)))
            async with running(config) as server:
                assert len(server.quota_manager.rules.quotas) == 100
                assert [one for one in gc.get_objects() if isinstance(one, QuotaRule) and one.client_id == "etl"] == []
    finally:
        gc.unfreeze()


@on_uvloop
async def test_new_broker_shares_the_rules_without_looking_at_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stored(tmp_path, 100, listener=OF_CLUSTER) as server:
        (fleet,) = server.brokers.clusters.values()
        with monkeypatch.context() as patched:
            patched.setattr(EffectiveRules, "quotas", None)
            patched.setattr(EffectiveRules, "ip_quotas", None)
            patched.setattr(RuleTable, "__init__", None)
            first, second = (fleet.upstream(n, Address(host="127.0.0.1", port=n)).quotas for n in (1, 2))
        await altered(server, 7)

        of_both = [
            quotas.bucket(QuotaKind.PRODUCE, principal="user-7", client_id="etl", now_ms=0)
            for quotas in (first, second)
        ]
        assert [bucket.limit for bucket in of_both] == [2e6 + 7] * 2
        of_both[0].charge(5, now_ms=0)
        assert [bucket.usage.amount for bucket in of_both] == [5, 0]
        assert len(first.produce.table) == 100


class Counted(dict[RuleEntity, QuotaRule]):
    """The rules of a table. Counts lookups, and fails if all rules are iterated."""

    def __init__(self, rules: dict[RuleEntity, QuotaRule]) -> None:
        super().__init__(rules)
        self.count = 0

    def get(self, entity: RuleEntity) -> QuotaRule | None:  # type: ignore[override]
        self.count += 1
        return super().get(entity)

    def __contains__(self, entity: object) -> bool:
        self.count += 1
        return super().__contains__(entity)

    def gone_through(self, *_: object) -> Never:
        raise AssertionError("all rules were looked at")

    __iter__ = keys = values = items = gone_through


def looked_up(count: int) -> tuple[list[int], list[int]]:
    """Return how many lookups the connections and the requests of two users make, for each kind of quota."""
    rules = [QuotaRule(user=f"user-{n}", client_id="etl", producer_byte_rate=1e6) for n in range(count - 1)]
    rules.append(QuotaRule(client_id=DEFAULT, producer_byte_rate=1e6))
    quotas = BrokerQuotas(ProxyConfig(listeners=(LISTENER,), quotas=tuple(rules)))
    counted = []
    for manager in quotas.managers:
        manager.table.by_entity = Counted(manager.table.by_entity)
        counted.append(manager.table.by_entity)
    assert max(map(len, counted)) == count
    buckets = [quotas.buckets(principal=user, client_id="etl", now_ms=0) for user in ("user-7", "stranger")]
    assert [bucket.level and bucket.level.number for bucket, *_ in buckets] == [1, 8]
    connects = [rules.count for rules in counted]
    for bucket in (bucket for of_user in buckets for bucket in of_user):
        bucket.charge(1, now_ms=1)
    return connects, [rules.count - before for rules, before in zip(counted, connects, strict=True)]


@interpreted_only
def test_number_of_rules_does_not_change_the_lookups_of_a_connection_or_request() -> None:
    connects, asks = looked_up(FEW)

    assert connects == looked_up(100)[0]
    assert 2 <= max(connects) <= 16  # eight levels for each of two users
    assert not any(asks)
