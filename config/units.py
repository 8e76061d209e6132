"""Converts sizes, rates, numbers and durations from the form in which operators write them, and back to that form.

A size or a rate is a number with one of the units ``B``, ``kB`` or ``KB``, ``MB``, ``GB``, ``TB`` (powers of 1,000) or
``KiB``, ``MiB``, ``GiB``, ``TiB`` (powers of 1,024). A number without a unit means bytes. A duration is a number with
``ms``, ``s``, ``m`` or ``h``. Its unit is required, because an operator who leaves it out might mean seconds. Sizes and
durations may have a decimal point if the result is a whole number of bytes or milliseconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from operator import itemgetter
from typing import Final

from kafka_quota_proxy.config.errors import UnitError

_QUANTITY: Final = re.compile(r"([+-]?[0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", re.ASCII)

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
# In this order, the first of several equally short and round numbers is taken.
_UNITS: Final = ("kB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB", "")
_DECIMAL: Final = ("TB", "GB", "MB", "kB")
_BINARY: Final = ("TiB", "GiB", "MiB", "KiB")
_MS_PER_UNIT: Final[Mapping[str, int]] = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}

INT32_MAX: Final = 2**31 - 1
# Kafka's value for "no quota", which is Long.MAX_VALUE, the default of quota.producer.default.
UNLIMITED: Final = 9223372036854775807
# No reasonable quantity has more digits.
_MOST_DIGITS: Final = 4_000
_MOST_WHOLE: Final = 10**_MOST_DIGITS

_SIZE_HELP: Final = "write a number of bytes or one with a unit, such as 10MB (10,000,000) or 10MiB (10,485,760)"
_DURATION_HELP: Final = "write a number with a unit, such as 500ms, 30s, 5m or 1h"


class ByteRate(float):
    """A byte rate per second that knows the unit in which an operator has written it. Arithmetic forgets the unit.

    Attributes:
        unit: The unit, such as ``MiB``. Empty if the rate was written without one.
    """

    __slots__ = ("unit",)
    unit: str


def parse_size(value: str | float) -> int:
    """Return a size such as ``10MiB`` in bytes. Raises UnitError if it is not a whole number of bytes, 0 or more."""
    return _whole(_amount(value, _BYTES_PER_UNIT, kind="a size", help_text=_SIZE_HELP), value, unit="bytes")


def parse_rate(value: str | float, *, allows_0: bool = False) -> ByteRate:
    """Return a byte rate such as ``10MiB/s`` in bytes per second. The ``/s`` is optional.

    Raises UnitError if ``value`` is not a rate above 0, or of 0 if ``allows_0``, and at most the largest int64.
    """
    text = value.removesuffix("/s").rstrip() if isinstance(value, str) else value
    rate = _amount(text, _BYTES_PER_UNIT, kind="a byte rate", help_text=_SIZE_HELP)
    # A rate below the smallest float becomes 0.
    if not (float(rate) or allows_0):
        raise UnitError("a byte rate must be above 0: a rate of 0 would stop clients for ever; remove it for no limit")
    # The comparison is between floats. "No limit" as a float is a little above the int64, and must be valid as well.
    if float(rate) > float(UNLIMITED):
        raise UnitError(f"a byte rate is at most {UNLIMITED} (Kafka's int64), got {shown(value)}")
    found = ByteRate(rate)
    found.unit = number_and_unit(text)[1] if isinstance(text, str) else ""
    return found


def parse_number(value: str | float, *, kind: str, example: str, allows_0: bool = False) -> float:
    """Return a number without a unit, above 0 and at most the largest int32.

    If ``allows_0``, the number may also be 0. ``kind`` names the quantity in error messages, such as "a percentage",
    and ``example`` is a valid value for them. Raises UnitError if ``value`` is not such a number.
    """
    number = _amount(value, {"": 1}, kind=kind, help_text=f"write a number such as {example}")
    if number > INT32_MAX:
        raise UnitError(f"{kind} is at most {INT32_MAX} (no limit in Kafka), got {shown(value)}")
    # A number below the smallest float becomes 0, which may be a divisor.
    if not (float(number) or (allows_0 and number == 0)):
        raise UnitError(f"{kind} must be above 0: 0 would stop clients for ever; remove it for no limit")
    return float(number)


def parse_duration_ms(value: str | float) -> int:
    """Return a duration such as ``30s`` in ms. Raises UnitError if it is not a whole number of ms, 0 or more."""
    return _whole(_amount(value, _MS_PER_UNIT, kind="a duration", help_text=_DURATION_HELP), value, unit="milliseconds")


def _amount(value: str | float, factors: Mapping[str, int], *, kind: str, help_text: str) -> Decimal:
    """Return a number of 0 or more, multiplied by the factor of its unit. Raises UnitError if it is anything else."""
    # Arithmetic overflows with a million digits, and Python refuses to print a whole number of some thousand digits.
    is_long = len(value) > _MOST_DIGITS if isinstance(value, str) else abs(value) > _MOST_WHOLE
    if is_long and not isinstance(value, float):
        raise UnitError(f"more than {_MOST_DIGITS} characters are too long for {kind}; {help_text}")
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
    """Return the ``repr`` of a value for an error message, shortened if it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def described_size(size_bytes: float, *, like: float | None = None) -> str:
    """Describe a size or a rate for a message, in bytes and in a larger unit: ``2048 bytes (2 KiB)``.

    The text has the unit in which an operator wrote the number. If ``like`` is given, the text has a unit of the same
    kind as that limit: a power of 1,000 or of 1,024.
    """
    whole = f"{int(size_bytes)} bytes"
    written = written_rate(size_bytes if like is None else like)
    number, unit = number_and_unit(written)
    if like is None and unit not in ("", "B"):
        return f"{whole} ({number} {unit})"
    value, unit = scaled(size_bytes, like=written)
    return whole if unit == "B" else f"{whole} ({value:.4g} {unit})"


