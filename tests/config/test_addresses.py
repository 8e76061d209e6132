"""Tests addresses and IP addresses as operators write them."""

import pytest

from kafka_quota_proxy.config.addresses import ip_of, is_any, parse_address, parse_bind, parse_ip
from kafka_quota_proxy.config.errors import UnitError
from kafka_quota_proxy.config.model import Address
from tests.support.cases import each_case


@each_case(
    "written, host, port",
    [
        ("127.0.0.1:9092", "127.0.0.1", 9092),
        ("broker-1.example.com:9092", "broker-1.example.com", 9092),
        ("[::1]:9092", "::1", 9092),
        ("[fe80::1%eth0]:9092", "fe80::1%eth0", 9092),
        ("localhost:65535", "localhost", 65535),
    ],
)
def test_an_address_is_written_as_it_is_read(written: str, host: str, port: int) -> None:
    address = parse_address(written)

    assert address == Address(host=host, port=port)
    assert str(address) == written


@each_case(
    "written, hint",
    [
        ("localhost", "not an address"),
        ("localhost:65536", "out of range"),
        ("localhost:" + "9" * 5_000, "out of range"),
        ("PLAINTEXT://localhost:9092", "without PLAINTEXT://"),
        ("a:1,b:2", "not a list"),
        ("[*]:9092", "write HOST:PORT"),
        ("[:]:9092", "write HOST:PORT"),
        ("10.0.0.256:9092", "four numbers from 0 to 255"),
        ("1.2.3.4.5:9092", "four numbers from 0 to 255"),
        ("127.1:9092", "four numbers from 0 to 255"),
    ],
)
def test_a_text_that_is_no_address_is_refused_with_a_reason(written: str, hint: str) -> None:
    with pytest.raises(UnitError, match=hint):
        parse_address(written)


@each_case("written", ["*:9092", "[*]:9092"])
def test_a_star_is_no_address_to_listen_on(written: str) -> None:
    with pytest.raises(UnitError, match=r"names no address; write 0\.0\.0\.0:9092 to listen on all of them"):
        parse_bind(written)


@each_case("written", ["0.0.0.0:9092", "[::]:9092", "[::0]:0", "my_host:9092", "10.0.0.1:1"])
def test_an_address_on_which_one_can_listen_is_read(written: str) -> None:
    assert parse_bind(written) == parse_address(written)


@each_case("host", ["0.0.0.0", "::", "::0", "0:0:0:0:0:0:0:0", "::ffff:0.0.0.0"])  # noqa: S104
def test_an_address_that_means_all_is_known_in_each_form(host: str) -> None:
    assert is_any(host)
    assert not is_any(f"{host}1")


@each_case("host", ["broker1", "256.1", "10.0.0.256", "4294967296", "1.2.3.4.5", "9" * 5_000])
def test_a_name_is_no_ip_address(host: str) -> None:
    assert ip_of(host) is None


@each_case("host", ["kafka..local", f"kafka.{'b' * 64}.local"])
def test_an_invalid_host_name_is_refused(host: str) -> None:
    with pytest.raises(UnitError, match="not a host name"):
        parse_address(f"{host}:9092")


def test_an_ipv4_address_within_ipv6_is_that_ipv4_address() -> None:
    assert parse_ip("::ffff:10.0.0.7") == parse_ip("::ffff:a00:7") == "10.0.0.7"
