"""How long a broker usually takes to answer requests of one kind at the moment."""

from typing import Final

# The weight of one answer in the mean.
_WEIGHT: Final = 1 / 16
# Without answers the mean is halved each second. Otherwise it would stay as it was when the last client left.
_HALF_LIFE_US: Final = 1_000_000
# A request that takes longer than this many times the usual time probably waits for something else.
_MANY_TIMES: Final = 4
LEAST_GRACE_US: Final = 20_000
MOST_GRACE_US: Final = 2_000_000
# If nothing shows that the broker is not busy, the request keeps its slot for at least this long.
LEAST_PATIENCE_US: Final = 200_000


class UsualTime:
    """The mean time that the broker has taken for the last requests of one kind."""

    __slots__ = ("_at_us", "_mean_us")

    def __init__(self) -> None:
        self._mean_us = 0.0
        self._at_us = 0  # when the mean was last known

    def note(self, elapsed_us: int, now_us: int) -> None:
        """Note the time that the broker took for a request. A time beyond the grace, or ``LEAST_PATIENCE_US``, is cut.

        Otherwise one request that waited at the broker for seconds would outweigh all others.
        """
        mean_us = self.mean_us(now_us)
        taken_us = min(elapsed_us, max(LEAST_PATIENCE_US, _MANY_TIMES * mean_us), MOST_GRACE_US)
        self._mean_us = mean_us + (taken_us - mean_us) * _WEIGHT if mean_us else float(taken_us)
        self._at_us = now_us

    def mean_us(self, now_us: int) -> float:
        """Return the mean time in microseconds, or 0 if no request was answered recently."""
        silent = (now_us - self._at_us) // _HALF_LIFE_US
        return self._mean_us if silent <= 0 else float(int(self._mean_us) >> min(silent, 32))

    def grace_us(self, now_us: int) -> int:
        """Return after how long a request gives its slot back if the broker has answered a later request meanwhile.

        The broker then has time for others, and the request waits for something else.
        """
        return int(min(max(LEAST_GRACE_US, _MANY_TIMES * self.mean_us(now_us)), MOST_GRACE_US))
