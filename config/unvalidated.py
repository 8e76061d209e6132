"""Gives access to a configuration file before validation, for checks that concern more than one key.

These checks treat a value of the wrong type as missing. Another part of the package, ``config.schema``, reports it.
"""

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from kafka_quota_proxy.config.addresses import is_any, parse_address, parse_addresses, without_final_dot
from kafka_quota_proxy.config.document import Document, Location, fault_at
from kafka_quota_proxy.config.errors import Fault, Severity
from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.config.units import parse_rate

_LIKELY_A_UNIT_IS_MISSING: Final = 1_000  # bytes per second; less than one small record

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_T = TypeVar("_T")


class UncheckedFile:
    """A configuration file before validation. ``faults`` contains what the checks have found so far."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.top: dict[str, object] = document.data if isinstance(document.data, dict) else {}
        self.faults: list[Fault] = []

    def error(self, location: Location, message: str) -> None:
        """Report an error at a key. The proxy cannot use a configuration with errors."""
        self.faults.append(fault_at(self.document, location, message))

    def warn(self, location: Location, message: str) -> None:
        """Report a warning at the key to which the path ``location`` leads. The configuration can still be used."""
        self.faults.append(fault_at(self.document, location, message, Severity.WARNING))

    def line(self, location: Location) -> int:
        """Return the number of the line with the key to which the path ``location`` leads."""
        return self.document.line(location)

    def elements(self, *path: str) -> Iterator[tuple[tuple[str | int, ...], dict[str, object]]]:
        """Yield the location and the value of each mapping in the list at ``path``."""
        for index, element in enumerate(self.list_at(*path)):
            if isinstance(element, dict):
                yield (*path, index), element

    def list_at(self, *path: str) -> list[object]:
        """Return the list to which the keys in ``path`` lead, or an empty list if there is no list at this place."""
        value = self._at(path)
        return value if isinstance(value, list) else []

    def mapping_at(self, *path: str) -> dict[str, object] | None:
        """Return the mapping to which the keys in ``path`` lead, or None if there is no mapping at this place."""
        value = self._at(path)
        return value if isinstance(value, dict) else None

    def check_null(self, location: Location, example: str) -> None:
        """Report an error if a key is given without a value.

        This is for keys for which null has a meaning, such as "no limit". For such keys, the operator has to write the
        word ``null``. ``example`` is the part of the error message that says what to write.
        """
        *path, key = location
        section = self._at(path)
        if isinstance(section, dict) and section.get(key, key) is None and not self.document.text(location):
            self.error(location, f"has no value; write {example}")

    def _at(self, path: Location) -> object:
        value: object = self.top
        for step in path:
            if isinstance(value, list) and isinstance(step, int):
                value = value[step]
            else:
                value = value.get(step) if isinstance(value, dict) else None
        return value


def parsed(parse: Callable[[str], _T], value: object) -> _T | None:
    """Return the value that ``parse`` reads from a text, or None if ``value`` is not a text that it accepts."""
    try:
        return parse(value) if isinstance(value, str) else None
    except ValueError:
        return None


def addresses_of(value: object) -> tuple[Address, ...]:
    """Return the addresses in a list, or in text with commas, or an empty tuple if one of them is not an address."""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        value = ",".join(value)
    return parsed(parse_addresses, value) or ()


def address_of(value: object) -> Address | None:
    """Return the host and port that ``value`` names as ``HOST:PORT``, or None if it is not such a text."""
    return parsed(parse_address, value)


def upstreams_of(listener: dict[str, object]) -> frozenset[Address]:
    """Return the broker addresses that a listener has under ``upstream`` and ``bootstrap_servers``."""
    return frozenset(addresses_of(listener.get("upstream")) + addresses_of(listener.get("bootstrap_servers")))


def leads_to(address: Address, bind: Address) -> bool:
    """Whether a connection to ``address`` reaches a listener on ``bind``, as far as known without resolving names."""
    hosts = {without_final_dot(address.host), without_final_dot(bind.host)}
    own = len(hosts) == 1 or all(host in _LOOPBACK or is_any(host) for host in hosts)
    return own and address.port == bind.port


def share_host(one: str, other: str) -> bool:
    """Whether listeners on these two hosts would overlap: the hosts are equal, or one of them means all addresses."""
    return one == other or is_any(one) or is_any(other)


def small_rate(value: object) -> str | None:
    """Return a warning if a byte rate has no unit and is so low that the unit was probably forgotten."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # A rate with a unit, such as 500B, is not a mistake.
    if not is_number and not (isinstance(value, str) and value.isdigit()):
        return None
    rate = parsed(parse_rate, str(value))
    if rate is None or rate >= _LIKELY_A_UNIT_IS_MISSING:
        return None
    return f"{value} bytes per second is very little; is a unit missing, such as {value}MiB?"
