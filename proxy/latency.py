"""How long requests and their responses were inside the proxy: a histogram per API, in plain integers."""

from bisect import bisect_left
from typing import Final

# Upper bounds, in ns. A request takes some tens of µs; above 10 ms something is wrong.
BOUNDS_NS: Final = tuple(
    int(seconds * 1e9)
    for seconds in (5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 1e-1, 1.0)
)


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
            counts = self.counts[api_key] = [0] * (len(BOUNDS_NS) + 1)
            self.sums_ns[api_key] = 0
        counts[bisect_left(BOUNDS_NS, elapsed_ns)] += 1
        self.sums_ns[api_key] += elapsed_ns
