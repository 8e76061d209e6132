"""Sizes, rates, durations and addresses as an operator writes them.

Sizes and rates: a number and ``B``, ``kB`` or ``KB``, ``MB``, ``GB``, ``TB`` (powers of 1,000) or ``KiB``, ``MiB``,
``GiB``, ``TiB`` (powers of 1,024); a bare number is bytes. Durations: a number and ``ms``, ``s``, ``m`` or ``h``; a
bare one is refused, because half of the readers would take it for seconds. A decimal point is fine while the result
is whole.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from ipaddress import ip_address
from typing import Final

from kafka_quota_proxy.config.errors import UnitError
from kafka_quota_proxy.config.model import BROKER_PORTS, UNLIMITED, Address

_QUANTITY: Final = re.compile(r"([+-]?[0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", re.ASCII)
_HOST_PORT: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+(?:%[^\s\[\]]+)?)\]|([^\s\[\]:/@,]+)):([0-9]+)", re.ASCII)

_PORT_RANGE: Final = re.compile(r"([0-9]{1,5})\s*-\s*([0-9]{1,5})", re.ASCII)

_BYTES_PER_UNIT: Final[Mapping[str, int]] = {
    "": 1,
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_MS_PER_UNIT: Final[Mapping[str, int]] = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}

_INT32_MAX: Final = 2**31 - 1
# More than any quantity has.
_MOST_DIGITS: Final = 4_000
_MOST_WHOLE: Final = 10**_MOST_DIGITS

_SIZE_HELP: Final = "write a number of bytes or one with a unit, such as 10MB (10,000,000) or 10MiB (10,485,760)"
_DURATION_HELP: Final = "write a number with a unit, such as 500ms, 30s, 5m or 1h"
_PORT_RANGE_HELP: Final = "write FIRST-LAST, such as 9193-9292: the broker with node id n gets port FIRST + n"
_ADDRESS_HELP: Final = 'write HOST:PORT, such as 127.0.0.1:9092 or "[::1]:9092"'


def parse_size(value: str | float) -> int:
    """Return a size in whole bytes; 0 or more.

    Raises:
        UnitError: Not a size, negative, or not a whole number of bytes.
    """
    return _whole(_amount(value, _BYTES_PER_UNIT, kind="a size", help_text=_SIZE_HELP), value, unit="bytes")


def parse_rate(value: str | float) -> float:
    """Return a rate in bytes per second, above 0; a trailing ``/s`` is allowed.

    Raises:
        UnitError: Not a rate, zero, negative or beyond Kafka's int64.
    """
    text = value.removesuffix("/s").rstrip() if isinstance(value, str) else value
    rate = _amount(text, _BYTES_PER_UNIT, kind="a byte rate", help_text=_SIZE_HELP)
    # Of a rate that is smaller than any float, 0 would be left.
    if not float(rate):
        raise UnitError("a byte rate must be above 0: a rate of 0 would stop clients for ever; remove it for no limit")
    # As floats: so "no limit" is written, which is a little more, and it has to be read again.
    if float(rate) > float(UNLIMITED):
        raise UnitError(f"a byte rate is at most {UNLIMITED} (Kafka's int64), got {shown(value)}")
    return float(rate)


def parse_number(value: str | float, *, kind: str, example: str, allows_0: bool = False) -> float:
    """Return a number without a unit: above 0, or 0 if so allowed, and at most Kafka's int32, its "no limit".

    Args:
        value: the number, or its digits as text.
        kind: what it is, such as "a percentage", for the error.
        example: what to write, for the error.
        allows_0: whether 0 means something.

    Raises:
        UnitError: Not such a number.
    """
    number = _amount(value, {"": 1}, kind=kind, help_text=f"write a number such as {example}")
    if number > _INT32_MAX:
        raise UnitError(f"{kind} is at most {_INT32_MAX} (no limit in Kafka), got {shown(value)}")
    # Of a number that is smaller than any float, 0 would be left, by which something may be divided.
    if not (float(number) or (allows_0 and number == 0)):
        raise UnitError(f"{kind} must be above 0: 0 would stop clients for ever; remove it for no limit")
    return float(number)


def parse_duration_ms(value: str | float) -> int:
    """Return a duration in whole milliseconds; 0 or more.

    Raises:
        UnitError: Not a duration, without a unit, negative, or not a whole number of milliseconds.
    """
    return _whole(_amount(value, _MS_PER_UNIT, kind="a duration", help_text=_DURATION_HELP), value, unit="milliseconds")


def parse_address(value: str) -> Address:
    """Return the address that ``HOST:PORT`` or ``[IPV6]:PORT`` names; port 0 to 65535.

    Raises:
        UnitError: Not an address, or a port that does not exist.
    """
    if "://" in value:
        protocol, _, rest = value.partition("://")
        raise UnitError(f"an address here has no protocol; write {rest or 'HOST:PORT'} without {protocol}://")
    if "," in value:
        raise UnitError(f"one address is wanted, not a list; {_ADDRESS_HELP}")
    match = _HOST_PORT.fullmatch(value)
    if match is None:
        raise UnitError(f"{shown(value)} is not an address; {_ADDRESS_HELP}")
    ipv6, host, digits = match.groups()
    # int() refuses more than 4,300 digits with an error of its own.
    port = int(digits) if len(digits) <= 5 else 65_536
    if port > 65_535:
        raise UnitError(f"port {digits} is out of range; a port is at most 65535")
    if host and not all(0 < len(label) < 64 for label in host.removesuffix(".").split(".")):
        raise UnitError(f"{shown(host)} is not a host name: between its dots there are 1 to 63 characters")
    return Address(host=ipv6 or host, port=port)


def parse_ip(value: str) -> str:
    """Return an IP address in its usual form, so that two texts for one are one text; IPv4 within IPv6 is IPv4.

    Raises:
        UnitError: Not an address.
    """
    if "/" in value:
        raise UnitError(f"{shown(value)} is a network; write one address, or <default> for each of all others")
    try:
        address = ip_address(value)
    except ValueError as error:
        raise UnitError(f"{shown(value)} is no IP address; write one such as 10.0.0.7, or <default>") from error
    return str(getattr(address, "ipv4_mapped", None) or address)


def parse_addresses(value: str) -> tuple[Address, ...]:
    """Return the addresses that ``HOST:PORT,HOST:PORT`` names, at least one, each once, none with port 0.

    Raises:
        UnitError: One of them is not an address, or names no port.
    """
    addresses = tuple(dict.fromkeys(parse_address(part.strip()) for part in value.split(",")))
    for address in addresses:
        if address.port == 0:
            raise UnitError(f"{address} has port 0; write the broker's port, 1 to 65535")
    return addresses


def parse_port_range(value: str) -> tuple[int, int]:
    """Return the first and the last port that ``FIRST-LAST`` names.

    Raises:
        UnitError: Not a range of ports.
    """
    match = _PORT_RANGE.fullmatch(value.strip())
    if match is None:
        raise UnitError(f"{shown(value)} is not a range of ports; {_PORT_RANGE_HELP}")
    first, last = int(match[1]), int(match[2])
    if not 0 < first <= last <= 65_535:
        raise UnitError(f"{shown(value)} is not a range within 1 to 65535; {_PORT_RANGE_HELP}")
    return first, last


def default_broker_ports(bind: Address) -> tuple[int, int]:
    """Return the first and the last of the ports behind a bootstrap port that are its brokers' where none are given."""
    return bind.port + 1, bind.port + BROKER_PORTS


