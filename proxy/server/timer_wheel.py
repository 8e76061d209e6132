"""A timer wheel with one slot per second: a second in which nothing is due costs nothing. No clock."""

from collections.abc import Hashable
from typing import Generic, TypeVar

_T = TypeVar("_T", bound=Hashable)


class TimerWheel(Generic[_T]):
    """Items, each due at a time, to the second."""

    __slots__ = ("_due", "_next_s")

    def __init__(self, *, now_ms: int) -> None:
        self._due: dict[int, set[_T]] = {}  # by the second
        self._next_s = now_ms // 1_000

    def add(self, item: _T, at_ms: int) -> int:
        """Make ``item`` due at ``at_ms`` or up to a second later; return the second, for ``discard``."""
        second = max(-(-at_ms // 1_000), self._next_s)
        self._due.setdefault(second, set()).add(item)
        return second

    def discard(self, item: _T, second: int) -> None:
        """Remove ``item``, which was added for that second. Harmless if it is not there."""
        due = self._due.get(second)
        if due is not None:
            due.discard(item)

    def take(self, *, now_ms: int) -> list[_T]:
        """Remove and return what is due."""
        taken: list[_T] = []
        now_s = now_ms // 1_000
        for second in range(self._next_s, now_s + 1):
            taken += self._due.pop(second, ())
        self._next_s = max(self._next_s, now_s + 1)
        return taken
