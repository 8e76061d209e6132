"""Estimates a bucket's demand at each proxy, and divides its limit by it. No I/O, no clock.

If requests are throttled at a proxy, its demand is above its use by an unknown amount: it counts as the whole limit if
all recent samples were throttled, otherwise as a quarter more than the use. Without throttling it is a twentieth more.

A proxy with a small demand gets all of it; the others get equal shares. The rest of the limit goes to the throttled
proxies, or to all. So constant demand leads to constant shares: two proxies that want more than there is end with the
same share, whatever they had before.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

# Shorter intervals count as a second: the first and the last interval of a log are short.
_LEAST_MS: Final = 1_000
# Room above the use without throttling, so that noise alone does not reach the share.
_ROOM: Final = 1.05
_GROWTH: Final = 1.25
# Throttled use below this part of the share came in bursts, which a higher share would not help.
_USED_UP: Final = 0.8
# How long a sample counts, in addition to two of its intervals. Short, since a load that has ended keeps its share for
# as long; a share that was lowered briefly returns at once.
_RECENT_MS: Final = 1_000
_LONGEST_INTERVAL_MS: Final = 30_000
# A throttled client is silent for its throttle time; proxies throttle for hardly longer than this.
_LONGEST_WAIT_MS: Final = 30_000
_MOST_SAMPLES: Final = 64


class ProxyUsage(NamedTuple):
    """The use of a bucket at a proxy: the sums of records that arrived together."""

    amount: int  # bytes; below 0 after a refund
    interval_ms: int
    longest_interval_ms: int  # of one record
    throttled_requests: int
    throttle_time_ms: int


class ProxyDemand(NamedTuple):
    """The demand of a bucket at one proxy."""

    rate: float = 0.0  # bytes per second
    is_throttled: bool = False


class _Sample(NamedTuple):
    until_ms: int
    rate: float
    is_throttled: bool


class DemandTracker:
    """The recent use of one bucket at one proxy; the highest rate that still counts decides."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque(maxlen=_MOST_SAMPLES)

    def take(self, used: ProxyUsage, *, share: int, now_ms: int) -> None:
        """Add records that arrived together now. ``share`` is the bucket's share at this proxy, bytes per second."""
        rate = max(0, used.amount) * 1_000 / max(_LEAST_MS, used.interval_ms)
        counts_ms = _RECENT_MS + 2 * min(used.longest_interval_ms, _LONGEST_INTERVAL_MS)
        is_throttled = used.throttled_requests > 0 and rate >= _USED_UP * share
        if is_throttled:
            # The throttle time beyond the records lies after them.
            counts_ms += min(max(0, used.throttle_time_ms - used.interval_ms), _LONGEST_WAIT_MS)
        self._samples.append(_Sample(now_ms + counts_ms, rate, is_throttled))

    def demand(self, *, limit: int, now_ms: int) -> ProxyDemand:
        """Return the demand for the limit."""
        self._samples = deque((one for one in self._samples if one.until_ms > now_ms), maxlen=_MOST_SAMPLES)
        rate = max((one.rate for one in self._samples), default=0.0)
        throttled = sum(one.is_throttled for one in self._samples)
        if throttled:
            # Occasional throttling is no reason for a much higher share.
            return ProxyDemand(limit if throttled == len(self._samples) else _GROWTH * rate, is_throttled=True)
        return ProxyDemand(_ROOM * rate)


def divide_limit(limit: int, demands: Mapping[str, ProxyDemand], *, floor: float) -> dict[str, int]:
    """Return each proxy's share of ``limit``, at least 1; together at most the limit, if possible.

    ``floor`` is the guaranteed part of an even share, 0 to 1.
    """
    # Shares are at least 1, which must not push the sum above the limit.
    least = max(min(1, limit // len(demands)), int(limit * floor) // len(demands))
    lacking = {proxy: max(0.0, demand.rate - least) for proxy, demand in demands.items()}
    left = limit - least * len(demands)
    given = _leveled(lacking, left)
    takers = [proxy for proxy, demand in demands.items() if demand.is_throttled] or list(demands)
    more = (left - sum(given.values())) // len(takers)
    return {proxy: max(1, least + given[proxy] + (more if proxy in takers else 0)) for proxy in demands}


def _leveled(lacking: Mapping[str, float], left: int) -> dict[str, int]:
    """Give each proxy its missing rate; if that is too much, those with the highest get equal shares."""
    given = {}
    waiting = len(lacking)
    for proxy in sorted(lacking, key=lambda one: lacking[one]):
        given[proxy] = min(int(lacking[proxy]), left // waiting)
        left -= given[proxy]
        waiting -= 1
    return given
