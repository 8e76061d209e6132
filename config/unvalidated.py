"""Access to a file's values before validation: a value of the wrong type counts as missing."""

from collections.abc import Callable, Iterator
from typing import Final

from kafka_quota_proxy.config.addresses import parse_address, parse_addresses
from kafka_quota_proxy.config.document import Document, Location
from kafka_quota_proxy.config.errors import UnitError
from kafka_quota_proxy.config.model import Address
from kafka_quota_proxy.config.units import parse_rate

_LIKELY_A_UNIT_IS_MISSING: Final = 1_000  # bytes per second; less than one small record

ANY_HOST: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104
_OWN_HOST: Final = ANY_HOST | {"localhost", "127.0.0.1", "::1"}

Report = Callable[[Location, str], None]


def elements(document: Document, *path: str) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield index and value of each mapping in the list under ``path``."""
    for index, element in enumerate(list_at(document, *path)):
        if isinstance(element, dict):
            yield index, element


def list_at(document: Document, *path: str) -> list[object]:
    """Return the list under ``path``; an empty one if there is none."""
    value = _at(document, *path)
    return value if isinstance(value, list) else []


def mapping_at(document: Document, *path: str) -> dict[str, object] | None:
    """Return the mapping under ``path``; None if there is none."""
    value = _at(document, *path)
    return value if isinstance(value, dict) else None


def _at(document: Document, *path: str) -> object:
    value = document.data
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def addresses_of(value: object) -> tuple[Address, ...]:
    """Return the addresses of a text or a list of texts; none if one of them is not an address."""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        value = ",".join(value)
    try:
        return parse_addresses(value) if isinstance(value, str) else ()
    except UnitError:
        return ()


def address_of(value: object) -> Address | None:
    """Return the address of a text; None if it is not an address."""
    try:
        return parse_address(value) if isinstance(value, str) else None
    except UnitError:
        return None


def leads_to(address: Address, bind: Address) -> bool:
    """Whether a connection to ``address`` reaches ``bind``, judged by both texts."""
    own = address.host == bind.host or (address.host in _OWN_HOST and bind.host in _OWN_HOST)
    return own and address.port == bind.port


def small(rate: object) -> str:
    """Return the warning about a rate for which ``is_small`` is true."""
    return f"{rate} bytes per second is very little; is a unit missing, such as {rate}MiB?"


def is_small(value: object) -> bool:
    """Whether a rate is a bare number so low that a unit may be missing."""
    # Only a bare number: 500B is not a mistake.
    if isinstance(value, bool) or not (isinstance(value, int | float) or (isinstance(value, str) and value.isdigit())):
        return False
    try:
        return parse_rate(value) < _LIKELY_A_UNIT_IS_MISSING
    except UnitError:
        return False
