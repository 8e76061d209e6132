"""The bounds that follow from a bucket's limit: how much one fetch may ask for, and how long one wait may be."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

MAX_INT32: Final = 2**31 - 1
# A fetch may always ask for this many milliseconds of its limit.
_LEAST_FETCH_MS: Final = 50


@dataclass(slots=True, frozen=True)
class BucketBounds:
    """Bounds of a bucket, computed when its limit changes.

    Attributes:
        max_fetch: The most that a fetch may ever ask for, in bytes.
        fetch_share: The most that a fetch may ask for at a time, divided among the connections.
        least_fetch: What a fetch may always ask for.
        longest_wait_ms: The longest wait that a charge returns, and the most that is ever owed.
        max_throttle_time_ms: The longest wait that a response says.
    """

    max_fetch: int
    fetch_share: float
    least_fetch: float
    longest_wait_ms: int
    max_throttle_time_ms: int


@lru_cache(maxsize=1_024)
def bucket_bounds(
    limit: float, room: float, *, saved_ms: int | None, longest_wait_ms: int, max_throttle_time_ms: int
) -> BucketBounds:
    """Return the bounds. Buckets with the same limit share them, which saves a tenth of their memory.

    ``room`` is what the limit allows in N - 1 windows, or paced in a burst. ``saved_ms`` is how much an idle client
    saves up, in milliseconds of the limit; None: as much as ``room``.
    """
    return BucketBounds(
        max_fetch=max(1, int(min(room, MAX_INT32))),
        fetch_share=min(room if saved_ms is None else limit * saved_ms / 1_000, MAX_INT32),
        least_fetch=min(limit * _LEAST_FETCH_MS / 1_000, MAX_INT32),
        longest_wait_ms=longest_wait_ms,
        max_throttle_time_ms=max_throttle_time_ms,
    )
