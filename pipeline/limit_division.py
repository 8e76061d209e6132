"""What a bucket wants of its limit at each proxy, and how the limit is best divided then. No I/O, no clock.

A proxy where requests were throttled wants more than was used there, and how much more nobody knows: all of the limit
where it was so all the time, a quarter more where it was so now and then. Elsewhere a twentieth more is enough.

The limit is divided so that whoever wants little has that, and the others have the same each; what nobody wants is for
those that were throttled, or else for all alike. So the shares come to rest when demand does: two that want more than
there is end with the same, whatever they had before.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

# Of less than a second no rate is taken: the first and the last interval of a log are short.
_LEAST_MS: Final = 1_000
# Above what was used where nobody was throttled, so that it does not become a limit by noise alone.
_ROOM: Final = 1.05
_GROWTH: Final = 1.25
# Of a share: who was throttled and used less on average came in bursts, and more would not have helped him.
_USED_UP: Final = 0.8
# How long what was used counts, beside two of the intervals that it was logged by. Short, for a load that has gone
# keeps its limit for as long; a share that was lowered for a moment returns at once.
_RECENT_MS: Final = 1_000
_LONGEST_INTERVAL_MS: Final = 30_000
# Whoever has been told to wait for that long is not seen for as long. Proxies tell nobody to wait for much longer.
_LONGEST_WAIT_MS: Final = 30_000
_MOST_SAMPLES: Final = 64


class ProxyUsage(NamedTuple):
    """What a bucket used at a proxy: the sums of records that came together."""

    amount: int  # bytes
    interval_ms: int
    longest_interval_ms: int  # of one of them
    throttled_requests: int
    throttle_time_ms: int


class ProxyDemand(NamedTuple):
    """What a bucket wants at one proxy."""

    rate: float = 0.0  # bytes per second
    is_throttled: bool = False


class _Sample(NamedTuple):
    until_ms: int
    rate: float
    is_throttled: bool


class DemandTracker:
    """What one bucket used at one proxy of late: the highest of the rates that still count."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque(maxlen=_MOST_SAMPLES)

    def take(self, used: ProxyUsage, *, share: int, now_ms: int) -> None:
        """Take in records that came together.

        Args:
            used: their sums, all of them 0 or more but for the amount.
            share: what the bucket may use there; bytes per second.
            now_ms: when they came.
        """
        rate = max(0, used.amount) * 1_000 / max(_LEAST_MS, used.interval_ms)
        counts_ms = _RECENT_MS + 2 * min(used.longest_interval_ms, _LONGEST_INTERVAL_MS)
        is_throttled = used.throttled_requests > 0 and rate >= _USED_UP * share
        if is_throttled:
            # As much of the time that is counted, each moment once, lies behind the records.
            counts_ms += min(max(0, used.throttle_time_ms - used.interval_ms), _LONGEST_WAIT_MS)
        self._samples.append(_Sample(now_ms + counts_ms, rate, is_throttled))

    def demand(self, *, limit: int, now_ms: int) -> ProxyDemand:
        """Return what it wants of the limit."""
        self._samples = deque((one for one in self._samples if one.until_ms > now_ms), maxlen=_MOST_SAMPLES)
        rate = max((one.rate for one in self._samples), default=0.0)
        throttled = sum(one.is_throttled for one in self._samples)
        if throttled:
            # A little too much now and then is no reason to give him much more.
            return ProxyDemand(limit if throttled == len(self._samples) else _GROWTH * rate, is_throttled=True)
        return ProxyDemand(_ROOM * rate)


def divide_limit(limit: int, wants: Mapping[str, ProxyDemand], *, floor: float) -> dict[str, int]:
    """Return each proxy's share of ``limit``, at least 1; together at most the limit, where that is possible.

    Args:
        limit: whole bytes per second.
        wants: of every proxy.
        floor: what each has in any case, of an even share; 0 to 1.
    """
    # Shares are at least 1; added to the others' below, it would be more than the limit.
    least = max(min(1, limit // len(wants)), int(limit * floor) // len(wants))
    lacking = {proxy: max(0.0, want.rate - least) for proxy, want in wants.items()}
    left = limit - least * len(wants)
    given = _leveled(lacking, left)
    takers = [proxy for proxy, want in wants.items() if want.is_throttled] or list(wants)
    more = (left - sum(given.values())) // len(takers)
    return {proxy: max(1, least + given[proxy] + (more if proxy in takers else 0)) for proxy in wants}


def _leveled(lacking: Mapping[str, float], left: int) -> dict[str, int]:
    """Give each what he lacks, and where that is too much for all, those who lack most the same each."""
    given = {}
    waiting = len(lacking)
    for proxy in sorted(lacking, key=lambda one: lacking[one]):
        given[proxy] = min(int(lacking[proxy]), left // waiting)
        left -= given[proxy]
        waiting -= 1
    return given
