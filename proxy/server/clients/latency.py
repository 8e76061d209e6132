"""Measures how long requests and their responses spend inside the proxy, as a histogram for each API."""

from typing import Final

from kafka_quota_proxy.protocol.api import HIGHEST_VERSION

# Each bound is twice the one before, from 4 us to 1 s, so that the bit length of a time is the index of its bucket. A
# request takes some tens of us; more than 10 ms points to a fault.
_FIRST_BITS: Final = 12
_LAST_BITS: Final = 30
BOUNDS_NS: Final = tuple(2**bits - 1 for bits in range(_FIRST_BITS, _LAST_BITS + 1))
# Stands for all API keys that the proxy does not know. Clients choose these numbers, and metrics must not grow a label
# for each of them.
OTHER: Final = -1
_BUCKETS: Final = tuple(min(max(bits - _FIRST_BITS, 0), len(BOUNDS_NS)) for bits in range(65))


class Latency:
    """Holds one listener's histograms of the time that requests spend in the proxy, by API key.

    For each bound in ``BOUNDS_NS``, ``counts`` contains how many requests took at most this time and more than the
    previous bound. Its last number counts the requests that took longer than the last bound.
    """

    __slots__ = ("counts", "sums_ns")

    def __init__(self) -> None:
        self.counts: dict[int, list[int]] = {}
        self.sums_ns: dict[int, int] = {}

    def observe(self, api_key: int, elapsed_ns: int) -> None:
        """Add a request and its response, which together spent ``elapsed_ns`` in the proxy, to a histogram."""
        counts = self.counts.get(api_key)
        if counts is None:
            if api_key not in HIGHEST_VERSION:
                api_key = OTHER
            counts = self.counts.setdefault(api_key, [0] * (len(BOUNDS_NS) + 1))
            self.sums_ns.setdefault(api_key, 0)
        counts[_BUCKETS[elapsed_ns.bit_length()]] += 1
        self.sums_ns[api_key] += elapsed_ns
