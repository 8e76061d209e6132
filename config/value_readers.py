"""Readers for kinds of values that appear in several sections of the configuration file.

A reader takes a value from YAML and returns a value for ``config.model``, or raises ValueError with advice for the
operator. Functions of this module that take a ``value`` are readers. The others return a reader.
"""

import math
import re
from collections.abc import Callable
from enum import Enum
from ipaddress import AddressValueError, IPv6Address
from typing import Any, Final, TypeVar

from kafka_quota_proxy.config.addresses import is_any, parse_address, parse_addresses, parse_bind
from kafka_quota_proxy.config.errors import UnitError
from kafka_quota_proxy.config.model import DEFAULT, Address
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.config.sections import Key, TextWantedError
from kafka_quota_proxy.config.units import INT32_MAX, parse_duration_ms, parse_rate, shown

_LEAST_POLL_MS: Final = 200
# Kafka's Topic.validate.
_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_E = TypeVar("_E", bound=Enum)
_T = TypeVar("_T")


def text(expected: str) -> Callable[[object], str]:
    """Return a function that reads text from a value in YAML, and raises ValueError if the text is empty.

    For any other type it raises TextWantedError. ``expected`` tells the operator in these errors what to write.
    """

    def read(value: object) -> str:
        if not isinstance(value, str):
            raise TextWantedError(expected, quotable=True)
        if not value:
            raise ValueError(f"must not be empty; write {expected}")
        return value

    return read


def parsed(parse: Callable[[str], _T], expected: str) -> Callable[[object], _T]:
    """Return a reader that converts text with ``parse``."""

    def read(value: object) -> _T:
        if not isinstance(value, str):
            raise TextWantedError(expected, quotable=False)
        return parse(value)

    return read


def quantity(
    parse: Callable[[str | float], float],
    expected: str,
    *,
    least: float = 0,
    most: float = math.inf,
    otherwise: str = "",
) -> Callable[[object], Any]:
    """Return a reader that converts a number, or text with a number and a unit, with ``parse``.

    ``otherwise`` is the error message for a quantity below ``least`` or above ``most``.
    """

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise TextWantedError(expected, quotable=False)
        found = parse(value)
        if not least <= found <= most:
            raise ValueError(otherwise)
        return found

    return read


def one_of(*names: str) -> Callable[[object], str]:
    """Return a function that returns a value from YAML if it is one of ``names``, and otherwise raises ValueError."""
    expected = f"{', '.join(names[:-1])} or {names[-1]}"

    def parse(value: str) -> str:
        if value not in names:
            raise ValueError(f"must be {expected}, not {value!r}")
        return value

    return parsed(parse, expected)


def member_of(choices: type[_E]) -> Callable[[object], _E]:
    """Return a reader that converts text to the member of an Enum with this value."""
    read = one_of(*(str(choice.value) for choice in choices))
    return lambda value: choices(read(value))


def whole_number(least: int, most: int, why: str = "") -> Callable[[object], int]:
    """Return a reader of a whole number from ``least`` to ``most``. ``why`` is appended to the error message."""

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"must be a whole number from {least} to {most}{why}")
        return value

    return read


def number_between(low: float, high: float, *, is_open: bool) -> Callable[[object], float]:
    """Return a reader of a number from ``low`` to ``high``. If ``is_open``, these two numbers are not valid."""

    def read(value: object) -> float:
        is_edge = is_open and value in (low, high)
        if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high and not is_edge:
            return float(value)
        words = f"above {low:g} and below {high:g}" if is_open else f"from {low:g} to {high:g}"
        raise ValueError(f"must be a number {words}, such as 0.5")

    return read


def positive_duration(expected: str) -> Callable[[object], int]:
    """Return a reader of a duration above 0. The reader returns milliseconds."""
    otherwise = f"must be above 0 and at most {INT32_MAX}ms, an int32; write a duration such as 1s"
    return quantity(parse_duration_ms, expected, least=1, most=INT32_MAX, otherwise=otherwise)


def boolean(value: object) -> bool:
    """Return ``value`` if it is true or false. Otherwise raise TextWantedError."""
    if not isinstance(value, bool):
        raise TextWantedError("true or false (without quotes)", quotable=False)
    return value


def user_name(value: object) -> str:
    """Return ``value`` if it is the name of a single user. Otherwise, or for ``<default>``, raise ValueError."""
    name = text("a user's name")(value)
    if name == DEFAULT.value:
        raise ValueError("<default> cannot be used here; list each user by name")
    return name


def bootstrap_servers(value: object) -> tuple[Address, ...]:
    """Read broker addresses (``HOST:PORT``) from a list, or from text in which commas separate them."""
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        value = ",".join(value)
    return parsed(parse_addresses, "HOST:PORT,HOST:PORT, such as broker1:9092,broker2:9092")(value)


def host(value: object) -> str:
    """Read a host name or an IP address without a port."""
    name = text("the host name or IP address that clients reach this proxy at")(value)
    try:
        return parse_address(f"[{IPv6Address(name)}]:1" if ":" in name else f"{name}:1").host
    except (UnitError, AddressValueError) as error:
        raise ValueError(
            f"{name!r} is not a host name or an IP address, without a port; write one that clients reach, such as "
            "proxy.example.com"
        ) from error


def advertised_host(value: object) -> str:
    """Read the host name or IP address, without a port, at which clients reach the proxy."""
    name = host(value)
    if is_any(name):
        raise ValueError(f"no client can connect to {name}, which means all addresses; write the host that clients use")
    return name


def topic_name(value: object) -> str:
    """Return ``value`` if it is a valid name of a Kafka topic. Otherwise raise ValueError."""
    # The name may be a key of a mapping, and keys are always text, so no error about quotes is needed.
    if not isinstance(value, str) or not _TOPIC_NAME.fullmatch(value) or value in (".", ".."):
        raise ValueError(
            f"{shown(value)} is not the name of a topic: 1 to 249 letters, digits, dots, underscores and hyphens"
        )
    return value


bind: Final = parsed(parse_bind, "HOST:PORT, such as 127.0.0.1:9092")
byte_rate: Final = quantity(parse_rate, QuotaKind.PRODUCE.spec.unit.expected)
duration_ms: Final = positive_duration("a duration, such as 500ms or 1s")
poll_interval_ms: Final = quantity(
    parse_duration_ms,
    "a duration, such as 2s",
    least=_LEAST_POLL_MS,
    most=INT32_MAX,
    otherwise=f"must be from {_LEAST_POLL_MS}ms to {INT32_MAX}ms: each time all brokers are asked",
)
at_least_one: Final = whole_number(1, INT32_MAX)
node_id: Final = whole_number(0, INT32_MAX, ", the node id of a broker")
connections_per_second: Final = whole_number(1, INT32_MAX, ", connections per second; left out, there is no limit")
PEM_PATH: Final = Key(text("the path of a PEM file"), is_path=True)
FILE_PATH: Final = Key(text("the path of a file"), is_path=True)
DIRECTORY: Final = Key(text("the path of a directory"), is_path=True)
