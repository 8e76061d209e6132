"""Sets aside the expected charges of requests that are forwarded and not charged yet."""

from dataclasses import dataclass
from typing import Final

from kafka_quota_proxy.config.quota_kinds import QuotaKind
from kafka_quota_proxy.proxy.quota.entity_usage import EntityUsage

# The longest time for which one request delays others: the default of max_throttle_time.
LONGEST_MS: Final = 25_000
_MUTATION: Final = QuotaKind.MUTATION  # for each request, the lookup in the enum would take longer than the arithmetic


@dataclass(slots=True, eq=False, repr=False)
class ReservedUsage(EntityUsage):
    """The usage of one entity, and the expected charges of its requests that are in flight.

    A reservation delays other requests for no longer than a charge of its amount would, and at most ``LONGEST_MS``. So
    a request that is never answered, or that its client never completes, does not block the others for ever. Changes of
    topics have no such maximum: their amount is known, and is charged even if the answer is late.

    Attributes:
        in_flight: The sum of the expected charges of all requests that the broker has not answered.
    """

    in_flight: int = 0
    _reserved_until_ms: float = 0.0
    _late: int = 0  # the part of in_flight whose reservations were over when the next one began

    def reserve(self, amount: int, *, now_ms: int) -> None:
        """Set aside the amount that will probably be charged for a request that is now forwarded.

        ``settle`` ends the reservation.
        """
        from_ms = float(now_ms)
        if not self.in_flight:
            self._late = 0
        elif self._reserved_until_ms > now_ms:
            from_ms = self._reserved_until_ms
        else:
            self._late = self.in_flight
        self._reserved_until_ms = from_ms + self._lasts_ms(amount)
        self.in_flight += amount

    def settle(self, amount: int) -> None:
        """End the reservation of ``amount`` for a request that was answered, or that will never be answered.

        A reservation that was over already shortens no later one. The requests that are late are taken to end first.
        """
        self.in_flight -= amount
        if self.in_flight and self.is_limited:
            late = min(amount, self._late)
            self._late -= late
            self._reserved_until_ms -= self._lasts_ms(amount - late)

    @property
    def held_until_ms(self) -> float:
        """The time until which requests in flight delay a request that has no room."""
        return self._reserved_until_ms

    def _lasts_ms(self, amount: int) -> float:
        lasts_ms = amount * 1_000 / self.limit
        return lasts_ms if self.kind is _MUTATION else min(lasts_ms, LONGEST_MS)