def scaled(size_bytes: float, *, like: str) -> tuple[float, str]:
    """Return a size in the largest unit that fits, and the unit. It is of the kind of the one in ``like``: ``2MiB``."""
    units = _BINARY if like.endswith("iB") else _DECIMAL
    unit = next((unit for unit in units if size_bytes >= _BYTES_PER_UNIT[unit]), "B")
    return size_bytes / _BYTES_PER_UNIT[unit], unit


def short_size(size_bytes: float, *, like: str) -> str:
    """Format a size in few characters, such as ``1.5 MiB``, with a unit of the kind of the one in ``like``."""
    value, unit = scaled(size_bytes, like=like)
    return f"{value:.{0 if value >= 100 or unit == 'B' else 1}f} {unit}"


def written_rate(rate: float) -> str:
    """Format a byte rate in the unit in which it was written, else in the one that gives the shortest number.

    ``parse_rate`` reads it as the same rate. Of equally short numbers, a round one is taken: 500KiB, not 512kB.
    """
    # As a float, Kafka's "no limit" is rounded up.
    if rate >= UNLIMITED:
        return str(UNLIMITED)
    return _written(float(rate), rate.unit if isinstance(rate, ByteRate) else "")


@lru_cache(maxsize=1_000)  # many clients have few limits
def _written(rate: float, unit: str) -> str:
    found = []
    for one in (unit,) if unit else _UNITS:
        number = f"{Decimal(repr(rate)) / _BYTES_PER_UNIT[one]:f}"
        number = number.rstrip("0").rstrip(".") if "." in number else number
        if unit or not one or rate >= _BYTES_PER_UNIT[one]:
            found.append((len(number), len(number.rstrip("0")), f"{number}{one}"))
    return min(found, key=itemgetter(0, 1))[2]


def number_and_unit(text: str) -> tuple[str, str]:
    """Return the two parts of a size as ``written_rate`` writes it, such as ``2`` and ``MiB``."""
    number = text.rstrip("kKMGTiB")
    return number, text[len(number) :]


def written_number(value: float) -> str:
    """Format a number in plain digits, without an exponent, so that YAML reads it as a number."""
    return f"{Decimal(repr(value)):f}".removesuffix(".0")
