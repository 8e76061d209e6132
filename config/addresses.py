"""Reads addresses with a port, IP addresses and ranges of ports in the form that operators write."""

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from kafka_quota_proxy.config.errors import UnitError
from kafka_quota_proxy.config.model import BROKER_PORTS, Address
from kafka_quota_proxy.config.units import shown

# A shell, a template or a pattern is left in a host with one of the excluded characters.
_HOST_PORT: Final = re.compile(
    r"(?:\[([0-9A-Fa-f:.]+(?:%[^\s\[\]]+)?)\]|([^\s\[\]:/@,*?<>(){}$\"'`\\|;&#=%]+)):([0-9]+)", re.ASCII
)
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_PORT_RANGE: Final = re.compile(r"([0-9]{1,5})\s*-\s*([0-9]{1,5})", re.ASCII)
_PORT_RANGE_HELP: Final = "write FIRST-LAST, such as 9193-9292: the broker with node id n gets port FIRST + n"
_ADDRESS_HELP: Final = 'write HOST:PORT, such as 127.0.0.1:9092 or "[::1]:9092"'


def without_final_dot(host: str) -> str:
    """Return a host name without the dot that makes it absolute for DNS. Both spellings name the same host."""
    return host.removesuffix(".")


def same_spelling(address: Address) -> Address:
    """Return an address in a spelling in which it can be compared with others. It must not be dialled."""
    return Address(host=without_final_dot(address.host), port=address.port)


def parse_address(value: str) -> Address:
    """Return the address in ``HOST:PORT`` or ``[IPV6]:PORT``. Raises UnitError if ``value`` is not an address."""
    if "://" in value:
        protocol, _, rest = value.partition("://")
        raise UnitError(f"an address has no protocol; write {rest or 'HOST:PORT'} without {protocol}://")
    if "," in value:
        raise UnitError(f"must be one address, not a list; {_ADDRESS_HELP}")
    match = _HOST_PORT.fullmatch(value)
    if match is None or (match[1] and ip_of(match[1]) is None):
        raise UnitError(f"{shown(value)} is not an address; {_ADDRESS_HELP}")
    ipv6, host, digits = match.groups()
    # Do not pass many digits to int(), which raises another error for more than 4,300 digits.
    port = int(digits) if len(digits) <= 5 else 65_536
    if port > 65_535:
        raise UnitError(f"port {digits} is out of range; a port is at most 65535")
    if host and not all(0 < len(label) < 64 for label in without_final_dot(host).split(".")):
        raise UnitError(f"{shown(host)} is not a host name: between its dots there are 1 to 63 characters")
    if host and re.fullmatch(r"\d+(\.\d+)+", host) and ip_of(host) is None:
        raise UnitError(f"{shown(host)} is not an IP address: it has four numbers from 0 to 255")
    return Address(host=ipv6 or host, port=port)


def parse_bind(value: str) -> Address:
    """Return the address on which to listen, in ``HOST:PORT``. Raises UnitError if ``value`` is not an address."""
    host, _, port = value.rpartition(":")
    if host in ("", "*", "[*]") and port.isdecimal():
        raise UnitError(f"{value!r} names no address; write 0.0.0.0:{port} to listen on all of them")
    return parse_address(value)


def ip_of(host: str) -> IPv4Address | IPv6Address | None:
    """Return the IP address that a host is, or None for a name. An IPv4-mapped address is one of IPv4."""
    try:
        found = ip_address(host)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def is_any(host: str) -> bool:
    """Whether a host stands for all addresses of a machine, as 0.0.0.0 does. One can listen there."""
    found = ip_of(host)
    return found is not None and found.is_unspecified


def is_loopback(host: str) -> bool:
    """Whether a host is an address that only this machine can reach."""
    found = ip_of(host)
    return host == "localhost" if found is None else found.is_loopback


def leads_to(address: Address, bind: Address) -> bool:
    """Whether a connection to ``address`` reaches a listener on ``bind``, as far as known without resolving names."""
    both_own = all(without_final_dot(host) in _LOOPBACK or is_any(host) for host in (address.host, bind.host))
    return address.port == bind.port and (both_own or same_host(address.host, bind.host))


def same_host(one: str, other: str) -> bool:
    """Whether two hosts are one host, or names of this machine, as far as known without resolving names."""
    names = {without_final_dot(host.lower()) for host in (one, other)}
    return len(names) == 1 or names <= _LOOPBACK


def share_host(one: str, other: str) -> bool:
    """Whether listeners on these two hosts would overlap: the hosts are equal, or one of them means all addresses."""
    return one == other or is_any(one) or is_any(other)


def parse_ip(value: str) -> str:
    """Return an IP address in its normal form. Raises UnitError if ``value`` is not an IP address.

    An IPv4-mapped IPv6 address becomes an IPv4 address.
    """
    if "/" in value:
        raise UnitError(f"{shown(value)} is a network; write one address, or <default> for each address without a rule")
    found = usual_ip(value)
    if found is None:
        raise UnitError(f"{not_an_ip(value)}, or <default>")
    return found


def usual_ip(value: str) -> str | None:
    """Return an IP address in its normal form as ``parse_ip`` does, or None if ``value`` is not an IP address."""
    found = ip_of(value)
    return None if found is None else str(found)


def canonical(host: str) -> str:
    """Return an IP address in its normal form. A host name is returned unchanged."""
    return usual_ip(host) or host


def not_an_ip(value: str) -> str:
    """Return the message for a value, such as a host name, that is not an IP address."""
    return f"{shown(value)} is not an IP address; write one such as 10.0.0.7"


def parse_addresses(value: str) -> tuple[Address, ...]:
    """Return the addresses in a list ``HOST:PORT,HOST:PORT``, without duplicates.

    Raises UnitError if the list is empty, or if an address in it is not valid or has port 0.
    """
    addresses = tuple(dict.fromkeys(parse_address(part.strip()) for part in value.split(",")))
    for address in addresses:
        if address.port == 0:
            raise UnitError(f"{address} has port 0; write the broker's port, 1 to 65535")
    return addresses


def parse_port_range(value: str) -> tuple[int, int]:
    """Return the first and the last port of ``FIRST-LAST``. Raises UnitError if the range is not valid."""
    match = _PORT_RANGE.fullmatch(value.strip())
    if match is None:
        raise UnitError(f"{shown(value)} is not a range of ports; {_PORT_RANGE_HELP}")
    first, last = int(match[1]), int(match[2])
    if not 0 < first <= last <= 65_535:
        raise UnitError(f"{shown(value)} is not a range within 1 to 65535; {_PORT_RANGE_HELP}")
    return first, last


def default_broker_ports(bind: Address) -> tuple[int, int]:
    """Return the first and the last port that brokers get by default. The range begins after the port of ``bind``."""
    return bind.port + 1, bind.port + BROKER_PORTS
