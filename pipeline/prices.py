"""Computes what an owner pays for bytes, in decimals. Does no I/O.

The price may differ by kind and by tier. A tier is a range of the bytes that an owner transferred in the billed time.
Each byte has the price of its tier, so that more bytes never cost less in sum.
"""

from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Final, NamedTuple

from kafka_quota_proxy.pipeline.record import BYTE_KINDS

_PRICED_BYTES: Final = 10**9
_SMALLEST: Final = Decimal("0.0001")
MOST_PRICE: Final = 10**12


class Tier(NamedTuple):
    """The price of 10^9 bytes, up to ``up_to_bytes`` bytes of an owner. The last tier has no end."""

    up_to_bytes: int | None
    price: Decimal


Prices = Mapping[str, Sequence[Tier]]  # by kind; the tiers are in the order of their ends


def flat(price: Decimal) -> Prices:
    """Return prices that are the same for all kinds and amounts."""
    return dict.fromkeys(BYTE_KINDS, (Tier(None, price),))


def cost(amount: int, tiers: Sequence[Tier]) -> Decimal:
    """Return the cost of ``amount`` bytes with four decimals, rounded half to even. An amount below 0 costs nothing."""
    total, begin = Decimal(0), 0
    for tier in tiers:
        end = amount if tier.up_to_bytes is None else min(amount, tier.up_to_bytes)
        total += max(0, end - begin) * tier.price
        begin = max(begin, end)
    return (total / _PRICED_BYTES).quantize(_SMALLEST, ROUND_HALF_EVEN)
