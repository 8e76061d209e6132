"""Computes the bounds that follow from the limit of a bucket, such as the most bytes that one fetch may ask for."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

MAX_INT32: Final = 2**31 - 1
# A fetch may always ask for the bytes that its limit allows in this many milliseconds.
_LEAST_FETCH_MS: Final = 50


@dataclass(slots=True, frozen=True)
class BucketBounds:
    """The bounds that follow from the limit of a bucket. They are computed when the limit changes.

    Attributes:
        max_fetch: The most bytes that one fetch may ask for.
        fetch_share: The most bytes that the fetches of all the bucket's connections together may ask for at a time.
        least_fetch: The number of bytes that a fetch may ask for even if the limit is used up.
        longest_wait_ms: The longest wait that a charge to the bucket may return.
        max_throttle_time_ms: The longest throttle time that a response tells a client.
    """

    max_fetch: int
    fetch_share: float
    least_fetch: float
    longest_wait_ms: int
    max_throttle_time_ms: int

    def fetch_cap(self, room: float, connections: int) -> int:
        """Return how many bytes a fetch may ask for if the limit allows ``room`` more bytes.

        Even if the limit is used up, a fetch may ask for what it allows in 50 ms. What it allows at once is divided
        evenly among the connections of the bucket, because the broker may answer the fetches of all at the same moment.
        """
        share = self.fetch_share if connections <= 1 else self.fetch_share / connections
        return max(1, int(min(max(room, self.least_fetch), share)))


@lru_cache(maxsize=1_024)
def bucket_bounds(
    limit: float, room: float, *, is_paced: bool, longest_wait_ms: int, max_throttle_time_ms: int
) -> BucketBounds:
    """Return the bounds that follow from ``limit``.

    Buckets with the same limit share one object, which saves a tenth of their memory. ``room`` is the amount that the
    limit allows at once. In sampled windows a fetch asks for no more than half of it, for shorter throttle times.
    """
    return BucketBounds(
        max_fetch=max(1, int(min(room, MAX_INT32))),
        fetch_share=min(room if is_paced else room / 2, MAX_INT32),
        least_fetch=min(limit * _LEAST_FETCH_MS / 1_000, MAX_INT32),
        longest_wait_ms=longest_wait_ms,
        max_throttle_time_ms=max_throttle_time_ms,
    )
