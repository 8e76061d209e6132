"""Moves shares of one limit between proxies so that the sum of the shares never exceeds the limit.

A share is the part of the limit that one proxy may use. This module does no I/O and reads no clock.

The publisher is the process that divides the limit. It writes changed shares to the quota topic, which the proxies
read. A publication is the set of records that it writes at one time. The proxies do not acknowledge a publication, so
the publisher relies on two facts. A proxy receives a publication within ``delay_ms`` or not at all. And a proxy's share
expires ``lease_ms`` after the last publication that the proxy received. Then the proxy applies the ``even`` share,
which is the limit divided by the number of proxies. So

* a share that was lowered may still apply for ``hold_ms`` = ``lease_ms`` + ``delay_ms``. During that time the old share
  counts in full.
* a share is raised only by an amount that no other proxy can still use. So it does no harm if a proxy misses some
  records of a publication.

While all proxies are connected, the sum of the applied shares is at most the limit. A proxy that loses its connection
returns to ``even``, so it may add at most ``even`` to the sum.

Shares are whole bytes per second. They are at least 1, since 0 would mean no limit. So a limit below the number of
proxies is exceeded.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class _Held(NamedTuple):
    """Holds the earlier, higher value of a share that was lowered. The proxy may still apply it until ``until_ms``."""

    share: int
    until_ms: int


class Leases:
    """Keeps each proxy's share of one limit, in whole bytes per second. At first, each proxy has the ``even`` share."""

    __slots__ = ("_held", "_hold_ms", "even", "limit", "shares")

    def __init__(self, limit: int, proxies: Sequence[str], *, hold_ms: int) -> None:
        self.limit = limit
        self.even = even_share(limit, len(proxies))
        self._hold_ms = hold_ms
        self.shares = dict.fromkeys(proxies, self.even)  # as published last, by proxy
        self._held: dict[str, list[_Held]] = {proxy: [] for proxy in proxies}

    def move(self, goal: Mapping[str, int], *, now_ms: int) -> bool:
        """Move the shares a step towards ``goal``. Return whether a share has changed and must be published.

        ``goal`` contains a share of at least 1 for each proxy, and their sum is at most the limit. Kafka must have
        acknowledged the last publication before ``now_ms``.
        """
        before = dict(self.shares)
        for proxy, wanted in goal.items():
            share = self.shares[proxy]
            if wanted < share:
                self._held[proxy].append(_Held(share, now_ms + self._hold_ms))
                self.shares[proxy] = wanted
        taken = {proxy: self._taken(proxy, now_ms) for proxy in goal}
        free = max(0, self.limit - sum(taken.values()))
        lacking = {proxy: max(0, wanted - taken[proxy]) for proxy, wanted in goal.items()}
        all_lacking = sum(lacking.values())
        for proxy, wanted in goal.items():
            more = lacking[proxy] if all_lacking <= free else lacking[proxy] * free // all_lacking
            self.shares[proxy] = max(self.shares[proxy], min(wanted, taken[proxy] + more))
        return self.shares != before

    def is_even(self, *, now_ms: int) -> bool:
        """Return whether no proxy can still apply more than ``even``, so that the shares are no longer needed."""
        return all(self._taken(proxy, now_ms) <= self.even for proxy in self.shares)

    def _taken(self, proxy: str, now_ms: int) -> int:
        """Return the highest share that ``proxy`` may currently apply while it is connected."""
        held = self._held[proxy] = [one for one in self._held[proxy] if one.until_ms > now_ms]
        return max(self.shares[proxy], *(one.share for one in held), 0)


def even_share(limit: float, proxies: int) -> int:
    """Return what each proxy gets if a limit is divided evenly, in bytes per second, rounded down but at least 1."""
    return max(1, int(limit) // proxies)
