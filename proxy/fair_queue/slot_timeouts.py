"""Deadlines of slots whose requests may be waiting at the broker instead of being worked on."""

from typing import Protocol


class SlotHolder(Protocol):
    """A connection that has a slot."""

    def park(self, now_us: int) -> None:
        """Give the slot back before the response comes."""


class SlotTimeouts:
    """The deadlines of one broker's slots, in microseconds.

    No deadline comes before ``soonest_us``, None: there is none. The slot of that deadline may be gone already.
    """

    __slots__ = ("_at_us", "soonest_us")

    def __init__(self) -> None:
        self._at_us: dict[SlotHolder, int] = {}
        self.soonest_us: int | None = None

    def __len__(self) -> int:
        """Return how many slots have a deadline."""
        return len(self._at_us)

    def add(self, holder: SlotHolder, at_us: int) -> bool:
        """Set or replace the deadline of ``holder``; return whether it is the soonest now."""
        self._at_us[holder] = at_us
        is_soonest = self.soonest_us is None or at_us < self.soonest_us
        if is_soonest:
            self.soonest_us = at_us
        return is_soonest

    def discard(self, holder: SlotHolder) -> None:
        """Remove the deadline of ``holder``, if it has one."""
        self._at_us.pop(holder, None)

    def park_due(self, now_us: int) -> int | None:
        """Park each holder whose deadline has passed; return when to call this again, None for never."""
        for holder in [holder for holder, at_us in self._at_us.items() if at_us <= now_us]:
            del self._at_us[holder]
            holder.park(now_us)
        self.soonest_us = min(self._at_us.values(), default=None)
        return self.soonest_us
