"""Takes slots back at their deadlines. A request without a response by then probably waits at the broker."""

from typing import Protocol


class SlotHolder(Protocol):
    """A connection that has a slot."""

    def park(self, now_us: int) -> None:
        """Give the slot back before the response comes."""


class SlotTimeouts:
    """The deadlines of one broker's slots. ``park_due`` has to be called at ``soonest_us``, unless that is None.

    ``soonest_us`` may be too early, because removing a deadline does not change it.
    """

    __slots__ = ("_at_us", "soonest_us")

    def __init__(self) -> None:
        self._at_us: dict[SlotHolder, int] = {}
        self.soonest_us: int | None = None

    def __len__(self) -> int:
        """Return the number of slots that have a deadline."""
        return len(self._at_us)

    def add(self, holder: SlotHolder, at_us: int) -> bool:
        """Set or replace the deadline of ``holder``. Returns whether it is now the soonest deadline."""
        self._at_us[holder] = at_us
        is_soonest = self.soonest_us is None or at_us < self.soonest_us
        if is_soonest:
            self.soonest_us = at_us
        return is_soonest

    def discard(self, holder: SlotHolder) -> None:
        """Remove the deadline of ``holder``, if it has one."""
        self._at_us.pop(holder, None)

    def park_due(self, now_us: int) -> int | None:
        """Take back each slot that is past its deadline. Returns the new ``soonest_us``."""
        for holder in [holder for holder, at_us in self._at_us.items() if at_us <= now_us]:
            del self._at_us[holder]
            holder.park(now_us)
        self.soonest_us = min(self._at_us.values(), default=None)
        return self.soonest_us
