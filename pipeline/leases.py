"""Moves shares of one limit between proxies so that their sum never exceeds it. No I/O, no clock.

The publisher gets no acknowledgements. It relies on two facts: a proxy receives a publication within ``delay_ms`` or
not at all, and its share expires ``lease_ms`` after the last publication that it received. Then it uses the ``even``
share, the limit divided by the number of proxies, which is the common rule. So

* a lowered share may apply until ``hold_ms`` = ``lease_ms`` + ``delay_ms`` after the publication that lowered it: by
  then the proxy has received it, or its lease has expired. Until then the old share counts in full.
* a share is raised only by what no proxy can still use.

While all proxies are connected, the sum of the applied shares is at most the limit at every instant. A disconnected
proxy falls back to ``even``, which may be more than counts for it: at most ``even`` more for each of them. Parts of a
publication may arrive without the rest, since only free amounts are given out.

Shares are whole bytes a second and at least 1, since 0 would mean no limit; limits below the number of proxies are the
exception.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class _Held(NamedTuple):
    """The old value of a lowered share."""

    share: int
    until_ms: int


class Leases:
    """The shares of one limit, in whole bytes per second. They begin as ``even`` shares, which need no publication.

    A lowered share may still apply for ``hold_ms``.
    """

    __slots__ = ("_held", "_hold_ms", "even", "limit", "shares")

    def __init__(self, limit: int, proxies: Sequence[str], *, hold_ms: int) -> None:
        self.limit = limit
        self.even = even_share(limit, len(proxies))
        self._hold_ms = hold_ms
        self.shares = dict.fromkeys(proxies, self.even)  # as published last, by proxy
        self._held: dict[str, list[_Held]] = {proxy: [] for proxy in proxies}

    def move(self, goal: Mapping[str, int], *, now_ms: int) -> bool:
        """Move shares a step towards ``goal``; return whether any has changed and has to be published.

        The goal has a share of at least 1 for each proxy; together they are at most the limit. ``now_ms`` is after the
        acknowledgement of the last publication.
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
        """Whether no proxy needs a share of its own: none can have more than ``even``."""
        return all(self._taken(proxy, now_ms) <= self.even for proxy in self.shares)

    def _taken(self, proxy: str, now_ms: int) -> int:
        """Return the highest share that a connected proxy may apply."""
        held = self._held[proxy] = [one for one in self._held[proxy] if one.until_ms > now_ms]
        return max(self.shares[proxy], *(one.share for one in held), 0)


def even_share(limit: float, proxies: int) -> int:
    """Return the share of each proxy under the common rule."""
    return max(1, int(limit) // proxies)
