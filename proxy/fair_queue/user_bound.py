"""Bounds how many places each user has in a lane, queued or with a slot. Further tickets of a user wait outside.

When a ticket leaves the lane, the next ticket of the same user enters. So one user cannot hold all slots of the lane,
however many connections it has.
"""

from collections import OrderedDict
from typing import Generic

from kafka_quota_proxy.proxy.fair_queue.call_queue import E


class UserBound(Generic[E]):
    """Counts the places of each user in a lane, and keeps the tickets of users that have all of theirs.

    ``waiting`` is the number of tickets that are outside.
    """

    __slots__ = ("_inside", "_outside", "waiting")

    def __init__(self) -> None:
        self._inside: dict[str, int] = {}
        self._outside: dict[str, OrderedDict[E, None]] = {}
        self.waiting = 0

    def enter(self, ticket: E, most: int) -> bool:
        """Let a ticket into the lane, if its user has fewer than ``most`` places. Otherwise it waits outside."""
        inside = self._inside.get(ticket.identity, 0)
        if inside >= most:
            self._outside.setdefault(ticket.identity, OrderedDict())[ticket] = None
            self.waiting += 1
            return False
        self._inside[ticket.identity] = inside + 1
        return True

    def force(self, ticket: E) -> None:
        """Let a ticket into the lane, however many places its user has."""
        self._inside[ticket.identity] = self._inside.get(ticket.identity, 0) + 1

    def leave(self, identity: str, most: int) -> list[E]:
        """Note that a ticket of a user has left the lane. Return the tickets of the user that enter instead."""
        inside = self._inside[identity] - 1
        entered: list[E] = []
        outside = self._outside.get(identity)
        if outside is not None:
            while outside and inside < most:
                entered.append(outside.popitem(last=False)[0])
                inside += 1
            self.waiting -= len(entered)
            if not outside:
                del self._outside[identity]
        if inside:
            self._inside[identity] = inside
        else:
            del self._inside[identity]
        return entered

    def discard(self, ticket: E) -> bool:
        """Remove a ticket that waits outside. Return False if it does not."""
        outside = self._outside.get(ticket.identity)
        if outside is None or ticket not in outside:
            return False
        del outside[ticket]
        self.waiting -= 1
        if not outside:
            del self._outside[ticket.identity]
        return True
