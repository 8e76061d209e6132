"""A request that waits in a broker: for records, for replicas, or for its disk."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.brokers.connection import Connection
    from tests.simulation.brokers.partition import Partition
    from tests.simulation.scheduler import Event


class Parked:
    """A request of a connection. While it waits for partitions, these call ``woken``."""

    __slots__ = ("_connection", "_parts", "_timer")

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._parts: list[Partition] = []
        self._timer: Event | None = None

    def park(
        self, partitions: "Iterable[Partition | None]", most_ms: float, at_last: "Callable[..., None]", *args: object
    ) -> None:
        """Wait for these partitions, and call ``at_last`` after ``most_ms``."""
        self._parts = [partition for partition in partitions if partition is not None]
        for partition in self._parts:
            partition.waiters[self] = None
        self._connection.parked = self
        self._timer = self._connection.broker.world.call_later(most_ms, at_last, *args)

    def woken(self) -> None:
        """The log of a partition has grown, its high watermark has moved, or it has another leader."""

    def cancel(self) -> None:
        """Wait no longer, as also when the connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for partition in self._parts:
            partition.waiters.pop(self, None)
        self._parts = []
