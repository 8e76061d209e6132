"""Tests that quotas set at a proxy are in force for the next request, at each broker and after a restart."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from kafka_quota_proxy.config.model import ProxyConfig, QuotaRule, Store
from kafka_quota_proxy.config.principals import Principals
from kafka_quota_proxy.protocol.client_quotas import (
    Alteration,
    AlterRequest,
    Component,
    Described,
    DescribeRequest,
    Op,
    read_describe_response,
)
from kafka_quota_proxy.proxy.rules.model import Change
from kafka_quota_proxy.proxy.rules.sqlite.rule_database import RuleDatabase
from kafka_quota_proxy.proxy.server.server import Server
from tests.support.frames import produce_request, produce_response
from tests.support.quota_request_frames import read_alter_response, write_alter_request, write_describe_request
from tests.support.stub_broker import (
    Client,
    StubBroker,
    client_of,
    correlation_id,
    eventually,
    listener_to,
    on_uvloop,
    running,
    stub_broker,
)

ETL = (("client-id", "etl"),)
P = "producer_byte_rate"


def answers(frame: bytes) -> bytes:
    return produce_response(correlation_id(frame))


def config_to(broker: StubBroker, path: Path, *quotas: QuotaRule) -> ProxyConfig:
    return ProxyConfig(
        listeners=(listener_to(broker.address),),
        quotas=quotas,
        principals=Principals(admins=frozenset({"ANONYMOUS"})),
        store=Store(directory=str(path)),
        max_throttle_time_ms=77,
    )


async def put(client: Client, entity: tuple[tuple[str, str | None], ...], key: str, limit: float | None) -> int:
    request = AlterRequest(1, 7, (Alteration(entity, (Op(key, limit),)),), False)
    answer = await client.ask(write_alter_request(request, client_id="etl"))
    return read_alter_response(answer, 1).results[0].error_code


@on_uvloop
async def test_a_changed_quota_holds_for_the_next_request_and_after_a_restart(tmp_path: Path) -> None:
    async with stub_broker(answers) as broker:
        async with running(config_to(broker, tmp_path)) as server, client_of(server) as client:
            assert await client.ask(produce_request(1, size_bytes=20_000)) == produce_response(1)
            assert await put(client, ETL, P, 1_000.0) == 0
            assert await client.ask(produce_request(2, size_bytes=20_000)) == produce_response(2, throttle_time_ms=77)

        async with running(config_to(broker, tmp_path)) as server, client_of(server) as client:
            assert await client.ask(produce_request(1, size_bytes=20_000)) == produce_response(1, throttle_time_ms=77)
            asked = DescribeRequest(1, 9, (Component("client-id", 0, "etl"),), True)
            described = read_describe_response(await client.ask(write_describe_request(asked, client_id=None)), 1)
            assert described.entries == (Described(ETL, ((P, 1_000.0),)),)
            assert await put(client, ETL, P, None) == 0
            assert await client.ask(produce_request(2, size_bytes=20_000)) == produce_response(2)


@on_uvloop
async def test_a_reload_keeps_them_and_takes_an_entity_of_its_own(tmp_path: Path) -> None:
    async with (
        stub_broker(answers) as broker,
        running(config_to(broker, tmp_path)) as server,
        client_of(server) as client,
    ):
        assert await put(client, ETL, P, 1_000.0) == 0
        filed = QuotaRule(client_id="etl", producer_byte_rate=1e9, source="f.yaml:3")
        server.apply(config_to(broker, tmp_path, filed))
        assert await client.ask(produce_request(1, size_bytes=20_000)) == produce_response(1)
        assert await put(client, ETL, P, 2_000.0) == 44

        server.apply(config_to(broker, tmp_path))
        assert [rule.limits.get("producer_byte_rate") for rule in server.quota_manager.rules.quotas] == [1_000.0]
        assert await client.ask(produce_request(2, size_bytes=20_000)) == produce_response(2, throttle_time_ms=77)


@on_uvloop
async def test_a_removed_administrator_loses_its_rights_also_at_a_removed_listener(tmp_path: Path) -> None:
    async with stub_broker(answers) as broker:
        config = config_to(broker, tmp_path)
        async with (
            running(
                replace(config, listeners=(listener_to(broker.address, name="dropped"), *config.listeners))
            ) as server,
            client_of(server) as client,
        ):
            assert await put(client, ETL, P, 1_000.0) == 0

            others = Principals(admins=frozenset({"admin"}))
            server.apply(replace(config, principals=others))

            assert await put(client, ETL, P, 2_000.0) == 31
            assert [rule.limits.get("producer_byte_rate") for rule in server.quota_manager.rules.quotas] == [1_000.0]


@on_uvloop
async def test_a_change_that_is_on_its_way_when_the_proxy_stops_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_writing, may_go_on = Event(), Event()
    write = RuleDatabase.write

    def slowly(database: RuleDatabase, changes: Sequence[Change]) -> None:
        is_writing.set()
        may_go_on.wait(20)
        write(database, changes)

    monkeypatch.setattr(RuleDatabase, "write", slowly)
    async with stub_broker(answers) as broker:
        server = Server(config_to(broker, tmp_path))
        end = asyncio.ensure_future(server.run())
        await eventually(lambda: server.is_listening)
        async with client_of(server) as client:
            asked = asyncio.ensure_future(put(client, ETL, P, 1_000.0))
            await eventually(is_writing.is_set)
            server.stop()
            await asyncio.sleep(0)
            may_go_on.set()
            assert await asyncio.wait_for(asked, 20) == 0
        await end
