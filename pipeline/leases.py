"""Shares of one limit that move between proxies, and are never more than it together. No I/O, no clock.

Nobody tells the publisher what a proxy has heard. It knows this: whoever hears of a publication hears of it within
``delay_ms``; and his share holds for ``lease_ms`` after the last one that he heard of. Then he is at ``even``, the
limit divided by the number of proxies, which is the rule for all. So

* a share that was lowered may be in force until ``hold_ms`` = ``lease_ms`` + ``delay_ms`` after the publication that
  lowered it: by then he has heard of it, or his lease has run out. It counts in full for as long.
* a share is raised only by what no proxy can have.

With all in touch the sum of what is in force is at most the limit, at every instant. Whoever is cut off falls back to
``even`` and may then have more than counts for him: at most ``even`` more for each of them. Any part of a publication
may be heard without the rest of it: raised is only what was free before.

Shares are whole bytes a second and at least 1, for 0 would be no limit; so limits below the number of proxies are the
exception.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class _Held(NamedTuple):
    """A share that was lowered."""

    share: int
    until_ms: int


class Leases:
    """What each proxy has of one limit. It begins with ``even`` shares, which is what holds without any.

    Args:
        limit: whole bytes per second.
        proxies: their names, each once.
        hold_ms: how long a share that was lowered may still be in force.
    """

    __slots__ = ("_held", "_hold_ms", "_shares", "even", "limit")

    def __init__(self, limit: int, proxies: Sequence[str], *, hold_ms: int) -> None:
        self.limit = limit
        self.even = even_share(limit, len(proxies))
        self._hold_ms = hold_ms
        self._shares = dict.fromkeys(proxies, self.even)
        self._held: dict[str, list[_Held]] = {proxy: [] for proxy in proxies}

    @property
    def shares(self) -> Mapping[str, int]:
        """What was published last, for all proxies."""
        return self._shares

    def move(self, goal: Mapping[str, int], *, now_ms: int) -> bool:
        """Take shares a step towards ``goal``; return whether any has changed, and is to be published.

        Args:
            goal: a share for each proxy, at least 1; together at most the limit.
            now_ms: the time, before this publication is written and after the one before it is known to be there.
        """
        before = dict(self._shares)
        for proxy, wanted in goal.items():
            share = self._shares[proxy]
            if wanted < share:
                self._held[proxy].append(_Held(share, now_ms + self._hold_ms))
                self._shares[proxy] = wanted
        taken = {proxy: self._taken(proxy, now_ms) for proxy in goal}
        free = max(0, self.limit - sum(taken.values()))
        lacking = {proxy: max(0, wanted - taken[proxy]) for proxy, wanted in goal.items()}
        all_lacking = sum(lacking.values())
        for proxy, wanted in goal.items():
            more = lacking[proxy] if all_lacking <= free else lacking[proxy] * free // all_lacking
            self._shares[proxy] = max(self._shares[proxy], min(wanted, taken[proxy] + more))
        return self._shares != before

    def is_even(self, *, now_ms: int) -> bool:
        """Whether all may go without a share: nobody can have more than what the rule for all gives him."""
        return all(self._taken(proxy, now_ms) <= self.even for proxy in self._shares)

    def _taken(self, proxy: str, now_ms: int) -> int:
        """Return the most that may be in force at a proxy that has not been cut off."""
        held = self._held[proxy] = [one for one in self._held[proxy] if one.until_ms > now_ms]
        return max(self._shares[proxy], *(one.share for one in held), 0)


def even_share(limit: float, proxies: int) -> int:
    """Return what each proxy has by the rule for all."""
    return max(1, int(limit) // proxies)
