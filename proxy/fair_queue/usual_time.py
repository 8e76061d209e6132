"""How long a broker usually takes to answer requests of one kind at the moment."""

from typing import Final

# The weight of one answer in the mean.
_WEIGHT: Final = 1 / 16
# Without answers the mean is halved each second. Otherwise it would stay as it was when the last client left.
_HALF_LIFE_US: Final = 1_000_000
# A request that takes longer than this many times the usual time probably waits for something else.
_MANY_TIMES: Final = 4
LEAST_GRACE_US: Final = 20_000
MOST_GRACE_US: Final = 500_000


class UsualTime:
    """The mean time that the broker has taken for the last requests of one kind."""

    __slots__ = ("_at_us", "_mean_us")

    def __init__(self) -> None:
        self._mean_us = 0.0
        self._at_us = 0  # when the mean was last known

    def note(self, elapsed_us: int, now_us: int) -> None:
        """Note the time that the broker took for a request. A time beyond the grace counts as the grace.

        Otherwise one request that waited at the broker for seconds would outweigh all others.
        """
        taken_us = min(elapsed_us, self.grace_us(now_us))
        mean_us = self.mean_us(now_us)
        self._mean_us = mean_us + (taken_us - mean_us) * _WEIGHT if mean_us else float(taken_us)
        self._at_us = now_us

    def mean_us(self, now_us: int) -> float:
        """Return the mean time in microseconds, or 0 if no request was answered recently."""
        silent = (now_us - self._at_us) // _HALF_LIFE_US
        return self._mean_us if silent <= 0 else float(int(self._mean_us) >> min(silent, 32))

    def grace_us(self, now_us: int) -> int:
        """Return how long a request may keep its slot that may wait at the broker, without work for the broker."""
        return int(min(max(LEAST_GRACE_US, _MANY_TIMES * self.mean_us(now_us)), MOST_GRACE_US))
