"""Tests PROXY protocol headers of both versions, cut anywhere and malformed."""

import socket
import struct
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_quota_proxy.protocol.errors import MalformedProxyHeader
from kafka_quota_proxy.protocol.proxy_protocol import MAX_HEADER_BYTES, MAX_REST_BYTES, ProxyHeader, read_proxy_header
from tests.support.cases import each_case

SIGNATURE = bytes.fromhex("0D 0A 0D 0A 00 0D 0A 51 55 49 54 0A")
BEHIND = b"\x00\x00\x00\x10 the first request"
LONGEST_LINE = b"PROXY UNKNOWN " + 2 * (b"ffff:" * 7 + b"ffff ") + b"65535 65535\r\n"  # from the specification

ports = st.integers(0, 65_535)
ipv4s = st.ip_addresses(v=4)
ipv6s = st.integers(1 << 64, (1 << 128) - 1).map(IPv6Address)  # none of them an IPv4 address


def binary(rest: bytes, *, command: int = 0x21, family: int = 0x11, size_bytes: int | None = None) -> bytes:
    """Return a header of version 2. ``size_bytes`` replaces the length of ``rest``."""
    size = len(rest) if size_bytes is None else size_bytes
    return SIGNATURE + struct.pack(">BBH", command, family, size) + rest


def read_in_pieces(data: bytes, header_bytes: int) -> ProxyHeader | None:
    """Assert that each shorter prefix gives None, and return what the whole header gives."""
    for size in range(header_bytes):
        assert read_proxy_header(data[:size]) is None, size
    return read_proxy_header(data)


