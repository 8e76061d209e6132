"""Counters of a listener's fair call queue, which are published as metrics."""

from typing import Final

# Control requests have a queue of their own, and are counted under this level.
CONTROL_LEVEL: Final = -1


class QueueStats:
    """Counts what has happened to the requests of a listener since the start of the proxy.

    Attributes:
        served: Three sums for each level: the number of responses, the microseconds in the queue, and the microseconds
            at the broker. For requests that wait at the broker for data or for group members, the last sum contains
            only the estimated time of work.
        refused: The number of refused requests by level and API key.
        passed_by: The number of requests that were forwarded without a slot, by API key.
        parked: The number of requests that gave their slot back before the response, by API key.
    """

    __slots__ = ("parked", "passed_by", "refused", "served")

    def __init__(self) -> None:
        self.served: dict[int, list[int]] = {}
        self.refused: dict[tuple[int, int], int] = {}
        self.passed_by: dict[int, int] = {}
        self.parked: dict[int, int] = {}

    def serve(self, level: int, queue_us: int, taken_us: int) -> None:
        """Count a request that the broker answered after ``queue_us`` in the queue and ``taken_us`` at the broker."""
        served = self.served.get(level)
        if served is None:
            served = self.served[level] = [0, 0, 0]
        served[0] += 1
        served[1] += queue_us
        served[2] += taken_us

    def refuse(self, level: int, api_key: int) -> None:
        """Count a request that the proxy refused."""
        key = level, api_key
        self.refused[key] = self.refused.get(key, 0) + 1

    def pass_by(self, api_key: int) -> None:
        """Count a request that was forwarded without a slot (the right to be at the broker)."""
        self.passed_by[api_key] = self.passed_by.get(api_key, 0) + 1

    def park(self, api_key: int) -> None:
        """Count a request that gave its slot (the right to be at the broker) to another request before the response."""
        self.parked[api_key] = self.parked.get(api_key, 0) + 1
