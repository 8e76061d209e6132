"""How long requests and their responses were inside the proxy: a histogram per API, in plain integers."""

from typing import Final

from kafka_quota_proxy.protocol.api import HIGHEST_VERSION

# The bounds double, from 4 µs to a second, so that the number of a time's bits finds its place without a search. A
# request takes some tens of µs; above 10 ms something is wrong.
_FIRST_BITS: Final = 12
_LAST_BITS: Final = 30
BOUNDS_NS: Final = tuple(2**bits - 1 for bits in range(_FIRST_BITS, _LAST_BITS + 1))
# All that are not known here: their numbers are what clients say, and the labels that those can make are bounded.
OTHER: Final = -1
_PLACES: Final = tuple(min(max(bits - _FIRST_BITS, 0), len(BOUNDS_NS)) for bits in range(65))


class Latency:
    """Histograms of one listener. ``counts[api_key]`` holds one count per bound and one above them all."""

    __slots__ = ("counts", "sums_ns")

    def __init__(self) -> None:
        self.counts: dict[int, list[int]] = {}
        self.sums_ns: dict[int, int] = {}

    def observe(self, api_key: int, elapsed_ns: int) -> None:
        """Count one response."""
        counts = self.counts.get(api_key)
        if counts is None:
            if api_key not in HIGHEST_VERSION:
                api_key = OTHER
            counts = self.counts.setdefault(api_key, [0] * (len(BOUNDS_NS) + 1))
            self.sums_ns.setdefault(api_key, 0)
        counts[_PLACES[elapsed_ns.bit_length()]] += 1
        self.sums_ns[api_key] += elapsed_ns
