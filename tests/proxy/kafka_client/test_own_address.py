"""Tests whether an address leads to this proxy itself."""

import asyncio
import socket

import pytest

from kafka_quota_proxy.config.addresses import parse_address
from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.proxy.kafka_client.own_address import bind_of, own_bind


@pytest.mark.parametrize(
    ("address", "here", "bind", "is_own"),
    [
        ("broker3:9092", {"10.0.0.3"}, "0.0.0.0:9092", True),
        ("broker3:9092", {"10.0.0.3"}, "10.0.0.3:9092", True),
        ("broker3:9092", {"10.0.0.3"}, "10.0.0.4:9092", False),
        ("broker3:9092", {"10.0.0.3"}, "0.0.0.0:9093", False),
        ("broker3:9092", {"fd00::3"}, "[::]:9092", True),
        ("broker4:9092", set(), "0.0.0.0:9092", False),
        ("broker4:9092", set(), "broker4:9092", True),
        ("broker4.:9092", set(), "broker4:9092", True),
    ],
)
def test_an_address_with_a_bound_port_and_a_local_ip_is_the_proxys_own(
    address: str, here: set[str], bind: str, is_own: bool
) -> None:
    binds = (Address(host="other", port=1), parse_address(bind))

    assert bind_of(parse_address(address), here, binds) == (binds[1] if is_own else None)


@pytest.mark.parametrize(("host", "is_own"), [("127.0.0.1", True), ("192.0.2.7", False), ("a" * 80, False)])
async def test_local_addresses_are_looked_up(host: str, is_own: bool) -> None:
    bind = Address(host="0.0.0.0", port=9092)  # noqa: S104

    assert await own_bind(Address(host=host, port=9092), (bind,)) == (bind if is_own else None)


async def test_without_an_equal_port_nothing_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **more: object) -> None:
        raise AssertionError("looked up")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", fail)
    monkeypatch.setattr(socket, "socket", fail)

    assert await own_bind(Address(host="k", port=9093), (Address(host="h", port=9092),)) is None
