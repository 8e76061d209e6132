"""Tests how a broker's quotas are read, in any version, and from brokers that refuse."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

from kafka_quota_proxy.config.model import Address, AdminClient
from kafka_quota_proxy.proxy.kafka_client.admin_client import ADMIN_ERRORS
from kafka_quota_proxy.proxy.rules.broker.broker_reader import BrokerReader
from kafka_quota_proxy.proxy.rules.broker.broker_rules import ParsedQuotas, RefusedError
from kafka_quota_proxy.proxy.rules.model import Entity, StoredRule
from tests.proxy.kafka_client.test_admin_client import closed_address, open_sockets
from tests.support.quota_broker import QuotaBroker
from tests.support.stub_broker import stub_broker

T = TypeVar("T")
ETL = Entity(client_id="etl")
RULE = StoredRule(limits={"producer_byte_rate": 5.0})


async def reading(broker: QuotaBroker, work: Callable[[Address], T]) -> T:
    """Run ``work`` in a thread with the address of a stub broker, and return its result."""
    async with stub_broker(broker.script) as stub:
        return await asyncio.to_thread(work, stub.address)


@pytest.mark.parametrize("highest", [0, 1, 2])
async def test_quotas_are_read_and_none_if_unchanged(highest: int) -> None:
    broker = QuotaBroker({ETL: RULE})
    broker.highest = highest

    def work(server: Address) -> list[ParsedQuotas | None]:
        reader = BrokerReader(AdminClient(), [closed_address(), server])
        try:
            found = [reader.read(), reader.read()]
            broker.set(Entity(user="alice"), consumer_byte_rate=7.0)
            assert reader.server == server
            return [*found, reader.read()]
        finally:
            reader.close()

    first, same, changed = await reading(broker, work)

    assert first == ParsedQuotas({ETL: RULE}, ())
    assert same is None
    alice = StoredRule(limits={"consumer_byte_rate": 7.0})
    assert changed == ParsedQuotas({ETL: RULE, Entity(user="alice"): alice}, ())


async def test_a_broker_without_the_api_is_an_error_and_leaves_no_thread_or_socket() -> None:
    broker = QuotaBroker()
    broker.highest = None
    threads, sockets = threading.active_count(), open_sockets()

    def work(server: Address) -> None:
        before = threading.active_count()
        reader = BrokerReader(AdminClient(), [server])
        with pytest.raises(RefusedError, match="does not support DescribeClientQuotas"):
            reader.read()
        reader.close()
        assert threading.active_count() == before

    await reading(broker, work)
    assert open_sockets() <= sockets + 1  # the stub broker closes its end later
    assert threading.active_count() <= threads + 1  # the thread of to_thread


async def test_a_reader_without_the_right_gets_an_error_and_can_read_later() -> None:
    broker = QuotaBroker({ETL: RULE})
    broker.error_code = 31

    def work(server: Address) -> ParsedQuotas | None:
        reader = BrokerReader(AdminClient(), [server])
        try:
            with pytest.raises(RefusedError, match="DescribeConfigs on the cluster"):
                reader.read()
            broker.error_code = 0
            return reader.read()
        finally:
            reader.close()

    assert await reading(broker, work) == ParsedQuotas({ETL: RULE}, ())


async def test_a_malformed_answer_is_refused() -> None:
    broker = QuotaBroker({ETL: RULE})
    whole = broker._describe
    broker._describe = lambda frame: whole(frame)[:16] + b"\x7f" * (len(whole(frame)) - 16)  # type: ignore[method-assign]

    def work(server: Address) -> None:
        reader = BrokerReader(AdminClient(), [server])
        try:
            with pytest.raises(RefusedError, match="the response cannot be read: "):
                reader.read()
        finally:
            reader.close()

    await reading(broker, work)


def test_no_answering_broker_is_an_error_and_leaves_no_thread_or_socket() -> None:
    threads, sockets = threading.active_count(), open_sockets()

    with pytest.raises(ADMIN_ERRORS) as caught:
        BrokerReader(AdminClient(), [closed_address(), closed_address()])

    assert isinstance(caught.value, ConnectionError)
    assert threading.active_count() == threads
    assert open_sockets() == sockets
