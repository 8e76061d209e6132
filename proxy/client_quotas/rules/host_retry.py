"""When to look up a host without an address: at once, and then less and less often."""

from collections.abc import Set
from heapq import heappop, heappush
from typing import Final

FIRST_DELAY_MS: Final = 1_000
# A name that is never entered into the DNS costs one query in five minutes.
LONGEST_DELAY_MS: Final = 300_000


class MissingHosts:
    """Hosts without a known address. Only ``follow`` looks at all of them."""

    def __init__(self) -> None:
        # The time of each one's next lookup, and the delay after that; ms.
        self._waits: dict[str, tuple[int, int]] = {}
        # Entries of earlier times stay in the heap until they come to its top.
        self._due: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._waits)

    def follow(self, missing: Set[str], *, now_ms: int) -> None:
        """Set which hosts are missing."""
        for host in self._waits.keys() - missing:
            del self._waits[host]
        for host in missing - self._waits.keys():
            self._wait(host, now_ms, FIRST_DELAY_MS)

    @property
    def next_ms(self) -> int | None:
        """The time of the next lookup; None: no host is missing."""
        while self._due:
            due_ms, host = self._due[0]
            if host in self._waits and self._waits[host][0] == due_ms:
                return due_ms
            heappop(self._due)
        return None

    def take(self, most: int, *, now_ms: int) -> tuple[str, ...]:
        """Return hosts to look up now, and double their delays."""
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
