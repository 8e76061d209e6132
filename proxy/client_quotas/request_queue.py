"""Administrators' requests that wait for their turn."""

import asyncio
from collections import deque
from typing import Final

from kafka_quota_proxy.proxy.client_quotas.api import Ticket

_MAX_WAITING: Final = 1_000
# A few of the largest requests. A client whose request finds no room asks again.
_MAX_WAITING_BYTES: Final = 16 * 1024 * 1024


class RequestQueue:
    """Tickets in the order in which they came, up to a bound.

    Attributes:
        waiting: Those that nothing has been done for.
    """

    def __init__(self) -> None:
        self.waiting: deque[Ticket] = deque()
        self._has_come = asyncio.Event()

    def put(self, ticket: Ticket) -> Ticket | None:
        """Append a ticket and return it; None: there is no room."""
        size_bytes = len(ticket.frame)
        if not self._has_room(size_bytes):
            self.waiting = deque(one for one in self.waiting if not one.is_dropped)
            if not self._has_room(size_bytes):
                return None
        self.waiting.append(ticket)
        self._has_come.set()
        return ticket

    async def get(self) -> Ticket:
        """Wait for the next ticket that is not dropped."""
        while True:
            while self.waiting:
                ticket = self.waiting.popleft()
                if not ticket.is_dropped:
                    return ticket
            self._has_come.clear()
            await self._has_come.wait()

    def _has_room(self, size_bytes: int) -> bool:
        waiting_bytes = sum(len(one.frame) for one in self.waiting)
        return len(self.waiting) < _MAX_WAITING and waiting_bytes + size_bytes <= _MAX_WAITING_BYTES
