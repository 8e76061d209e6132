r"""Reads the header of the PROXY protocol, in which a load balancer sends the address of its client.

The header precedes all other bytes of a connection. Version 1 is a line of ASCII, 107 bytes at most::

    PROXY TCP4 203.0.113.7 198.51.100.1 56324 9092\r\n     source and destination address, then their ports
    PROXY TCP6 2001:db8::7 2001:db8::1 56324 9092\r\n
    PROXY UNKNOWN …\r\n                                    the text after UNKNOWN has no meaning

Version 2 is binary, big-endian::

    signature   0D 0A 0D 0A 00 0D 0A 51 55 49 54 0A
    uint8       version in the high half (2), command in the low half (0 LOCAL, 1 PROXY)
    uint8       family in the high half (0 none, 1 IPv4, 2 IPv6, 3 UNIX), transport in the low half (1 stream)
    uint16      the number of bytes that follow: addresses and ports as in version 1, then TLVs, which are ignored

LOCAL is for a connection of the load balancer itself, such as a health check.

Source: "The PROXY protocol", versions 1 and 2, of HAProxy.
"""

from ipaddress import IPv4Address, IPv6Address
from struct import Struct
from typing import Final, NamedTuple

from kafka_quota_proxy.protocol.errors import MalformedProxyHeader

# The longest line has two IPv6 addresses: 107 bytes with its end.
MAX_LINE_BYTES: Final = 107
# At most this many bytes are accepted after the fixed part of version 2. Load balancers send addresses and a few names,
# which take some hundred bytes. The largest TLV is a certificate. The format itself allows 64 KiB.
MAX_REST_BYTES: Final = 4_096
MAX_HEADER_BYTES: Final = 16 + MAX_REST_BYTES

_LINE_START: Final = b"PROXY "
_LINE_END: Final = b"\r\n"
_SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_FRONT: Final = Struct(">12sBBH")  # signature, version and command, family and transport, size of the rest
_PORT: Final = Struct(">H").unpack_from

_LOCAL: Final = 0x20
_PROXY: Final = 0x21
_FAMILIES: Final = 4
_TRANSPORTS: Final = 3
_STREAM: Final = 1
# The size of one address of each family that has ports.
_ADDRESS_BYTES: Final = {1: 4, 2: 16}


class ProxyHeader(NamedTuple):
    """A parsed header of the PROXY protocol, of ``size_bytes`` bytes.

    ``source`` is the client's address and port. It is None if the header has no internet address (LOCAL, UNKNOWN). An
    IPv4-mapped IPv6 address becomes an IPv4 address.
    """

    source: tuple[str, int] | None
    size_bytes: int


def read_proxy_header(data: bytes) -> ProxyHeader | None:
    """Read the header, or return None if more bytes are needed. Raises MalformedProxyHeader if it is malformed."""
    if data.startswith(_LINE_START[: len(data)]):
        return _read_line(data)
    if data.startswith(_SIGNATURE[: len(data)]):
        return _read_binary(data)
    raise MalformedProxyHeader(f"a connection begins with {data[:16]!r} and not with a PROXY protocol header")


def _read_line(data: bytes) -> ProxyHeader | None:
    end = data.find(_LINE_END, 0, MAX_LINE_BYTES)
    if end < 0:
        if len(data) >= MAX_LINE_BYTES:
            raise MalformedProxyHeader(f"a PROXY line has not ended after {MAX_LINE_BYTES} bytes")
        return None
    size_bytes = end + len(_LINE_END)
    words = data[len(_LINE_START) : end].split(b" ")
    if words[0] == b"UNKNOWN":
        return ProxyHeader(None, size_bytes)
    # The standard library accepts an address with a scope, as in fe80::1%eth0. In this protocol a scope is not valid.
    if len(words) != 5 or words[0] not in (b"TCP4", b"TCP6") or b"%" in words[1] + words[2]:
        raise _malformed_line(data[:end])
    kind = IPv4Address if words[0] == b"TCP4" else IPv6Address
    try:
        source, _ = (kind(word.decode("ascii")) for word in words[1:3])
    except ValueError as error:
        raise _malformed_line(data[:end]) from error
    source_port, _ = (_port(word, data[:end]) for word in words[3:])
    return ProxyHeader((_text(source), source_port), size_bytes)


def _port(word: bytes, line: bytes) -> int:
    # bytes.isdigit accepts ASCII digits only.
    if not word.isdigit() or len(word) > 5 or (word.startswith(b"0") and word != b"0") or int(word) > 65_535:
        raise _malformed_line(line)
    return int(word)


def _malformed_line(line: bytes) -> MalformedProxyHeader:
    return MalformedProxyHeader(f"{line!r} is no PROXY line: TCP4 or TCP6, two addresses, two ports, or UNKNOWN")


def _read_binary(data: bytes) -> ProxyHeader | None:
    if len(data) < _FRONT.size:
        return None
    _, command, kind, rest_bytes = _FRONT.unpack_from(data)
    family, transport = kind >> 4, kind & 0x0F
    if command not in (_LOCAL, _PROXY) or family >= _FAMILIES or transport >= _TRANSPORTS:
        raise MalformedProxyHeader(f"a PROXY header has version and command {command:#04x}, family {kind:#04x}")
    if rest_bytes > MAX_REST_BYTES:
        raise MalformedProxyHeader(f"a PROXY header of {rest_bytes} bytes, above {MAX_REST_BYTES}")
    address_bytes = _ADDRESS_BYTES.get(family, 0) if command == _PROXY and transport == _STREAM else 0
    if address_bytes and rest_bytes < 2 * address_bytes + 4:
        raise MalformedProxyHeader(f"a PROXY header of {rest_bytes} bytes cannot hold its addresses")
    size_bytes = _FRONT.size + rest_bytes
    if len(data) < size_bytes:
        return None
    if not address_bytes:
        return ProxyHeader(None, size_bytes)
    packed = data[_FRONT.size : _FRONT.size + address_bytes]
    source = IPv4Address(packed) if address_bytes == 4 else IPv6Address(packed)
    return ProxyHeader((_text(source), _PORT(data, _FRONT.size + 2 * address_bytes)[0]), size_bytes)


def _text(address: IPv4Address | IPv6Address) -> str:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)
