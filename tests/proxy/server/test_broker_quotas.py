"""Tests a proxy that takes over the quotas of its brokers, at its start and after changes and reloads."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from kafka_quota_proxy.config.model import (
    Address,
    Cluster,
    IpRule,
    Listener,
    ProxyConfig,
    QuotaRule,
    QuotasFromBroker,
)
from kafka_quota_proxy.config.principals import Principals
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.protocol.client_quotas import (
    DescribeRequest,
    read_describe_response,
)
from kafka_quota_proxy.proxy.admin.http_server import Health
from kafka_quota_proxy.proxy.rules.model import Entity, StoredRule
from kafka_quota_proxy.proxy.server import server as server_module
from kafka_quota_proxy.proxy.server.server import Server
from tests.support.frames import produce_request, produce_response
from tests.support.quota_broker import QuotaBroker
from tests.support.quota_request_frames import write_describe_request
from tests.support.reloads import Reloads
from tests.support.stub_broker import (
    Client,
    StubBroker,
    client_of,
    eventually,
    free_port,
    listener_to,
    on_uvloop,
    running,
    stub_broker,
)

ETL = (("client-id", "etl"),)
ENTITY = Entity(client_id="etl")
P = "producer_byte_rate"


def config_to(broker: StubBroker, *quotas: QuotaRule, every_ms: int = 600_000) -> ProxyConfig:
    """Return a configuration that reads the broker's quotas, by default only at the start."""
    return ProxyConfig(
        listeners=(listener_to(broker.address),),
        quotas=quotas,
        quotas_from=QuotasFromBroker(every_ms=every_ms),
        max_throttle_time_ms=77,
    )


@asynccontextmanager
async def served(quotas: QuotaBroker) -> AsyncIterator[tuple[Server, Client]]:
    async with stub_broker(quotas.script) as broker, running(config_to(broker)) as server, client_of(server) as client:
        yield server, client


PASSES = produce_response(1)
WAITS = produce_response(1, throttle_time_ms=77)
LARGE = produce_request(1, size_bytes=20_000)


@on_uvloop
async def test_describe_shows_the_brokers_quotas_even_if_the_file_overrules_them() -> None:
    quotas = QuotaBroker({ENTITY: StoredRule(limits={P: 9_000.0})})
    async with stub_broker(quotas.script) as broker:
        config = config_to(broker, QuotaRule(client_id="etl", producer_byte_rate=1_000.0, source="f.yaml:1"))
        async with running(config) as server, client_of(server) as client:
            asked = write_describe_request(DescribeRequest(1, 7, (), False), client_id="etl")
            described = read_describe_response(await client.ask(asked), 1)
            assert described.entries == ((ETL, ((P, 9_000.0),)),)
            assert await client.ask(LARGE) == WAITS


@on_uvloop
async def test_a_change_elsewhere_holds_after_the_next_reading() -> None:
    quotas = QuotaBroker()
    async with (
        stub_broker(quotas.script) as broker,
        running(config_to(broker, every_ms=20)) as server,
        client_of(server) as client,
    ):
        quotas.set(ENTITY, producer_byte_rate=1_000.0)
        quotas.set(Entity(ip="192.0.2.7"), connection_creation_rate=5.0)
        rules = server.quota_manager.rules
        await eventually(lambda: rules.ip_quotas)
        assert await client.ask(LARGE) == WAITS
        assert rules.ip_quotas == (IpRule(ip="192.0.2.7", connection_creation_rate=5.0, source="broker"),)
        quotas.set(ENTITY)
        await eventually(lambda: not rules.quotas)


@on_uvloop
async def test_broker_without_quotas_shows_in_readiness_and_clients_are_served() -> None:
    quotas = QuotaBroker()
    quotas.highest = None
    async with stub_broker(quotas.script) as broker, running(config_to(broker)) as server:
        health = Health(server, Reloads())
        detail = health.readiness()["quotas_from"]
        assert isinstance(detail, dict)
        assert "does not support DescribeClientQuotas" in detail.pop("failure")
        assert detail == {"broker": None, "connected": False, "read": False, "entities": 0}
        json.dumps(health.readiness())
        async with client_of(server) as client:
            assert await client.ask(LARGE) == PASSES


@on_uvloop
async def test_a_broker_that_is_away_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_module, "_FIRST_RULES_S", 0.05)
    nowhere = Address(host="127.0.0.1", port=free_port())
    config = ProxyConfig(listeners=(listener_to(nowhere),), quotas_from=QuotasFromBroker())
    async with running(config) as server:
        assert server.is_listening

    assert "broker: not read to its end within 0 s: clients are served with what is known" in caplog.text


@on_uvloop
async def test_after_a_reload_the_file_overrules_the_broker_and_no_client_may_administer() -> None:
    of_file = QuotaRule(client_id="etl", producer_byte_rate=5.0, source="f.yaml:1")
    of_broker = QuotaRule(client_id="etl", producer_byte_rate=1_000.0, source="broker")
    quotas = QuotaBroker({ENTITY: StoredRule(limits={P: 1_000.0})})
    async with stub_broker(quotas.script) as broker:
        config = config_to(broker)
        async with running(config) as server:
            (upstream,) = server.brokers.upstreams
            for rules, wanted in (((of_file,), of_file), ((), of_broker)):
                server.apply(
                    replace(
                        config, quotas=rules, quotas_from=None, principals=Principals(admins=frozenset({"ANONYMOUS"}))
                    )
                )
                assert server.config.quotas == rules
                assert list(upstream.quotas.produce.table.rules()) == [wanted]
                assert server.config.quotas_from == config.quotas_from
                assert [listener.policy.administration for listener in server.listeners] == [None]


@on_uvloop
async def test_brokers_of_a_cluster_have_the_rules_and_so_have_those_that_join() -> None:
    quotas = QuotaBroker({ENTITY: StoredRule(limits={P: 1_000.0})})
    async with stub_broker(quotas.script) as broker:
        cluster = Cluster(bootstrap_servers=(broker.address,), advertised_host="h", first_port=1, last_port=1)
        listener = Listener(name="all", bind=Address(host="127.0.0.1", port=free_port()), cluster=cluster)
        config = ProxyConfig(listeners=(listener,), quotas_from=QuotasFromBroker(every_ms=20))
        async with running(config) as server:
            (known_cluster,) = server.brokers.clusters.values()
            joined = known_cluster.upstream(3, Address(host="127.0.0.1", port=1))
            for upstream in (known_cluster.bootstrap(0), joined):
                bucket = upstream.quotas.bucket(QuotaKind.PRODUCE, principal="a", client_id="etl", now_ms=0)
                assert bucket.limit == 1_000.0
            quotas.set(ENTITY)
            await eventually(lambda: not joined.quotas.limits(QuotaKind.PRODUCE))
            assert not known_cluster.bootstrap(0).quotas.limits(QuotaKind.PRODUCE)
