"""Estimates the demand for a bucket at each proxy, and divides the bucket's limit accordingly.

This module does no I/O and reads no clock.

If a proxy does not throttle the bucket's requests, the demand there is taken to be a twentieth more than the use. If it
does, demand exceeds the use by an unknown amount. Then the demand is taken to be the whole limit if all recent samples
were throttled, and a quarter more than the use otherwise.

A proxy with a small demand gets a share that meets it, and the other proxies get equal shares. If the limit meets all
demands, the rest of the limit goes to the proxies that throttle, or to all proxies if none does. Earlier shares have no
influence, so constant demand leads to constant shares.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

# A shorter interval counts as a second. The first and the last interval of a log are short.
_LEAST_MS: Final = 1_000
# Room above the use without throttling, so that noise alone does not reach the share.
_ROOM: Final = 1.05
_GROWTH: Final = 1.25
# If throttled use is below this fraction of the share, it came in bursts, and a higher share would not help.
_USED_UP: Final = 0.8
# How long a sample counts, in addition to two of its intervals. The time is short, since a client that has stopped
# keeps its share during this time.
_RECENT_MS: Final = 1_000
_LONGEST_INTERVAL_MS: Final = 30_000
# A throttled client is silent for its throttle time, which hardly ever exceeds this.
_LONGEST_WAIT_MS: Final = 30_000
_MOST_SAMPLES: Final = 64


class ProxyUsage(NamedTuple):
    """Holds how much of one quota was used at one proxy, summed over the usage records that arrived together."""

    amount: int  # bytes; below 0 after a refund
    interval_ms: int
    longest_interval_ms: int  # the longest interval of a single record
    throttled_requests: int
    throttle_time_ms: int


class ProxyDemand(NamedTuple):
    """The estimated demand for a bucket at one proxy."""

    rate: float = 0.0  # bytes per second
    is_throttled: bool = False


class _Sample(NamedTuple):
    until_ms: int
    rate: float
    is_throttled: bool


class DemandEstimator:
    """Estimates how much of one quota the clients at one proxy would use if they were not throttled.

    The estimate is based on samples of the recent use. Each call of ``take`` adds a sample, which counts for a few
    seconds or longer. The sample with the highest rate determines the estimate.
    """

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque(maxlen=_MOST_SAMPLES)

    def take(self, used: ProxyUsage, *, share: int, now_ms: int) -> None:
        """Add a sample: how much of the quota was used at the proxy, from records that arrived at ``now_ms``.

        ``share`` is the part of the limit, in bytes per second, that the proxy could use at that time.
        """
        rate = max(0, used.amount) * 1_000 / max(_LEAST_MS, used.interval_ms)
        counts_ms = _RECENT_MS + 2 * min(used.longest_interval_ms, _LONGEST_INTERVAL_MS)
        is_throttled = used.throttled_requests > 0 and rate >= _USED_UP * share
        if is_throttled:
            # A throttle time that exceeds the intervals of the records continues after the records.
            counts_ms += min(max(0, used.throttle_time_ms - used.interval_ms), _LONGEST_WAIT_MS)
        self._samples.append(_Sample(now_ms + counts_ms, rate, is_throttled))

    def demand(self, *, limit: int, now_ms: int) -> ProxyDemand:
        """Return the current demand. It is the whole ``limit`` (bytes per second) if all recent use was throttled."""
        self._samples = deque((one for one in self._samples if one.until_ms > now_ms), maxlen=_MOST_SAMPLES)
        rate = max((one.rate for one in self._samples), default=0.0)
        throttled = sum(one.is_throttled for one in self._samples)
        if throttled:
            # Occasional throttling is no reason for a much higher share.
            return ProxyDemand(limit if throttled == len(self._samples) else _GROWTH * rate, is_throttled=True)
        return ProxyDemand(_ROOM * rate)


def divide_limit(limit: int, demands: Mapping[str, ProxyDemand], *, floor: float) -> dict[str, int]:
    """Divide ``limit`` by demand, and return the share of each proxy in bytes per second, at least 1.

    ``floor`` is the guaranteed fraction of an even share, from 0 to 1. The sum of the shares is at most the limit,
    unless the limit is below the number of proxies.
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
    """Give each proxy the rate that it lacks, as far as ``left`` goes.

    If that is not enough for all, the proxies that lack most get equal rates.
    """
    given = {}
    waiting = len(lacking)
    for proxy in sorted(lacking, key=lambda one: lacking[one]):
        given[proxy] = min(int(lacking[proxy]), left // waiting)
        left -= given[proxy]
        waiting -= 1
    return given