def _amount(value: str | float, factors: Mapping[str, int], *, kind: str, help_text: str) -> Decimal:
    """Return number times unit, 0 or more. ``factors`` has the unit "" where a bare number means something."""
    # Of a million digits arithmetic overflows, and a whole number of some thousand cannot even be shown.
    is_long = len(value) > _MOST_DIGITS if isinstance(value, str) else abs(value) > _MOST_WHOLE
    if is_long and not isinstance(value, float):
        raise UnitError(f"what has more than {_MOST_DIGITS} characters is too long for {kind}; {help_text}")
    if isinstance(value, float) and not math.isfinite(value):
        raise UnitError(f"{kind} must be finite, got {value}; {help_text}")
    match = _QUANTITY.fullmatch(value.strip() if isinstance(value, str) else f"{Decimal(str(value)):f}")
    if match is None:
        raise UnitError(f"{shown(value)} is not {kind}; {help_text}")
    number, unit = Decimal(match[1]), match[2]
    if number < 0:
        raise UnitError(f"{kind} cannot be negative, got {shown(value)}; {help_text}")
    if unit not in factors:
        raise UnitError(_wrong_unit(value, unit, factors, kind=kind, help_text=help_text))
    return number * factors[unit]


def _wrong_unit(value: object, unit: str, factors: Mapping[str, int], *, kind: str, help_text: str) -> str:
    if not unit:
        return f"{shown(value)} has no unit; {help_text}"
    near = [known for known in factors if known.lower() in (unit.lower(), f"{unit}b".lower(), f"{unit}ib".lower())]
    hint = f"did you mean {' or '.join(near)}?" if near else help_text
    return f"{unit!r} is not a unit of {kind.removeprefix('a ')}; {hint}"


def _whole(amount: Decimal, value: object, *, unit: str) -> int:
    if amount != amount.to_integral_value():
        raise UnitError(f"{shown(value)} is not a whole number of {unit}")
    return int(amount)


def shown(value: object) -> str:
    """Return a value as a message shows it: a long one is cut."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
