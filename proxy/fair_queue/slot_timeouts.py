"""Takes a slot back from a request that has no response by its deadline, so that other requests can use the slot.

Such a request is probably not being worked on. For example, the broker holds back a fetch until there is data.
"""

from typing import Protocol


class SlotHolder(Protocol):
    """A connection that holds a slot (the right to have a request at a broker) until a deadline."""

    def time_out(self, now_us: int) -> None:
        """Give back the slot, the right to have a request at the broker, or set a later deadline."""


class SlotTimeouts:
    """The deadlines by which the connections to one broker must give their slots back.

    The caller must call ``park_due`` at the time ``soonest_us``, unless that is None. There may be nothing to do at
    that time, because removing a deadline leaves ``soonest_us`` unchanged.
    """

    __slots__ = ("_at_us", "soonest_us")

    def __init__(self) -> None:
        self._at_us: dict[SlotHolder, int] = {}
        self.soonest_us: int | None = None

    def __len__(self) -> int:
        """Return how many connections have a deadline by which they must give back their slot at the broker."""
        return len(self._at_us)

    def add(self, holder: SlotHolder, at_us: int) -> bool:
        """Set or replace the deadline of ``holder``. Returns whether it is now the soonest deadline."""
        self._at_us[holder] = at_us
        is_soonest = self.soonest_us is None or at_us < self.soonest_us
        if is_soonest:
            self.soonest_us = at_us
        return is_soonest

    def discard(self, holder: SlotHolder) -> None:
        """Remove the deadline by which a connection must give back its slot, if there is one."""
        self._at_us.pop(holder, None)

    def park_due(self, now_us: int) -> int | None:
        """Take back each slot whose deadline has passed.

        Return the soonest remaining deadline, or None if there is none.
        """
        for holder in [holder for holder, at_us in self._at_us.items() if at_us <= now_us]:
            del self._at_us[holder]
            holder.time_out(now_us)
        self.soonest_us = min(self._at_us.values(), default=None)
        return self.soonest_us