@each_case(
    "line, source",
    [
        (b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", ("255.255.255.255", 65_535)),
        (b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n", ("192.168.0.1", 56_324)),
        (b"PROXY TCP4 0.0.0.0 0.0.0.0 0 0\r\n", ("0.0.0.0", 0)),  # noqa: S104
        (b"PROXY TCP6 2001:DB8::7 ::1 1 2\r\n", ("2001:db8::7", 1)),
        (b"PROXY TCP6 ::ffff:10.0.0.7 ::1 1 2\r\n", ("10.0.0.7", 1)),
        (b"PROXY UNKNOWN\r\n", None),
        (b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n", None),
        (b"PROXY UNKNOWN \xff\x00 whatever\r\n", None),
        (LONGEST_LINE, None),
    ],
)
def test_line_is_read_once_it_is_complete(line: bytes, source: tuple[str, int] | None) -> None:
    assert read_in_pieces(line + BEHIND, len(line)) == (source, len(line))


def test_the_longest_line_has_107_bytes_and_not_one_more() -> None:
    padded = LONGEST_LINE[:-2].ljust(105, b"x")

    assert read_proxy_header(padded + b"\r\n") == (None, 107)
    with pytest.raises(MalformedProxyHeader):
        read_proxy_header(padded + b"x\r\n")


@each_case(
    "line",
    [
        b"PROXY TCP4 192.168.0.1 192.168.0.11 56324\r\n",
        b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443 1\r\n",
        b"PROXY TCP4 192.168.0.1  192.168.0.11 56324 443\r\n",
        b"PROXY TCP4 192.168.0.01 192.168.0.11 56324 443\r\n",
        b"PROXY TCP4 192.168.0.256 192.168.0.11 56324 443\r\n",
        b"PROXY TCP4 192.168.0.1 somewhere 56324 443\r\n",
        b"PROXY TCP4 2001:db8::7 ::1 1 2\r\n",
        b"PROXY TCP6 192.168.0.1 192.168.0.11 1 2\r\n",
        b"PROXY TCP6 2001:db8::7::1 ::1 1 2\r\n",
        b"PROXY TCP4 192.168.0.1 192.168.0.11 65536 443\r\n",
        b"PROXY TCP4 192.168.0.1 192.168.0.11 1 65536\r\n",
        b"PROXY TCP4 192.168.0.1 192.168.0.11 -1 443\r\n",
        b"PROXY TCP4 192.168.0.1 192.168.0.11 0443 443\r\n",
        b"PROXY TCP4 192.168.0.1 192.168.0.11 \xb2 443\r\n",
        b"PROXY TCP4 192.168.0.1 192.168.0.11  443\r\n",
        b"PROXY TCP4 \xff\xff 192.168.0.11 1 443\r\n",
        b"PROXY UDP4 192.168.0.1 192.168.0.11 1 443\r\n",
        b"PROXY tcp4 192.168.0.1 192.168.0.11 1 443\r\n",
        b"PROXY TCP6 fe80::1%\xc3\xa9 :: 1 2\r\n",
        b"PROXY TCP6 fe80::1%eth0 :: 1 2\r\n",
        b"PROXY UNKNOWNS\r\n",
        b"PROXY \r\n",
        b"PROXY TCP4 192.168.0.1 192.168.0.11 1 443\n" + b"x" * 100,
        b"PROXY\tTCP4 192.168.0.1 192.168.0.11 1 443\r\n",
        b"proxy TCP4 192.168.0.1 192.168.0.11 1 443\r\n",
    ],
)
def test_malformed_line_is_refused(line: bytes) -> None:
    with pytest.raises(MalformedProxyHeader):
        read_proxy_header(line)


@given(source=ipv4s, destination=ipv4s, source_port=ports, port=ports, tlvs=st.binary(max_size=64))
def test_ipv4_in_binary(
    source: IPv4Address, destination: IPv4Address, source_port: int, port: int, tlvs: bytes
) -> None:
    header = binary(source.packed + destination.packed + struct.pack(">HH", source_port, port) + tlvs)

    assert read_in_pieces(header + BEHIND, len(header)) == ((str(source), source_port), len(header))


@given(source=ipv6s, destination=ipv6s, source_port=ports, port=ports)
def test_ipv6_in_binary_and_in_a_line_are_the_same(
    source: IPv6Address, destination: IPv6Address, source_port: int, port: int
) -> None:
    header = binary(source.packed + destination.packed + struct.pack(">HH", source_port, port), family=0x21)
    line = f"PROXY TCP6 {source.exploded} {destination} {source_port} {port}\r\n".encode()
    expected = (socket.inet_ntop(socket.AF_INET6, source.packed), source_port)

    assert read_in_pieces(header + BEHIND, len(header)) == (expected, len(header))
    assert read_in_pieces(line + BEHIND, len(line)) == (expected, len(line))


def test_ipv4_mapped_address_becomes_ipv4() -> None:
    packed = IPv6Address("::ffff:10.0.0.7").packed

    assert read_proxy_header(binary(packed + packed + bytes(4), family=0x21)) == (("10.0.0.7", 0), 52)


@pytest.mark.parametrize(
    ("command", "family", "rest"),
    [
        (0x20, 0x00, b""),
        (0x20, 0x11, bytes(12)),  # LOCAL: the rest has no meaning
        (0x20, 0x11, b""),
        (0x21, 0x00, b"some TLVs"),
        (0x21, 0x31, bytes(216)),  # a UNIX socket at the balancer
        (0x21, 0x32, bytes(216)),
        (0x21, 0x12, bytes(12)),  # a datagram, so not this connection
    ],
)
def test_header_without_a_client_address_has_no_source(command: int, family: int, rest: bytes) -> None:
    header = binary(rest, command=command, family=family)

    assert read_in_pieces(header + BEHIND, len(header)) == (None, len(header))


@each_case(
    "header",
    [
        binary(bytes(12), command=0x11),
        binary(bytes(12), command=0x31),
        binary(bytes(12), command=0x22),
        binary(bytes(12), family=0x41),
        binary(bytes(12), family=0x13),
        binary(bytes(11)),
        binary(bytes(35), family=0x21),
        binary(b"", size_bytes=MAX_REST_BYTES + 1),
        b"\r\n\r\n\x00\r\nQUIX\n",
        b"\r\nGET",
    ],
)
def test_malformed_binary_header_is_refused_before_its_rest_arrives(header: bytes) -> None:
    with pytest.raises(MalformedProxyHeader):
        read_proxy_header(header[:16])


def test_the_longest_binary_header_is_waited_for() -> None:
    header = binary(bytes(MAX_REST_BYTES))

    assert len(header) == MAX_HEADER_BYTES
    assert read_proxy_header(header[:-1]) is None
    assert read_proxy_header(header) == (("0.0.0.0", 0), MAX_HEADER_BYTES)  # noqa: S104


@pytest.mark.parametrize(
    "data", [b"\x00\x00\x00\x1d\x00\x12", b"\x16\x03\x01", b"GET / HTTP/1.1", b"PROX\xff", b"\r\n\n"]
)
def test_connection_without_a_header_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedProxyHeader) as caught:
        read_proxy_header(data)

    assert caught.value.reason == "proxy_header"
