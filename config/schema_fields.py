"""The base of the file's sections, and the types of their fields. Each error names the remedy."""

import re
from collections.abc import Callable
from enum import Enum
from ipaddress import AddressValueError, IPv6Address
from typing import Annotated, Any, Final, TypeVar, cast

from pydantic import BaseModel, ConfigDict, PlainValidator

from kafka_quota_proxy.config.addresses import parse_address, parse_addresses
from kafka_quota_proxy.config.errors import UnitError
from kafka_quota_proxy.config.model import DEFAULT, Address, Enforcement, Shaping
from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.config.units import INT32_MAX, parse_duration_ms, parse_rate

_LEAST_POLL_MS: Final = 200
# Kafka's Topic.validate.
_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_E = TypeVar("_E", bound=Enum)
_T = TypeVar("_T")


class TextWantedError(ValueError):
    """A number, boolean or date instead of text, often due to YAML: ``007``, ``off``, ``NO``."""

    def __init__(self, expected: str, *, quotable: bool) -> None:
        super().__init__(expected)
        self.expected = expected
        self.quotable = quotable  # whether quotes are the remedy, because any text is valid


def valid_text(value: object, expected: str) -> str:
    """Return text that is not empty; ``expected`` is the remedy."""
    if not isinstance(value, str):
        raise TextWantedError(expected, quotable=True)
    if not value:
        raise ValueError(f"must not be empty; write {expected}")
    return value


def quantity(parse: Callable[[str | float], _T], expected: str) -> Callable[[object], _T]:
    """Return a validator for numbers and text with a unit."""

    def check(value: object) -> _T:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise TextWantedError(expected, quotable=False)
        return parse(value)

    return check


def valid_address(value: object) -> Address:
    """Return the address that ``HOST:PORT`` names."""
    if not isinstance(value, str):
        raise TextWantedError("HOST:PORT, such as 127.0.0.1:9092", quotable=False)
    return parse_address(value)


def member_of(choices: type[_E]) -> Callable[[object], _E]:
    """Return a validator for the values of an Enum."""
    names = [str(choice.value) for choice in choices]
    return lambda value: choices(one_of(value, names))


def one_of(value: object, names: list[str]) -> str:
    """Return ``value``, which must be one of ``names``."""
    expected = f"{', '.join(names[:-1])} or {names[-1]}"
    if not isinstance(value, str):
        raise TextWantedError(expected, quotable=False)
    if value not in names:
        raise ValueError(f"must be {expected}, not {value!r}")
    return value


def _principal_name(value: object) -> str:
    name = valid_text(value, "a user's name")
    if name == DEFAULT.value:
        raise ValueError("<default> is no user here; list each user by name")
    return name


def valid_bootstrap_servers(value: object) -> tuple[Address, ...]:
    """Return the addresses of a list, or of text with commas."""
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        value = ",".join(value)
    if not isinstance(value, str):
        raise TextWantedError("HOST:PORT,HOST:PORT, such as broker1:9092,broker2:9092", quotable=False)
    return parse_addresses(value)


def valid_host(value: object) -> str:
    """Return a host name or an IP address."""
    host = valid_text(value, "the host name or IP address that clients reach this proxy at")
    try:
        return str(IPv6Address(host)) if ":" in host else parse_address(f"{host}:1").host
    except (UnitError, AddressValueError) as error:
        raise ValueError(f"{host!r} is not a host name or an IP address, without a port") from error


def whole_number(minimum: int, maximum: int, why: str = "") -> Callable[[object], int]:
    """Return a validator for whole numbers; ``why`` ends its error message."""

    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
            raise ValueError(f"must be a whole number from {minimum} to {maximum}{why}")
        return value

    return check


def parse_positive_ms(value: str | float) -> int:
    """Return a duration above 0."""
    duration_ms = parse_duration_ms(value)
    if not 0 < duration_ms <= INT32_MAX:
        raise ValueError(f"must be above 0 and at most {INT32_MAX}ms, an int32; write a duration such as 1s")
    return duration_ms


def _parse_poll_ms(value: str | float) -> int:
    duration_ms = parse_duration_ms(value)
    if not _LEAST_POLL_MS <= duration_ms <= INT32_MAX:
        raise ValueError(f"must be from {_LEAST_POLL_MS}ms to {INT32_MAX}ms: each time all brokers are asked")
    return duration_ms


def or_null(check: Callable[[object], _T]) -> Callable[[object], _T | None]:
    """Return a validator that also takes null."""
    return lambda value: None if value is None else check(value)


valid_rate: Final = quantity(parse_rate, QuotaKind.PRODUCE.spec.unit.expected)
valid_duration_ms: Final = quantity(parse_positive_ms, "a duration, such as 500ms or 1s")
valid_poll_ms: Final = quantity(_parse_poll_ms, "a duration, such as 2s")


def _pem_path(value: object) -> str:
    return valid_text(value, "the path of a PEM file")


def valid_topic(value: object) -> str:
    """Return a topic's name."""
    # A key of the file is always text.
    if not isinstance(value, str) or not _TOPIC_NAME.fullmatch(value) or value in (".", ".."):
        raise ValueError(f"{value!r} is no name of a topic: 1 to 249 letters, digits, dots, underscores and hyphens")
    return value


PemPath = Annotated[Any, PlainValidator(_pem_path)]
UserName = Annotated[str, PlainValidator(_principal_name)]
Rate = Annotated[Any, PlainValidator(valid_rate)]
CreationRate = Annotated[
    Any, PlainValidator(whole_number(1, INT32_MAX, ", connections per second; left out, there is no limit"))
]
EnforcementChoice = Annotated[Any, PlainValidator(member_of(Enforcement))]
ShapingChoice = Annotated[Any, PlainValidator(member_of(Shaping))]
AtLeastOne = Annotated[int, PlainValidator(whole_number(1, INT32_MAX))]
NodeId = Annotated[Any, PlainValidator(whole_number(0, INT32_MAX, ", the node id of a broker"))]
FilePath = Annotated[Any, PlainValidator(lambda value: valid_text(value, "the path of a file"))]


class Section(BaseModel):
    """The base of all sections: unknown keys are errors, and no value is converted silently."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    def given(self) -> dict[str, Any]:
        """Return the fields that the file sets, by the model's names."""
        return {name: getattr(self, name) for name in self.model_fields_set}


def number_between(low: float, high: float, *, is_open: bool) -> Callable[[object], float]:
    """Return a validator for numbers; ``is_open``: without ``low`` and ``high`` themselves."""

    def check(value: object) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not low <= cast("float", value) <= high or (is_open and value in (low, high)):
            words = f"above {low:g} and below {high:g}" if is_open else f"from {low:g} to {high:g}"
            raise ValueError(f"must be a number {words}, such as 0.5")
        return float(cast("float", value))

    return check
