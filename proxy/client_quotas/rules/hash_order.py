"""Computes the order in which a Java ``HashMap`` returns its keys.

Kafka goes through the types of an entity and the keys of a change in this order. Clients see it in the output of
``kafka-configs --describe``. It also decides which error Kafka reports if a request has several.
"""

from collections.abc import Iterable
from typing import Final

# Longer strings are not hashed, because each character costs time, and their order does not matter.
_MAX_HASHED: Final = 256


def hash_order(keys: Iterable[str], capacity: int) -> list[str]:
    """Return the distinct ``keys`` in the order in which a Java ``new HashMap(capacity)`` returns them.

    The order is the same as in Java if no bucket of the map has more than eight keys, and no key has more than 256
    characters.
    """
    distinct = list(dict.fromkeys(keys))
    if len(distinct) < 2:
        return distinct
    # The map doubles its size when more than three quarters of it are full.
    size = 1
    while size < capacity or len(distinct) > size * 3 // 4:
        size *= 2
    return sorted(distinct, key=lambda key: _spread(key) & size - 1)


def _spread(key: str) -> int:
    code = 0
    if len(key) <= _MAX_HASHED:
        units = key.encode("utf-16-be", "surrogatepass")
        for at in range(0, len(units), 2):
            code = code * 31 + (units[at] << 8 | units[at + 1]) & 0xFFFF_FFFF
    return code ^ code >> 16
