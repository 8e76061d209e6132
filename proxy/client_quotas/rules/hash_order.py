"""The order of a Java ``HashMap``, in which Kafka goes through the types of an entity and the keys of a change.

Clients see it: Kafka's message names the first fault in this order, and ``kafka-configs --describe`` prints limits so.
"""

from collections.abc import Iterable
from typing import Final

# The order of longer strings does not matter, and each of their characters would cost time.
_MAX_HASHED: Final = 256


def hash_order(keys: Iterable[str], capacity: int) -> list[str]:
    """Return the distinct keys in the order of a ``new HashMap(capacity)`` into which they were put in this order.

    Exact while no more than eight keys share a bucket, and for keys of up to 256 characters.
    """
    distinct = list(dict.fromkeys(keys))
    if len(distinct) < 2:
        return distinct
    # The table doubles when more than three quarters of it are full.
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
