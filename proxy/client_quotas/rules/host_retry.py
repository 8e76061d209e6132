"""Decides when to look up a host that has no known address: at once, and then after longer and longer delays."""

from collections.abc import Set
from heapq import heappop, heappush
from typing import Final

FIRST_DELAY_MS: Final = 1_000
# A name that never gets an address costs one DNS query in five minutes.
LONGEST_DELAY_MS: Final = 300_000


class MissingHosts:
    """The hosts that have limits but no known address, and when each of them is to be looked up next."""

    def __init__(self) -> None:
        # Host -> (the time of its next lookup, the delay after that lookup), in ms.
        self._waits: dict[str, tuple[int, int]] = {}
        # A heap of lookups. An entry is stale if ``_waits`` has another time. It is dropped when it comes first.
        self._due: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._waits)

    def follow(self, missing: Set[str], *, now_ms: int) -> None:
        """Set which hosts are missing. Each host that was not missing before is looked up at once."""
        for host in self._waits.keys() - missing:
            del self._waits[host]
        for host in missing - self._waits.keys():
            self._wait(host, now_ms, FIRST_DELAY_MS)

    @property
    def next_ms(self) -> int | None:
        """The time (monotonic, in ms) at which the earliest lookup is due, or None if no host is missing."""
        while self._due:
            due_ms, host = self._due[0]
            if host in self._waits and self._waits[host][0] == due_ms:
                return due_ms
            heappop(self._due)
        return None

    def take(self, most: int, *, now_ms: int) -> tuple[str, ...]:
        """Return at most ``most`` hosts that are due for a lookup now, and schedule the next lookup of each.

        The delay of a host doubles with each lookup, up to five minutes. ``now_ms`` is the time of a monotonic clock.
        """
        taken: list[str] = []
        while len(taken) < most and (next_ms := self.next_ms) is not None and next_ms <= now_ms:
            _, host = heappop(self._due)
            delay_ms = self._waits[host][1]
            self._wait(host, now_ms + delay_ms, min(2 * delay_ms, LONGEST_DELAY_MS))
            taken.append(host)
        return tuple(taken)

    def _wait(self, host: str, due_ms: int, delay_ms: int) -> None:
        self._waits[host] = due_ms, delay_ms
        heappush(self._due, (due_ms, host))
