"""Tests which advertised addresses lead past the proxy."""

import pytest

from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.proxy.server.brokers.bypass import bypassed
from kafka_quota_proxy.proxy.server.brokers.host_lookups import Lookups
from tests.support.stub_broker import on_uvloop

PROXY = Address(host="0.0.0.0", port=9092)  # noqa: S104 - nothing is bound


def at(host: str, port: int = 19_092) -> Address:
    return Address(host=host, port=port)


@pytest.mark.parametrize(
    ("advertised", "places", "is_bypass"),
    [
        (at("127.0.0.1"), {at("127.0.0.1")}, True),
        (at("localhost"), {at("127.0.0.1")}, True),
        (at("127.0.0.2"), {at("127.0.0.1")}, True),  # another address of this machine, and the same port
        (at("192.0.2.7"), {at("broker"), at("192.0.2.7")}, True),
        (at("192.0.2.8"), {at("broker"), at("192.0.2.7")}, False),
        (at("127.0.0.1", 9092), {at("127.0.0.1")}, False),
        (at("127.0.0.1", 9092), {at("127.0.0.1", 9092)}, False),  # this is the proxy
        (at("proxy.example", 9092), {at("127.0.0.1")}, False),  # a load balancer, perhaps
    ],
)
@on_uvloop
async def test_only_an_address_that_surely_leads_to_the_broker_is_a_bypass(
    advertised: Address, places: set[Address], is_bypass: bool
) -> None:
    found = await bypassed([advertised], {"broker": frozenset(places)}, [PROXY], Lookups())

    assert found == ({"broker": advertised} if is_bypass else {})
