"""The limits of rules by their keys, as an operator writes them: which there are, and what each takes."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from kafka_quota_proxy.config.errors import UnitError
from kafka_quota_proxy.config.units import parse_number, parse_rate, shown

OF_IPS: Final = "connection_creation_rate"

_INT32_MAX: Final = 2**31 - 1


class LimitKey(NamedTuple):
    """How a limit is read, and what is to stand there."""

    parse: Callable[[str | float], float]
    expected: str


def _parse_connections(value: str | float) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _INT32_MAX:
        raise UnitError(f"must be a whole number from 1 to {_INT32_MAX}, open at once")
    return value


_BYTE_RATE: Final = LimitKey(parse_rate, "bytes per second, such as 10MB or 10MiB")
LIMIT_KEYS: Final[Mapping[str, LimitKey]] = {
    "producer_byte_rate": _BYTE_RATE,
    "consumer_byte_rate": _BYTE_RATE,
    "request_percentage": LimitKey(
        partial(parse_number, kind="a percentage", example="50 (100 is one thread's time; it may be more)"),
        "a number such as 50, the per cent of one thread's time",
    ),
    "request_rate": LimitKey(
        partial(parse_number, kind="a request rate", example="100"), "requests per second, such as 100"
    ),
    "controller_mutation_rate": LimitKey(
        partial(parse_number, kind="a mutation rate", example="10"), "partitions per second, such as 10"
    ),
    "connections": LimitKey(_parse_connections, "a whole number such as 20, open at once"),
    # 0 lets nobody in, which is of use for one address; Kafka's own broker takes it as well, its Admin API does not.
    OF_IPS: LimitKey(
        partial(parse_number, kind="a connection rate", example="5", allows_0=True), "connections per second, such as 5"
    ),
}


def parse_limit(key: str, value: object) -> float:
    """Return a limit, in the unit of its key; ``connections`` as a whole number.

    Args:
        key: One of ``LIMIT_KEYS``.
        value: A number, or text with a unit.

    Raises:
        UnitError: Not such a limit.
    """
    parse, expected = LIMIT_KEYS[key]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UnitError(f"must be {expected}" if value is None else f"must be {expected}, not {shown(value)}")
    return parse(value)
