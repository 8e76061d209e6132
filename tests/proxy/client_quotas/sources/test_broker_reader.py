"""Asking a broker for its quotas: at the address that is given, in any version, and where it does not tell."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

import pytest
from kafka.errors import KafkaError

from kafka_quota_proxy.config.model import Address, AdminClient
from kafka_quota_proxy.proxy.background.admin_client import ADMIN_ERRORS
from kafka_quota_proxy.proxy.client_quotas.rules.entity import Entity, StoredRule
from kafka_quota_proxy.proxy.client_quotas.sources.broker_reader import BrokerReader
from kafka_quota_proxy.proxy.client_quotas.sources.broker_rules import RefusedError, Told
from tests.proxy.background.test_admin_client import nobody, open_sockets
from tests.support.quota_broker import QuotaBroker
from tests.support.stub_broker import stub_broker

T = TypeVar("T")
ETL = Entity(client_id="etl")
RULE = StoredRule(limits={"producer_byte_rate": 5.0})


async def reading(broker: QuotaBroker, work: Callable[[Address], T]) -> T:
    """Return what ``work`` returns in a thread, with a broker at the address that it is given."""
    async with stub_broker(broker.script) as stub:
        return await asyncio.to_thread(work, stub.address)


@pytest.mark.parametrize("highest", [0, 1, 2])
async def test_all_quotas_are_read_and_again_where_they_have_changed(highest: int) -> None:
    broker = QuotaBroker({ETL: RULE})
    broker.highest = highest

    def work(server: Address) -> list[Told | None]:
        reader = BrokerReader(AdminClient(), [nobody(), server])
        try:
            found = [reader.read(), reader.read()]
            broker.set(Entity(user="alice"), consumer_byte_rate=7.0)
            assert reader.server == server
            return [*found, reader.read()]
        finally:
            reader.close()

    first, same, changed = await reading(broker, work)

    assert first == Told({ETL: RULE}, ())
    assert same is None
    alice = StoredRule(limits={"consumer_byte_rate": 7.0})
    assert changed == Told({ETL: RULE, Entity(user="alice"): alice}, ())


async def test_a_broker_without_the_api_is_told_as_such_and_nothing_stays_behind() -> None:
    broker = QuotaBroker()
    broker.highest = None
    threads, sockets = threading.active_count(), open_sockets()

    def work(server: Address) -> None:
        before = threading.active_count()
        with pytest.raises(RefusedError, match="does not know DescribeClientQuotas"):
            BrokerReader(AdminClient(), [server])
        assert threading.active_count() == before

    await reading(broker, work)
    assert open_sockets() <= sockets + 1  # the other end of the stub's, which hears of it later
    assert threading.active_count() <= threads + 1  # to_thread's own


async def test_who_may_not_ask_is_told_and_may_ask_again() -> None:
    broker = QuotaBroker({ETL: RULE})
    broker.error_code = 31

    def work(server: Address) -> Told | None:
        reader = BrokerReader(AdminClient(), [server])
        try:
            with pytest.raises(RefusedError, match="DescribeConfigs on the cluster"):
                reader.read()
            broker.error_code = 0
            return reader.read()
        finally:
            reader.close()

    assert await reading(broker, work) == Told({ETL: RULE}, ())


async def test_garbage_is_a_refusal() -> None:
    broker = QuotaBroker({ETL: RULE})
    whole = broker._describe
    broker._describe = lambda frame: whole(frame)[:-4] + b"\xff" * 4  # type: ignore[method-assign]

    def work(server: Address) -> None:
        reader = BrokerReader(AdminClient(), [server])
        try:
            with pytest.raises(RefusedError, match="the answer is none: "):
                reader.read()
        finally:
            reader.close()

    await reading(broker, work)


def test_where_nobody_answers_the_first_failure_is_told_and_nothing_stays_behind() -> None:
    threads, sockets = threading.active_count(), open_sockets()

    with pytest.raises(ADMIN_ERRORS) as caught:
        BrokerReader(AdminClient(), [nobody(), nobody()])

    assert isinstance(caught.value, KafkaError)
    assert threading.active_count() == threads
    assert open_sockets() == sockets
