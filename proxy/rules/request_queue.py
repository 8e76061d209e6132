"""The queue of requests about quotas, which are answered one after another."""

import asyncio
from collections import deque
from typing import Final

from kafka_quota_proxy.proxy.rules.api import Ticket

_MAX_WAITING: Final = 1_000
# A few of the largest requests fit into this. If there is no room, the session submits its request again later.
_MAX_WAITING_BYTES: Final = 16 * 1024 * 1024


class RequestQueue:
    """The queue of requests about quotas, as tickets. It limits how many requests and how many bytes may wait."""

    def __init__(self) -> None:
        self.waiting: deque[Ticket] = deque()
        self._has_come = asyncio.Event()

    def put(self, ticket: Ticket) -> Ticket | None:
        """Append a ticket and return it, or return None if the queue is full. Dropped tickets take no room."""
        size_bytes = len(ticket.frame)
        if self.waiting and not self._has_room(size_bytes):
            self.waiting = deque(one for one in self.waiting if not one.is_dropped)
            if not self._has_room(size_bytes):
                return None
        self.waiting.append(ticket)
        self._has_come.set()
        return ticket

    async def wait(self) -> None:
        """Wait until ``pop`` may return a ticket. No ticket is lost if the wait fails."""
        if not self.waiting:
            self._has_come.clear()
            await self._has_come.wait()

    def pop(self) -> Ticket | None:
        """Return the next ticket that is not dropped, or None if there is none."""
        while self.waiting:
            ticket = self.waiting.popleft()
            if not ticket.is_dropped:
                return ticket
        return None

    def _has_room(self, size_bytes: int) -> bool:
        waiting_bytes = sum(len(one.frame) for one in self.waiting)
        return len(self.waiting) < _MAX_WAITING and waiting_bytes + size_bytes <= _MAX_WAITING_BYTES
