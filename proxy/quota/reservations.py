"""Sets aside the expected charges of requests that are forwarded and not charged yet."""

from dataclasses import dataclass
from typing import Final

from kafka_quota_proxy.config.units import UNLIMITED

# The longest time for which one request delays others: the default of max_throttle_time.
LONGEST_MS: Final = 25_000


@dataclass(slots=True, eq=False, repr=False)
class Reservations:
    """The expected charges of the requests of one bucket that are in flight.

    A reservation delays other requests for no longer than a charge of its amount would, and at most ``LONGEST_MS``. So
    a request that is never answered, or that its client never completes, does not block the others for ever.

    Attributes:
        is_known: Whether the amounts are known and are charged even if an answer is late, as those of changes of topics
            are. Then there is no such maximum.
        limit: The limit per second, or ``float(UNLIMITED)``.
        amount: The sum of the expected charges of all requests that the broker has not answered.
        held_until_ms: The time until which requests in flight delay a request that has no room.
    """

    is_known: bool
    limit: float = float(UNLIMITED)
    amount: int = 0
    held_until_ms: float = 0.0
    _late: int = 0  # the part of ``amount`` whose reservations were over when the next one began

    def add(self, amount: int, *, now_ms: int) -> None:
        """Set aside the amount that will probably be charged for a request that is now forwarded.

        ``settle`` ends the reservation.
        """
        from_ms = float(now_ms)
        if not self.amount:
            self._late = 0
        elif self.held_until_ms > now_ms:
            from_ms = self.held_until_ms
        else:
            self._late = self.amount
        self.held_until_ms = from_ms + self._lasts_ms(amount)
        self.amount += amount

    def settle(self, amount: int) -> None:
        """End the reservation of ``amount`` for a request that was answered, or that will never be answered.

        A reservation that was over already shortens no later one. The requests that are late are taken to end first.
        """
        self.amount -= amount
        if self.amount and self.limit < UNLIMITED:
            late = min(amount, self._late)
            self._late -= late
            self.held_until_ms -= self._lasts_ms(amount - late)

    def _lasts_ms(self, amount: int) -> float:
        lasts_ms = amount * 1_000 / self.limit
        return lasts_ms if self.is_known else min(lasts_ms, LONGEST_MS)
