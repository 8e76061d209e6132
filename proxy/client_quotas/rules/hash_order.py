"""The order of a Java ``HashMap``, in which Kafka goes through the types of an entity and the keys of an alteration.

Where two of them are wrong, it is the first in this order that its message names; and entities are told and quoted so.
"""

from collections.abc import Iterable
from typing import Final

# Which of two such strings comes first is nobody's concern, and each of their characters would cost time.
_MAX_HASHED: Final = 256


def hash_order(keys: Iterable[str], capacity: int) -> list[str]:
    """Return the distinct keys as ``new HashMap(capacity)`` has them once they were put into it in this order.

    Exact while no more than eight keys share a bucket, and for keys of up to 256 characters.
    """
    distinct = list(dict.fromkeys(keys))
    if len(distinct) < 2:
        return distinct
    # Doubled whenever more than three quarters are full.
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
