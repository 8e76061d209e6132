"""Tests a proxy that follows the rules of a quota topic, at its start, while it runs, and after a reload."""

import asyncio

import pytest

from kafka_quota_proxy.config.model import Address, AdminClient, ProxyConfig, QuotaRule, QuotasFrom
from kafka_quota_proxy.config.quota_record import Setting
from kafka_quota_proxy.proxy.admin.http_server import Health
from kafka_quota_proxy.proxy.rules import administration
from kafka_quota_proxy.proxy.rules.topic.clients import (
    EndReached,
    ReaderEvent,
    ReadFailed,
    ReadingBegan,
    RecordsRead,
)
from kafka_quota_proxy.proxy.rules.topic.record_table import TopicRecord
from kafka_quota_proxy.proxy.rules.topic.topic_source import TopicSource
from kafka_quota_proxy.proxy.rules.topic.topic_state import TopicState
from kafka_quota_proxy.proxy.server import server as server_module
from kafka_quota_proxy.proxy.server.server import Server
from tests.support.frames import produce_request, produce_response
from tests.support.playbook import Playbook
from tests.support.reloads import Reloads
from tests.support.stub_broker import (
    StubBroker,
    client_of,
    correlation_id,
    eventually,
    listener_to,
    on_uvloop,
    stub_broker,
)

SETTINGS = QuotasFrom(topic="store", client=AdminClient(bootstrap_servers=(Address(host="k", port=9092),)))
LIMIT = RecordsRead((TopicRecord(4, Setting(client_id="etl", key="producer_byte_rate", value=1_000.0)),))
NO_LIMIT = RecordsRead((TopicRecord(5, Setting(client_id="etl", key="producer_byte_rate")),))


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[ReaderEvent]:
    """Return the list of events that the topic's readers report. Tests fill the list before the proxy starts."""
    events: list[ReaderEvent] = []

    def followed(_: ProxyConfig) -> TopicSource:
        state = TopicState(name="kafka://store")
        return TopicSource(str(SETTINGS), state, reader=lambda tell: Playbook(tell, *events))

    monkeypatch.setattr(administration, "source_of", followed)
    return events


def config_to(broker: StubBroker, *quotas: QuotaRule) -> ProxyConfig:
    listener = listener_to(broker.address)
    return ProxyConfig(listeners=(listener,), quotas=quotas, quotas_from=SETTINGS, max_throttle_time_ms=77)


def answers(frame: bytes) -> bytes:
    return produce_response(correlation_id(frame))


def topic_of(server: Server) -> TopicSource:
    assert isinstance(server.quota_manager.source, TopicSource)
    return server.quota_manager.source


async def stopped(server: Server, end: asyncio.Future[None]) -> None:
    server.stop()
    server.stop()
    await end


@on_uvloop
async def test_the_first_client_is_served_under_the_rules_of_the_topic(events: list[ReaderEvent]) -> None:
    events += [ReadingBegan(), LIMIT, EndReached()]
    async with stub_broker(answers) as broker:
        server = Server(config_to(broker))
        end = asyncio.ensure_future(server.run())
        await eventually(lambda: server.is_listening)
        async with client_of(server) as client:
            assert await client.ask(produce_request(1, size_bytes=20_000)) == produce_response(1, throttle_time_ms=77)

            # Rules that are read later hold for an open connection.
            await topic_of(server)._on_event(NO_LIMIT)
            assert await client.ask(produce_request(2, size_bytes=20_000)) == produce_response(2)
        await stopped(server, end)

    assert server.config.quotas == ()


@on_uvloop
async def test_no_client_is_served_before_the_topic_is_read(events: list[ReaderEvent]) -> None:
    async with stub_broker(answers) as broker:
        server = Server(config_to(broker))
        health = Health(server, Reloads())
        end = asyncio.ensure_future(server.run())
        await asyncio.sleep(0.05)
        assert not server.is_listening
        assert health.readiness()["state"] == "starting"

        await topic_of(server)._on_event(EndReached())
        await eventually(lambda: server.is_listening)
        assert health.readiness()["quotas_from"] == topic_of(server).status()
        await stopped(server, end)


@on_uvloop
async def test_a_topic_that_cannot_be_read_is_not_waited_for_for_ever(
    events: list[ReaderEvent], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server_module, "_FIRST_RULES_S", 0.05)
    events += [ReadFailed("away"), ReadingBegan(), LIMIT]
    async with stub_broker(answers) as broker:
        server = Server(config_to(broker))
        end = asyncio.ensure_future(server.run())
        await eventually(lambda: server.is_listening)
        assert "kafka://k:9092/store: not read to its end within 0 s: clients are served with" in caplog.text
        async with client_of(server) as client:
            assert await client.ask(produce_request(1, size_bytes=20_000)) == produce_response(1, throttle_time_ms=77)
        await stopped(server, end)


@on_uvloop
async def test_a_topic_that_would_be_read_through_this_proxy_is_not_waited_for(
    events: list[ReaderEvent], caplog: pytest.LogCaptureFixture
) -> None:
    events += [ReadFailed("its leader is this proxy", is_own_fault=True)]
    async with stub_broker(answers) as broker:
        server = Server(config_to(broker))
        end = asyncio.ensure_future(server.run())
        async with asyncio.timeout(5):
            await eventually(lambda: server.is_listening)
        await stopped(server, end)

    assert "cannot be read: its leader is this proxy; " in caplog.text
    assert "kafka://k:9092/store: not read to its end: clients are served with what is known" in caplog.text
