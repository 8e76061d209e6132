"""Tests that a proxy reads the quotas of its store at the start, and keeps them over a reload of the file."""

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_quota_proxy.config.model import DEFAULT, IpRule, ProxyConfig, QuotaRule, Shaping, Store
from kafka_quota_proxy.config.principals import Principals
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.protocol.client_quotas import Alteration, AlterRequest, Op
from kafka_quota_proxy.proxy.quota.broker import BrokerQuotas
from kafka_quota_proxy.proxy.rules.model import Change, Entity, StoredRule
from tests.support.frames import other_response
from tests.support.quota_request_frames import read_alter_response, write_alter_request
from tests.support.stores import write_rules
from tests.support.stub_broker import (
    StubBroker,
    client_of,
    listener_to,
    on_uvloop,
    running,
    stub_broker,
    upstream_of,
)

MANY = 500


def stored(path: Path, broker: StubBroker) -> ProxyConfig:
    rule = StoredRule(limits={"producer_byte_rate": 1.0})
    of_users = [Change(Entity(str(number), DEFAULT), rule) for number in range(MANY)]
    of_ip = Change(Entity(ip="10.0.0.7"), StoredRule(limits={"connection_creation_rate": 5.0}))
    write_rules(path, [*of_users, of_ip])
    return ProxyConfig(listeners=(listener_to(broker.address),), store=Store(directory=str(path)))


def limit(quotas: BrokerQuotas, user: str) -> float | None:
    manager = quotas.manager(QuotaKind.PRODUCE)
    return manager.limit_of(quotas.bucket(manager.kind, principal=user, client_id="etl", now_ms=0))


@on_uvloop
async def test_reload_does_not_rebuild_the_tables_of_stored_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stub_broker() as broker:
        config = stored(tmp_path, broker)
        async with running(config) as server:
            quotas = upstream_of(server, broker.address).quotas
            assert (limit(quotas, "7"), quotas.arrivals.limit_of("10.0.0.7")) == (1.0, 5.0)
            looked_at: list[QuotaRule] = []
            limit_of = QuotaKind.limit_of

            def counts(kind: QuotaKind, rule: QuotaRule) -> float | None:
                looked_at.append(rule)
                return limit_of(kind, rule)

            monkeypatch.setattr(QuotaKind, "limit_of", counts)
            rule = QuotaRule(user="7", client_id=DEFAULT, producer_byte_rate=9.0, source="f.yaml:7")
            ip = IpRule(ip="10.0.0.7", connection_creation_rate=6.0)

            server.apply(replace(config, quotas=(rule,), ip_quotas=(ip,), shaping=Shaping.PACED))

            assert {found.user for found in looked_at} <= {"7"}
            assert (limit(quotas, "7"), limit(quotas, "8"), quotas.arrivals.limit_of("10.0.0.7")) == (9.0, 1.0, 6.0)
            server.apply(config)
            assert (limit(quotas, "7"), limit(quotas, "8"), quotas.arrivals.limit_of("10.0.0.7")) == (1.0, 1.0, 5.0)


@on_uvloop
async def test_administrators_are_recognised_on_client_listeners_only(tmp_path: Path) -> None:
    asked = write_alter_request(
        AlterRequest(
            1, 7, (Alteration((("user", "7"), ("client-id", None)), (Op("producer_byte_rate", 5.0),)),), False
        ),
        client_id="etl",
    )
    async with stub_broker(lambda _: other_response(7)) as broker:
        listeners = (
            listener_to(broker.address, name="clients"),
            replace(listener_to(broker.address, name="brokers"), inter_broker=True),
        )
        config = replace(
            stored(tmp_path, broker), listeners=listeners, principals=Principals(admins=frozenset({"ANONYMOUS"}))
        )
        async with running(config) as server:
            quotas = upstream_of(server, broker.address).quotas
            async with client_of(server, port=1) as client:
                assert await client.ask(asked) == other_response(7)
            assert limit(quotas, "7") == 1.0

            async with client_of(server, port=0) as client:
                (result,) = read_alter_response(await client.ask(asked), 1).results
            assert (result.error_code, limit(quotas, "7")) == (0, 5.0)
