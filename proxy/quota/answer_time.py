"""Measures how long a broker with data takes to answer a fetch."""

from typing import Final

# Before the first measurement, and the bounds of the result.
_FIRST_MS: Final = 20
_LEAST_MS: Final = 2
_MOST_MS: Final = 5_000
_PARTS: Final = 8


class AnswerTime:
    """The time from a fetch to its response, of fetches that were not parked: the longest of late, slowly forgotten.

    A fetch was not parked if its broker certainly had data when it arrived, or if it was answered sooner than expected.

    Attributes:
        ms: The time in ms within which a broker with data answers most fetches.
    """

    __slots__ = ("_longest_ms", "ms")

    def __init__(self) -> None:
        self._longest_ms = float(_FIRST_MS)
        self.ms: int = _FIRST_MS + 1

    def note(self, took_ms: int, *, had_data: bool) -> None:
        """Learn from a fetch that was answered with records after ``took_ms``."""
        longest_ms = self._longest_ms
        if took_ms <= longest_ms:
            longest_ms += (took_ms - longest_ms) / _PARTS
        elif had_data:
            longest_ms = float(took_ms)
        else:
            return
        self._longest_ms = longest_ms
        self.ms = max(_LEAST_MS, min(_MOST_MS, int(longest_ms) + 1))
