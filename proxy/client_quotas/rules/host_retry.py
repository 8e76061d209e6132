"""Hosts whose addresses are not known, and when to look for them: at once, and then ever more seldom."""

from collections.abc import Set
from heapq import heappop, heappush
from typing import Final

FIRST_DELAY_MS: Final = 1_000
# A name that nobody enters into the DNS costs it a question in five minutes.
LONGEST_DELAY_MS: Final = 300_000


class MissingHosts:
    """Which of them to look for now. No step but ``follow`` looks at all of them."""

    def __init__(self) -> None:
        # When each is looked for, and how long it waits if it is not found then; ms.
        self._waits: dict[str, tuple[int, int]] = {}
        # An entry that is not of such a time any more is found out in its turn.
        self._due: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._waits)

    def follow(self, missing: Set[str], *, now_ms: int) -> None:
        """Take it that these are missing, and no others."""
        for host in self._waits.keys() - missing:
            del self._waits[host]
        for host in missing - self._waits.keys():
            self._wait(host, now_ms, FIRST_DELAY_MS)

    @property
    def next_ms(self) -> int | None:
        """When to look for some; None: none is missing."""
        while self._due and not self._is_of_now(*self._due[0]):
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def take(self, most: int, *, now_ms: int) -> tuple[str, ...]:
        """Return hosts to look for now; each waits longer from time to time."""
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

    def _is_of_now(self, due_ms: int, host: str) -> bool:
        return host in self._waits and self._waits[host][0] == due_ms
